"""Conditions of Kubernetes' PodGroups, as kube-scheduler would write them for our pods.

    type              PodGroupScheduled in v1alpha2 (1.36), PodGroupInitiallyScheduled later;
                      CompositePodGroupInitiallyScheduled of a group of groups
    True              reason Scheduled, once minMember is bound; it is never reset
    False             reason Unschedulable: the gang waits for its queue or for capacity;
                      SchedulerError: it is invalid
    absent            the group waits for pods, gates or claims: scheduling was not attempted
    DisruptionTarget  reason PreemptionByScheduler, while an evicted group is below minMember

kube-scheduler ignores groups of pods that name another scheduler.

Source: KEP-4671; k8s.io/api/scheduling/v1alpha2, v1alpha3.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
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
from kai_py.commit.statuses.pod import SCHEDULER_ERROR, UNSCHEDULABLE
from kai_py.commit.statuses.report_writer import report_writer
from kai_py.grouping.gang import Subgroup, is_satisfied
from kai_py.plan.plan import Plan, Stage, Unplaced
from kai_py.snapshot.gangs import Gang, PodState
from kai_py.watch.client import Client
from kai_py.watch.kinds import COMPOSITE_GROUPS, NATIVE_GROUPS
from kai_py.watch.mirror import Mirror
from kai_py.watch.resource import Key

API_GROUP = "scheduling.k8s.io/"
KINDS = ("PodGroup", "CompositePodGroup")
SCHEDULED = "Scheduled"
UNTRIED_STAGES = frozenset(
    {Stage.BELOW_MIN_MEMBER, Stage.SCHEDULING_GATED, Stage.CLAIMS_NOT_READY, Stage.BACKOFF}
)
ERROR_STAGES = frozenset({Stage.INVALID, Stage.SCHEDULER_ERROR})


@dataclass(frozen=True, slots=True)
class NativeGroupReport:
    """A plan's report on a group.

    Empty ``reason``: no condition; ``disrupted``: why the group is evicted, if it is.
    """

    reason: str
    message: str
    disrupted: str = ""


def native_group_reports(
    plan: Plan, gangs: Iterable[Gang], disrupted: Mapping[str, str]
) -> dict[Key, NativeGroupReport]:
    """A report for every PodGroup of Kubernetes; ``disrupted``: eviction reasons by gang key."""
    return _reports(plan, gangs, disrupted, lambda gang: gang.tree.leaves())


def composite_group_reports(
    plan: Plan, gangs: Iterable[Gang], disrupted: Mapping[str, str]
) -> dict[Key, NativeGroupReport]:
    """A report for every CompositePodGroup of Kubernetes."""
    return _reports(plan, gangs, disrupted, lambda gang: _composite_subgroups(gang.tree))


def is_native(gang: Gang) -> bool:
    """Whether the gang is a group of Kubernetes' own API."""
    return gang.owner.api_version.startswith(API_GROUP) and gang.owner.kind in KINDS


def native_group_patch(
    report: NativeGroupReport, known: Unstructured, now: datetime
) -> dict[str, Any] | None:
    """The merge patch of the status, or None if the group is up to date."""
    desired = dict(disruption_condition(known, report.disrupted))
    condition_type = _condition_type(known)
    # "Initially scheduled" is final: once True it is never written again.
    if report.reason and condition_statuses(known).get(condition_type) != "True":
        status = "True" if report.reason == SCHEDULED else "False"
        desired[condition_type] = DesiredCondition(status, report.reason, report.message)
    return conditions_patch(known, desired, now)


def _reports(
    plan: Plan,
    gangs: Iterable[Gang],
    disrupted: Mapping[str, str],
    groups: Callable[[Gang], Iterable[Subgroup]],
) -> dict[Key, NativeGroupReport]:
    waiting = {unplaced.gang: unplaced for unplaced in plan.unplaced}
    return {
        key: report
        for gang in gangs
        if is_native(gang)
        for key, report in _reports_of(
            gang, groups(gang), waiting.get(gang.key), disrupted.get(gang.key, "")
        )
    }


def _composite_subgroups(tree: Subgroup) -> Iterator[Subgroup]:
    """Subgroups that consist of other subgroups."""
    if tree.children:
        yield tree
    for child in tree.children:
        yield from _composite_subgroups(child)


def _reports_of(
    gang: Gang, groups: Iterable[Subgroup], unplaced: Unplaced | None, disrupted: str
) -> Iterator[tuple[Key, NativeGroupReport]]:
    bound = gang.counts(PodState.BOUND)
    for group in groups:
        key = gang.owner.namespace, group.name or gang.owner.name
        if is_satisfied(group, bound):
            yield key, NativeGroupReport(SCHEDULED, "")
        elif unplaced is None or unplaced.stage in UNTRIED_STAGES:
            yield key, NativeGroupReport("", "", disrupted)
        else:
            reason = SCHEDULER_ERROR if unplaced.stage in ERROR_STAGES else UNSCHEDULABLE
            yield key, NativeGroupReport(reason, unplaced.message, disrupted)


def _condition_type(known: Unstructured) -> str:
    if known.api_version.endswith("v1alpha2"):
        return "PodGroupScheduled"
    return f"{known.kind}InitiallyScheduled"


class NativeGroupStatusWriter:
    """Keeps the statuses of groups in line with the plans; costs nothing where none is served."""

    def __init__(self, client: Client, mirror: Mirror, settings: CommitSettings) -> None:
        self._mirror = mirror
        self._disruptions = DisruptionReasons()
        self._groups = report_writer(client, mirror, settings, NATIVE_GROUPS, native_group_patch)
        self._composites = report_writer(
            client, mirror, settings, COMPOSITE_GROUPS, native_group_patch
        )

    def update(self, plan: Plan, gangs: Iterable[Gang]) -> None:
        """Record what is to be reported from now on."""
        if self._mirror.served(NATIVE_GROUPS) is None:
            return
        native = [gang for gang in gangs if is_native(gang)]
        disrupted = self._disruptions.update(plan, native)
        self._groups.update(lambda: native_group_reports(plan, native, disrupted))
        self._composites.update(lambda: composite_group_reports(plan, native, disrupted))

    async def run(self) -> None:
        """Write until cancelled."""
        await asyncio.gather(self._groups.run(), self._composites.run())
