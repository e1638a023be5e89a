"""Writes what queues report, behind the cycle's back, from the plans of the process that leads.

A queue whose status already says it is not written to. Each queue is written to at most once per
interval, and all of them at a bounded rate, those first that have waited longest. What changes
meanwhile is written in its newest form when its time has come, whether or not another plan is made.
A plan costs the cycle nothing: it is only noted.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from kai_py.commit.queue_conditions import Finding
from kai_py.commit.queue_status import (
    QueueReport,
    changed_findings,
    queue_reports,
    status_patch,
    wanted_status,
)
from kai_py.commit.retry import ObjectBackoff
from kai_py.plan.decisions import Plan
from kai_py.watch.client import Client
from kai_py.watch.errors import ApiError, Conflict, NotFound
from kai_py.watch.kinds import WatchedQueue
from kai_py.watch.resource import Resource

log = logging.getLogger(__name__)

PASS_SECONDS = 0.5
"""Least time from the end of one look at all queues to the next."""
WRITES_PER_PASS = 20


class QueueStatusWriter:
    """Brings the statuses of queues in line with the last plan.

    ``find_queue`` gives a queue as the mirror has it. ``interval`` is in seconds. ``on_transition``
    is told, with the queue as it was, of conditions written with another status or reason.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource[WatchedQueue],
        find_queue: Callable[[str], WatchedQueue | None],
        *,
        interval: float,
        backoff: ObjectBackoff,
        on_transition: Callable[[WatchedQueue, Finding], None],
    ) -> None:
        self._client = client
        self._resource = resource
        self._find_queue = find_queue
        self._interval = interval
        self._backoff = backoff
        self._on_transition = on_transition
        self._plan = Plan()
        self._news = asyncio.Event()
        self._not_before: dict[str, float] = {}
        self._said: dict[str, tuple[QueueReport, str]] = {}

    def update(self, plan: Plan) -> None:
        """Note what queues must report from now on."""
        self._plan = plan
        self._news.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            self._news.clear()
            pause = await self._write_due()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause if math.isfinite(pause) else None):
                    await self._news.wait()
            await asyncio.sleep(PASS_SECONDS)

    async def _write_due(self) -> float:
        """Write to queues that may be written to; gives the seconds until there are more."""
        now = asyncio.get_running_loop().time()
        changed = self._changed()
        due = [(report, known) for at, report, known in changed if at <= now]
        for report, known in due[:WRITES_PER_PASS]:
            await self._bring_in_line(report, known)
        if len(due) > WRITES_PER_PASS:
            return 0.0
        waiting = [at - now for at, _, _ in changed if at > now]
        retried = [self._not_before[r.share.queue] - now for r, k in due if not self._says(r, k)]
        return min((*waiting, *retried), default=math.inf)

    def _changed(self) -> list[tuple[float, QueueReport, WatchedQueue]]:
        """Queues that may say something else than reported, by the time they may be written to."""
        reports = queue_reports(self._plan)
        self._forget_all_but({report.share.queue for report in reports})
        found = [
            (self._not_before.get(report.share.queue, 0.0), report, known)
            for report in reports
            if (known := self._find_queue(report.share.queue)) is not None
            and not self._says(report, known)
        ]
        return sorted(found, key=lambda entry: entry[0])

    def _says(self, report: QueueReport, known: WatchedQueue) -> bool:
        return self._said.get(report.share.queue) == (report, known.metadata.resource_version)

    async def _bring_in_line(self, report: QueueReport, known: WatchedQueue) -> None:
        name, loop = report.share.queue, asyncio.get_running_loop()
        patch = status_patch(wanted_status(report, known, datetime.now(UTC)), known)
        if patch is None:
            self._said[name] = (report, known.metadata.resource_version)
            return
        pause = self._interval
        try:
            await self._client.patch(self._resource, name, patch, subresource="status")
        except (Conflict, NotFound) as error:
            log.debug("status of queue %s: %s", name, error)
        except ApiError as error:
            log.warning("status of queue %s: %s", name, error)
            pause = max(pause, self._backoff.failed(name, loop.time()))
        else:
            self._backoff.succeeded(name)
            for finding in changed_findings(report, known):
                self._on_transition(known, finding)
        self._not_before[name] = loop.time() + pause

    def _forget_all_but(self, names: set[str]) -> None:
        for gone in [name for name in (*self._not_before, *self._said) if name not in names]:
            self._not_before.pop(gone, None)
            self._said.pop(gone, None)
            self._backoff.succeeded(gone)
