"""What may a scheduler say in Grove's PodGangs? Grove declares these conditions and leaves them.

Scheduled         True, reason PodGangScheduled, once the floors are bound; it stays
DisruptionTarget  reason PreemptionByScheduler, while a gang that we evict is below its floor

Off unless configured: Grove plans to write Scheduled itself.

Source: Grove, scheduler.grove.io/v1alpha1, PodGangStatus.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kai_py.api.records.unstructured import Unstructured
from kai_py.commit.settings import CommitSettings
from kai_py.commit.statuses.group_conditions import (
    DesiredCondition,
    DisruptionReasons,
    condition_statuses,
    conditions_patch,
    disruption_condition,
)
from kai_py.commit.statuses.report_writer import report_writer
from kai_py.plan.plan import Plan
from kai_py.snapshot.gangs import Gang
from kai_py.watch.client import Client
from kai_py.watch.kinds import POD_GANGS
from kai_py.watch.mirror import Mirror
from kai_py.watch.resource import Key

API_VERSION = "scheduler.grove.io/v1alpha1"
SCHEDULED = "Scheduled"
REASON = "PodGangScheduled"


@dataclass(frozen=True, slots=True)
class PodGangReport:
    """Whether the floors of a PodGang are bound, and why it is evicted, if it is."""

    scheduled: bool
    disrupted: str = ""


def pod_gang_reports(
    gangs: Iterable[Gang], disrupted: Mapping[str, str]
) -> dict[Key, PodGangReport]:
    """A report on every PodGang; ``disrupted``: why gangs are evicted, by key."""
    return {
        (gang.owner.namespace, gang.owner.name): PodGangReport(
            gang.is_satisfied and bool(gang.bound), disrupted.get(gang.key, "")
        )
        for gang in gangs
    }


def pod_gang_patch(
    report: PodGangReport, known: Unstructured, now: datetime
) -> dict[str, Any] | None:
    """The merge patch of the status, or None if the PodGang says it already."""
    wanted = dict(disruption_condition(known, report.disrupted))
    if report.scheduled and condition_statuses(known).get(SCHEDULED) != "True":
        wanted[SCHEDULED] = DesiredCondition("True", REASON)
    return conditions_patch(known, wanted, now)


class PodGangStatusWriter:
    """Keeps the conditions of PodGangs in line with the plans."""

    def __init__(self, client: Client, mirror: Mirror, settings: CommitSettings) -> None:
        self._enabled = settings.write_grove_statuses
        self._mirror = mirror
        self._disruptions = DisruptionReasons()
        self._writer = report_writer(client, mirror, settings, POD_GANGS, pod_gang_patch)

    def update(self, plan: Plan, gangs: Iterable[Gang]) -> None:
        """Note what must be reported from now on."""
        if not self._enabled or self._mirror.served(POD_GANGS) is None:
            return
        ours = [gang for gang in gangs if gang.owner.api_version == API_VERSION]
        disrupted = self._disruptions.update(plan, ours)
        self._writer.update(lambda: pod_gang_reports(ours, disrupted))

    async def run(self) -> None:
        """Write until cancelled."""
        await self._writer.run()
