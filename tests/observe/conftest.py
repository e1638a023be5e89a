"""A page of a browser, which must have no errors on its console at the end."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.observe.browser import Tab, browsing


@pytest.fixture
async def tab(tmp_path: Path) -> AsyncIterator[Tab]:
    async with browsing(tmp_path) as tab:
        yield tab
        assert tab.errors == []
