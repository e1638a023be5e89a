"""The dashboard rows: how soon a browser shows a large cluster, and a change of it.

The figures are the browser's: from the start of the navigation, and from the end of the cycle, to
the frame that shows the data.
"""

import asyncio
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.row import Benchmark, Measured
from kai_py.observe.http import serve
from kai_py.observe.http_access import HttpAccess
from tests.observe.browser import Tab, browsing, find_browser
from tests.observe.shown import Shown, large_cluster

WATCH = """
const frame = () => requestAnimationFrame(() => { window.shownAt = performance.now(); });
new MutationObserver(frame).observe(document,
  {subtree: true, attributes: true, attributeFilter: ["data-cycle"]});
"""
NEXT = """new Promise((done) => {
  const shown = document.body.dataset.cycle;
  new MutationObserver(() => document.body.dataset.cycle === shown ||
    requestAnimationFrame(() => done(1)))
    .observe(document.body, {attributes: true, attributeFilter: ["data-cycle"]});
})"""
WIDTH, HEIGHT = 1280, 900
SETTLE_SECONDS = 2.0
"""For the browser to listen before the cycle is shown."""


def dashboard_benchmarks() -> list[Benchmark]:
    """First paint, and an update."""
    rows = (
        ("first-paint", "first paint of the dashboard, 10,000 nodes, 80,000 GPUs", first_paint),
        ("update", "a cycle until the dashboard shows it, 10,000 nodes, 80,000 GPUs", update),
    )
    return [
        Benchmark(part="dashboard", name=name, title=title, run=partial(measure, look))
        for name, title, look in rows
    ]


def measure(look) -> Measured:
    """Show a large cluster in a browser."""
    if find_browser() is None:
        return Measured(seconds=None, outcome="there is no chromium to show the page")
    return asyncio.run(_measure(look))


async def _measure(look) -> Measured:
    shown = Shown(large_cluster().snapshot())
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        async with (
            serve(shown.probes(), HttpAccess("127.0.0.1"), 0) as port,
            browsing(Path(folder)) as tab,
        ):
            await tab.call("Page.enable")
            await tab.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
            await tab.open(f"http://127.0.0.1:{port}/", width=WIDTH, height=HEIGHT)
            await tab.until("window.shownAt")
            seconds = await look(tab, shown)
            elements = await tab.value("document.querySelectorAll('*').length")
    return Measured(seconds=seconds, outcome=f"{elements:,} elements on the page")


async def first_paint(tab: Tab, _shown: Shown) -> float:
    """Seconds from the navigation to the first frame with data."""
    return await tab.value("window.shownAt") / 1000


async def update(tab: Tab, shown: Shown) -> float:
    """Seconds from a cycle to the frame that shows it."""
    told = asyncio.create_task(tab.value(NEXT))
    await asyncio.sleep(SETTLE_SECONDS)
    shown.show(shown.view.snapshot)
    began = time.perf_counter()
    await told
    return time.perf_counter() - began
