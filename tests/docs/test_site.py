"""The site is built with nothing to warn of; what is not part of the site leads somewhere, too.

Sphinx follows every link between pages, to headings and to pictures, and misses no page in the
navigation: each of these is a warning, and `-W` makes warnings errors.
"""

import re
import subprocess
import sys

import pytest

from tests.docs.pages import PAGES, anchors, label, links
from tests.observe.browser import browsing, find_browser
from tests.support.repository import DOCS, ROOT

BESIDE = [*(page for page in PAGES if DOCS not in page.parents), ROOT / "CHANGELOG.md"]
"""Pages that Git servers show and the site does not have."""


FETCHED = re.compile(r"""<(?:script|img|iframe)[^>]*\ssrc="https?://|<link[^>]*\shref="https?://""")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    site = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", DOCS, site]
    done = subprocess.run(build, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return site


@pytest.mark.slow
def test_the_site_is_built_strictly(site):
    assert stems(site, "*.html") >= stems(DOCS, "*.md")


@pytest.mark.slow
def test_the_site_fetches_nothing(site):
    for page in site.rglob("*.html"):
        assert not FETCHED.search(page.read_text(encoding="utf-8")), page


@pytest.mark.slow
@pytest.mark.skipif(find_browser() is None, reason="there is no chromium to show the site")
async def test_search_and_copying_work_from_a_folder(site, tmp_path):
    async with browsing(tmp_path) as tab:
        search = f"{(site / 'search.html').as_uri()}?q=ResourceClaim"
        await tab.open(search, width=1200, height=900, dark=True)
        await tab.until("document.querySelectorAll('.search li a').length > 1")
        await tab.open((site / "quickstart.html").as_uri(), width=400, height=900)
        await tab.until("document.querySelectorAll('button.copybtn').length > 3")
        assert await tab.value("document.documentElement.scrollWidth") <= 400
        assert tab.errors == []


def stems(directory, pattern):
    return {path.relative_to(directory).with_suffix("") for path in directory.rglob(pattern)}


@pytest.mark.parametrize("page", BESIDE, ids=label)
def test_links_beside_the_site_lead_to_files_and_headings_that_exist(page):
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def test_the_readme_leads_to_the_documentation():
    assert any(link.startswith("docs/") for link in links(ROOT / "README.md"))


@pytest.mark.parametrize("page", PAGES, ids=label)
def test_a_page_has_one_title(page):
    fenced = False
    titles = []
    for line in page.read_text(encoding="utf-8").splitlines():
        fenced ^= line.startswith("```")
        if not fenced and line.startswith("# "):
            titles.append(line)
    assert len(titles) == 1
