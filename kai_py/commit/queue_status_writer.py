"""Keeps the statuses of Queues in line with the plans of the process that leads."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from kai_py.commit.queue_conditions import Finding
from kai_py.commit.queue_status import (
    QueueReport,
    changed_findings,
    queue_reports,
    status_patch,
    wanted_status,
)
from kai_py.commit.report_writer import Reported, ReportWriter
from kai_py.commit.retry import ObjectBackoff
from kai_py.plan.plan import Plan
from kai_py.watch.client import Client
from kai_py.watch.kinds import WatchedQueue
from kai_py.watch.resource import Resource


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
        self._on_transition = on_transition
        reported = Reported(
            served=lambda: resource,
            find=lambda key: find_queue(key[1]),
            patch=_patch,
            on_written=self._tell,
        )
        self._writer = ReportWriter(client, reported, interval=interval, backoff=backoff)

    def update(self, plan: Plan) -> None:
        """Note what queues must report from now on."""
        self._writer.update(
            lambda: {("", report.share.queue): report for report in queue_reports(plan)}
        )

    async def run(self) -> None:
        """Write until cancelled."""
        await self._writer.run()

    def _tell(self, report: QueueReport, known: WatchedQueue) -> None:
        for finding in changed_findings(report, known):
            self._on_transition(known, finding)


def _patch(report: QueueReport, known: WatchedQueue, now: datetime) -> dict[str, Any] | None:
    return status_patch(wanted_status(report, known, now), known)
