"""The reference says what the code says."""

import pytest

from tests.docs.reference import PAGES, TABLES, with_tables
from tests.support.repository import DOCS


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_as_the_code_has_it_and_explains_everything(name):
    made = PAGES[name]()
    kept = (DOCS / "reference" / name).read_text(encoding="utf-8")
    assert kept == made, "run make generate and commit"
    rows = [line for line in made.splitlines() if line.startswith("| `")]
    assert rows
    cells = [[cell.strip() for cell in row.split(" | ")] for row in rows]
    assert [row[0] for row in cells if not any(row[1:])] == []


@pytest.mark.parametrize("name", TABLES)
def test_generated_tables_are_as_the_code_has_them(name):
    page = (DOCS / name).read_text(encoding="utf-8")
    assert page == with_tables(name, page), "run make generate and commit"
