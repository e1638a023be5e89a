"""What do Kubernetes' own PodGroups say of themselves? What kube-scheduler would, of our pods.

type              PodGroupScheduled in v1alpha2 (1.36), PodGroupInitiallyScheduled later
True              reason Scheduled, once the floor is bound; it stays, whatever happens later
False             reason Unschedulable: the gang waits for its queue or for room;
                  SchedulerError: it makes no sense
nothing           the group waits for pods, gates or claims: nobody has tried to place it
DisruptionTarget  reason PreemptionByScheduler, while a group that we evict is below its floor

kube-scheduler leaves groups of pods that name another scheduler alone.

Source: KEP-4671; k8s.io/api/scheduling/v1alpha2.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kai_py.api.records.document import Document
from kai_py.commit.group_conditions import (
    Disrupted,
    Statement,
    conditions_patch,
    disruption,
    statuses_of,
)
from kai_py.commit.report_writer import report_writer
from kai_py.commit.settings import CommitSettings
from kai_py.commit.status import SCHEDULER_ERROR, UNSCHEDULABLE
from kai_py.grouping.gang import satisfied
from kai_py.plan.decisions import Plan, Stage, Unplaced
from kai_py.snapshot.gangs import Gang, PodState
from kai_py.watch.client import Client
from kai_py.watch.kinds import NATIVE_GROUPS
from kai_py.watch.mirror import Mirror
from kai_py.watch.resource import Key

API_GROUP = "scheduling.k8s.io/"
KINDS = ("PodGroup", "CompositePodGroup")
SCHEDULED = "Scheduled"
UNTRIED = frozenset({Stage.MEMBERS, Stage.GATED, Stage.CLAIMS, Stage.BACKOFF})
ERRORS = frozenset({Stage.INVALID, Stage.FAILED})


@dataclass(frozen=True, slots=True)
class NativeGroupReport:
    """What a plan says of a PodGroup; an empty ``reason``: nothing, ``disrupted``: why it ends."""

    reason: str
    message: str
    disrupted: str = ""


def native_group_reports(
    plan: Plan, gangs: Iterable[Gang], disrupted: Mapping[str, str]
) -> dict[Key, NativeGroupReport]:
    """A report on every PodGroup of Kubernetes; ``disrupted``: why gangs are evicted, by key."""
    waiting = {unplaced.gang: unplaced for unplaced in plan.unplaced}
    return {
        key: report
        for gang in gangs
        if is_native(gang)
        for key, report in _reports(gang, waiting.get(gang.key), disrupted.get(gang.key, ""))
    }


def is_native(gang: Gang) -> bool:
    """Whether the gang is a group of Kubernetes' own API."""
    return gang.owner.api_version.startswith(API_GROUP) and gang.owner.kind in KINDS


def native_group_patch(
    report: NativeGroupReport, known: Document, now: datetime
) -> dict[str, Any] | None:
    """The merge patch of the status, or None if the PodGroup says it already."""
    wanted = dict(disruption(known, report.disrupted))
    kind = _condition_type(known.api_version)
    if report.reason and statuses_of(known).get(kind) != "True":
        status = "True" if report.reason == SCHEDULED else "False"
        wanted[kind] = Statement(status, report.reason, report.message)
    return conditions_patch(known, wanted, now)


def _reports(
    gang: Gang, unplaced: Unplaced | None, disrupted: str
) -> Iterator[tuple[Key, NativeGroupReport]]:
    bound = gang.counts(PodState.BOUND)
    for leaf in gang.tree.leaves():
        key = gang.owner.namespace, leaf.name or gang.owner.name
        if satisfied(leaf, bound):
            yield key, NativeGroupReport(SCHEDULED, "")
        elif unplaced is None or unplaced.stage in UNTRIED:
            yield key, NativeGroupReport("", "", disrupted)
        else:
            reason = SCHEDULER_ERROR if unplaced.stage in ERRORS else UNSCHEDULABLE
            yield key, NativeGroupReport(reason, unplaced.message, disrupted)


def _condition_type(api_version: str) -> str:
    return "PodGroupScheduled" if api_version.endswith("v1alpha2") else "PodGroupInitiallyScheduled"


class NativeGroupStatuses:
    """Keeps the statuses of PodGroups in line with the plans; costs nothing where none is."""

    def __init__(self, client: Client, mirror: Mirror, settings: CommitSettings) -> None:
        self._mirror = mirror
        self._disrupted = Disrupted()
        self._writer = report_writer(client, mirror, settings, NATIVE_GROUPS, native_group_patch)

    def update(self, plan: Plan, gangs: Iterable[Gang]) -> None:
        """Note what must be reported from now on."""
        if self._mirror.served(NATIVE_GROUPS) is None:
            return
        native = [gang for gang in gangs if is_native(gang)]
        disrupted = self._disrupted.update(plan, native)
        self._writer.update(lambda: native_group_reports(plan, native, disrupted))

    async def run(self) -> None:
        """Write until cancelled."""
        await self._writer.run()
