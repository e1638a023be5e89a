"""The documentation hangs together: every page is in the navigation, every link leads somewhere."""

import re

import pytest
import yaml

from tests.docs.pages import DOCS, PAGES, ROOT, anchors, label, links

SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def navigated(entry):
    if isinstance(entry, str):
        return [entry]
    values = entry.values() if isinstance(entry, dict) else entry
    return [page for value in values for page in navigated(value)]


def test_every_page_is_in_the_navigation_once():
    pages = [str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")]
    assert sorted(navigated(SITE["nav"])) == sorted(pages)


def test_the_site_is_built_strictly():
    assert SITE["strict"] is True
    assert SITE["docs_dir"] == "docs"


@pytest.mark.parametrize("page", PAGES, ids=label)
def test_links_lead_to_files_and_headings_that_exist(page):
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert DOCS not in page.parents or DOCS in target.parents, f"{link} leaves the site"
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
