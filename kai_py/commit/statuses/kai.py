"""Writers of the statuses and annotations of KAI's Queues and PodGroups."""

import asyncio
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from kai_py.api.records.kai import KaiQueue
from kai_py.commit.settings import CommitSettings
from kai_py.commit.statuses.kai_pod_group import (
    LastEvictions,
    kai_pod_group_annotations,
    kai_pod_group_annotations_patch,
    kai_pod_group_patch,
    kai_pod_group_reports,
)
from kai_py.commit.statuses.kai_queue import KaiQueueReport, kai_queue_patch, kai_queue_reports
from kai_py.commit.statuses.report_writer import report_writer
from kai_py.plan.plan import Plan
from kai_py.snapshot.gangs import Gang
from kai_py.watch.client import Client
from kai_py.watch.kinds import KAI_POD_GROUPS, KAI_QUEUES
from kai_py.watch.mirror import Mirror


class KaiStatusWriter:
    """All writers for KAI's kinds; a kind that is not served costs nothing."""

    def __init__(self, client: Client, mirror: Mirror, settings: CommitSettings) -> None:
        self._node_pool = settings.node_pool
        self._machine = client.machine
        self._evictions = LastEvictions()
        self._settings = settings
        self._queues = report_writer(client, mirror, settings, KAI_QUEUES, self._queue_patch)
        self._pod_groups = report_writer(
            client, mirror, settings, KAI_POD_GROUPS, kai_pod_group_patch
        )
        self._annotations = report_writer(
            client,
            mirror,
            settings,
            KAI_POD_GROUPS,
            kai_pod_group_annotations_patch,
            subresource="",
        )

    def update(self, plan: Plan, gangs: Iterable[Gang]) -> None:
        """Record what is to be reported from now on."""
        self._queues.update(lambda: kai_queue_reports(plan))
        self._pod_groups.update(lambda: kai_pod_group_reports(plan, gangs, self._node_pool))
        evicted = self._evictions.update(plan, self._machine.now())
        self._annotations.update(lambda: kai_pod_group_annotations(gangs, evicted))

    def _queue_patch(
        self, report: KaiQueueReport, known: KaiQueue, now: datetime
    ) -> dict[str, Any] | None:
        if not self._settings.reports_on(known.metadata):
            return None
        return kai_queue_patch(report, known, now)

    async def run(self) -> None:
        """Write until cancelled."""
        await asyncio.gather(self._queues.run(), self._pod_groups.run(), self._annotations.run())
