"""Conditions of Grove's PodGangs, which Grove declares and leaves to the scheduler.

    Scheduled         True, reason PodGangScheduled, once minMember is bound; it is never reset
    DisruptionTarget  reason PreemptionByScheduler, while a gang that we evict is below minMember

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
    """Whether minMember of a PodGang is bound, and why it is evicted, if it is."""

    scheduled: bool
    disrupted: str = ""


def pod_gang_reports(
    gangs: Iterable[Gang], disrupted: Mapping[str, str]
) -> dict[Key, PodGangReport]:
    """A report for every gang; ``disrupted``: eviction reasons by gang key."""
    return {
        (gang.owner.namespace, gang.owner.name): PodGangReport(
            gang.is_satisfied and bool(gang.bound), disrupted.get(gang.key, "")
        )
        for gang in gangs
    }


def pod_gang_patch(
    report: PodGangReport, known: Unstructured, now: datetime
) -> dict[str, Any] | None:
    """The merge patch of the status, or None if the PodGang is up to date."""
    desired = dict(disruption_condition(known, report.disrupted))
    if report.scheduled and condition_statuses(known).get(SCHEDULED) != "True":
        desired[SCHEDULED] = DesiredCondition("True", REASON)
    return conditions_patch(known, desired, now)


class PodGangStatusWriter:
    """Keeps the conditions of PodGangs in line with the plans."""

    def __init__(self, client: Client, mirror: Mirror, settings: CommitSettings) -> None:
        self._enabled = settings.write_grove_statuses
        self._mirror = mirror
        self._disruptions = DisruptionReasons()
        self._writer = report_writer(client, mirror, settings, POD_GANGS, pod_gang_patch)

    def update(self, plan: Plan, gangs: Iterable[Gang]) -> None:
        """Record what is to be reported from now on."""
        if not self._enabled or self._mirror.served(POD_GANGS) is None:
            return
        pod_gangs = [gang for gang in gangs if gang.owner.api_version == API_VERSION]
        disrupted = self._disruptions.update(plan, pod_gangs)
        self._writer.update(lambda: pod_gang_reports(pod_gangs, disrupted))

    async def run(self) -> None:
        """Write until cancelled."""
        await self._writer.run()
