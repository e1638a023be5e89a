"""The site is built with nothing to warn of; what is not part of the site leads somewhere, too.

mkdocs follows every link between pages, to headings and to pictures, and misses no page in the
navigation: each of these is a warning, and `strict` makes warnings errors.
"""

import re
import subprocess
import sys

import pytest

from tests.docs.pages import PAGES, anchors, label, links
from tests.support.repository import DOCS, ROOT

BESIDE = [page for page in PAGES if DOCS not in page.parents]
"""Pages that Git servers show and the site does not have."""


def test_the_site_is_built_strictly(tmp_path):
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"]
    done = subprocess.run(build, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert stems(tmp_path / "site", "*.html") >= stems(DOCS, "*.md")


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
