"""Periodic measurements of the process itself: how far it is behind what it watches."""

import asyncio

from kai_py.observe.metrics import Metrics
from kai_py.watch.freshness import Freshness
from kai_py.watch.mirror import Mirror

MONITOR_SECONDS = 5.0


async def measure_process(metrics: Metrics, mirror: Mirror, freshness: Freshness) -> None:
    """Set the gauges of the event loop and of the watches, until cancelled."""
    loop, forbidden = asyncio.get_running_loop(), set[str]()
    while True:
        due = loop.time() + MONITOR_SECONDS
        await asyncio.sleep(MONITOR_SECONDS)
        metrics.loop_lag.set(max(0.0, loop.time() - due))
        kinds = mirror.status()
        for kind in kinds:
            if kind.api_version:
                metrics.watch_lag.labels(kind.kind).set(kind.age)
        now_forbidden = {kind.missing_permission for kind in kinds if kind.missing_permission}
        forbidden |= now_forbidden
        for each in forbidden:
            metrics.kind_refused.labels(each).set(each in now_forbidden)
        for view in freshness.measure():
            permission = view.kind.permission
            metrics.watch_silent.labels(permission).set(view.silent_for)
            metrics.watch_behind.labels(permission).set(view.behind_for)
