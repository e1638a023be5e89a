"""The page on annotations has each that users write."""

import pytest

from kai_py.api.queue import GROUP
from kai_py.lint.rules.fields import KEYS
from tests.support.repository import ROOT

PAGE = (ROOT / "docs" / "annotations.md").read_text()
NAMED = {name for line in PAGE.splitlines() for name in line.split("|")[1:2]}


@pytest.mark.parametrize("key", KEYS)
def test_the_page_has_every_annotation(key: str) -> None:
    assert any(f"`{key.removeprefix(f'{GROUP}/')}`" in names for names in NAMED)
