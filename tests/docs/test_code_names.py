"""The files, classes and functions that pages for developers name are there."""

import re

import pytest

from tests.support.repository import ROOT

PAGES = ("contributing.md", "architecture.md")
FOLDERS = ("", "kai_py", "kai_py/plan", "tests", "docs")
PATH = re.compile(r"`((?:[\w.*-]+/)+(?:[\w*-]+\.(?:py|yaml|md))?)`")
MEMBER = re.compile(r"`([A-Z]\w*[a-z]\w*)\.([a-z_]\w*)`")
SOURCES = [path.read_text() for path in (ROOT / "kai_py").rglob("*.py")]


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_exists(page: str):
    text = (ROOT / "docs" / page).read_text()
    assert [path for path in PATH.findall(text) if not any_of(path)] == []
    assert [f"{owner}.{name}" for owner, name in MEMBER.findall(text) if not has(owner, name)] == []


def any_of(path: str) -> bool:
    """Whether a path, perhaps with a wildcard, is below one of the folders."""
    return any(any((ROOT / folder).glob(path)) for folder in FOLDERS)


def has(owner: str, name: str) -> bool:
    """Whether a class of that name stands in a file with a function or field of the other."""
    member = re.compile(
        rf"^    (?:async )?(?:def {name}\(|{name}:)|self\.{name}\b.* = ", re.MULTILINE
    )
    return any(f"class {owner}" in source and member.search(source) for source in SOURCES)


def test_the_longest_answer_is_read_in_four_files():
    """How reclaim chooses victims, and what happens when a binding fails."""
    rows = (ROOT / "docs/architecture.md").read_text().splitlines()
    for question, most in (("How does reclaim choose victims?", 700), ("binding fails?", 1200)):
        (row,) = [line for line in rows if question in line]
        files = [ROOT / "kai_py" / path for path in PATH.findall(row)]
        assert len(files) <= 4
        assert sum(len(each.read_text().splitlines()) for each in files) <= most
