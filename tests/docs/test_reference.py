"""The reference says what the code says."""

import pytest

from tests.docs.reference import TABLES, reference, with_tables
from tests.support.repository import DOCS

PAGES = reference()


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_as_the_code_has_it(name):
    kept = (DOCS / "reference" / name).read_text(encoding="utf-8")
    assert kept == PAGES[name], "run make generate and commit"


@pytest.mark.parametrize("name", TABLES)
def test_generated_tables_are_as_the_code_has_them(name):
    page = (DOCS / name).read_text(encoding="utf-8")
    assert page == with_tables(name, page), "run make generate and commit"


def test_everything_is_explained():
    for name, text in PAGES.items():
        rows = [line for line in text.splitlines() if line.startswith("| `")]
        assert rows
        cells = [[cell.strip() for cell in row.split(" | ")] for row in rows]
        unexplained = [row[0] for row in cells if not any(row[1:])]
        assert unexplained == [], name
