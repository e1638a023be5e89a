"""Conditions of gangs on the group objects of Grove and of Kubernetes.

Only our own condition types are written. The transition time of a condition changes with its
status.

Grove's PodGangs have conditions that Grove declares and leaves to the scheduler:

    Scheduled         True, reason PodGangScheduled, once minMember is bound; it is never reset
    DisruptionTarget  reason PreemptionByScheduler, while a gang that we evict is below minMember

They are off unless configured: Grove plans to write Scheduled itself.

Kubernetes' PodGroups have those that kube-scheduler, which ignores groups of pods that name another
scheduler, would write for our pods:

    type              PodGroupScheduled in v1alpha2 (1.36), PodGroupInitiallyScheduled later;
                      CompositePodGroupInitiallyScheduled of a group of groups
    True              reason Scheduled, once minMember is bound; it is never reset
    False             reason Unschedulable: the gang waits for its queue or for capacity;
                      SchedulerError: it is invalid
    absent            the group waits for pods, gates or claims: scheduling was not attempted
    DisruptionTarget  reason PreemptionByScheduler, while an evicted group is below minMember

Sources: Grove, scheduler.grove.io/v1alpha1, PodGangStatus; KEP-4671, k8s.io/api/scheduling/v1alpha2
and v1alpha3.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from kai_py.api.records.unstructured import Unstructured
from kai_py.api.texts import bounded_message
from kai_py.api.times import format_time
from kai_py.commit.api_access import preconditions
from kai_py.commit.eviction import DISRUPTION_TARGET, PREEMPTION_BY_SCHEDULER
from kai_py.commit.settings import CommitSettings
from kai_py.commit.statuses.pod import SCHEDULER_ERROR, UNSCHEDULABLE
from kai_py.commit.statuses.report_writer import report_writer
from kai_py.grouping.gang import Subgroup, is_satisfied
from kai_py.plan.plan import Plan, Stage, Unplaced
from kai_py.snapshot.gangs import Gang, PodState
from kai_py.watch.client import Client
from kai_py.watch.kinds import COMPOSITE_GROUPS, NATIVE_GROUPS, POD_GANGS
from kai_py.watch.mirror import Mirror
from kai_py.watch.resource import Key

GROVE_API_VERSION = "scheduler.grove.io/v1alpha1"
NATIVE_API_GROUP = "scheduling.k8s.io/"
NATIVE_KINDS = ("PodGroup", "CompositePodGroup")
SCHEDULED = "Scheduled"
"""A condition type of PodGangs, and a reason on PodGroups."""
POD_GANG_SCHEDULED = "PodGangScheduled"
UNTRIED_STAGES = frozenset(
    {Stage.BELOW_MIN_MEMBER, Stage.SCHEDULING_GATED, Stage.CLAIMS_NOT_READY, Stage.BACKOFF}
)
ERROR_STAGES = frozenset({Stage.INVALID, Stage.SCHEDULER_ERROR})


class DesiredCondition(Struct, frozen=True):
    """A condition without its transition time."""

    status: str
    reason: str
    message: str = ""


DesiredConditions = Mapping[str, DesiredCondition | None]
"""Desired conditions by type; None removes the condition."""


def condition_statuses(known: Unstructured) -> dict[str, str]:
    """Status by condition type, as on the object."""
    return {each["type"]: each.get("status", "") for each in known.conditions()}


def conditions_patch(
    known: Unstructured, desired: DesiredConditions, now: datetime
) -> dict[str, Any] | None:
    """The merge patch of the status, or None if the object is up to date."""
    current = {each["type"]: each for each in known.conditions()}
    conditions = dict(current)
    for kind, condition in desired.items():
        if condition is None:
            conditions.pop(kind, None)
        else:
            conditions[kind] = _condition(kind, condition, current.get(kind), now)
    if conditions == current:
        return None
    return {"metadata": preconditions(known), "status": {"conditions": list(conditions.values())}}


def disruption_condition(known: Unstructured, reason: str) -> DesiredConditions:
    """DisruptionTarget while a gang is evicted; afterwards it is removed if we wrote it."""
    if reason:
        return {DISRUPTION_TARGET: DesiredCondition("True", PREEMPTION_BY_SCHEDULER, reason)}
    is_ours = any(
        each["type"] == DISRUPTION_TARGET and each.get("reason") == PREEMPTION_BY_SCHEDULER
        for each in known.conditions()
    )
    return {DISRUPTION_TARGET: None} if is_ours else {}


class DisruptionReasons:
    """Eviction reasons by gang, kept until the gang runs again or is deleted."""

    def __init__(self) -> None:
        """Start empty."""
        self._reasons: dict[str, str] = {}

    def update(self, plan: Plan, gangs: Iterable[Gang]) -> Mapping[str, str]:
        """Apply a plan for ``gangs``; returns all reasons by gang key."""
        evicted = {each.gang: each.reason for each in plan.evictions}
        kept = {gang.key for gang in gangs if not gang.is_satisfied or gang.key in evicted}
        reasons = self._reasons | evicted
        self._reasons = {key: reasons[key] for key in reasons if key in kept}
        return self._reasons


def _condition(
    kind: str, desired: DesiredCondition, current: Mapping[str, Any] | None, now: datetime
) -> dict[str, Any]:
    content = {"status": desired.status, "reason": desired.reason, "message": desired.message}
    if current is None or current.get("status") != desired.status:
        timestamp = format_time(now)
        return {"type": kind, "lastTransitionTime": timestamp, **content}
    return {**current, **content}


class PodGangReport(Struct, frozen=True):
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
        desired[SCHEDULED] = DesiredCondition("True", POD_GANG_SCHEDULED)
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
        pod_gangs = [gang for gang in gangs if gang.owner.api_version == GROVE_API_VERSION]
        disrupted = self._disruptions.update(plan, pod_gangs)
        self._writer.update(lambda: pod_gang_reports(pod_gangs, disrupted))

    async def run(self) -> None:
        """Write until cancelled."""
        await self._writer.run()


class NativeGroupReport(Struct, frozen=True):
    """A plan's report on a group.

    ``reason``: of the condition, empty for none; ``disrupted``: why the group is evicted, if it is.
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
    return gang.owner.api_version.startswith(NATIVE_API_GROUP) and gang.owner.kind in NATIVE_KINDS


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
            yield key, NativeGroupReport(reason, bounded_message(unplaced.message), disrupted)


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
