"""The dashboard in a browser: how large it is shown, and what it says."""

import pytest

from tests.observe.browser import find_browser

IN_BROWSER = [
    pytest.mark.slow,
    pytest.mark.skipif(find_browser() is None, reason="there is no chromium to show the page"),
]
"""Marks of modules that show the page."""
PAINTED = "document.body?.dataset.cycle"
NARROW, WIDE = (390, 800), (1280, 900)


async def look(tab, url, size=WIDE, *, dark=False):
    await tab.open(url, width=size[0], height=size[1], dark=dark)
    await tab.until(PAINTED)


async def texts(tab, selector):
    return await tab.value(f"[...document.querySelectorAll('{selector}')].map(e => e.innerText)")
