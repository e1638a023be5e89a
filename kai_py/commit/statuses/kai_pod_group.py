"""Status and annotations of KAI's PodGroups, as KAI's controllers and scheduler would write them.

``resourcesStatus`` holds what is allocated to the gang and what it requests. Of
``schedulingConditions`` the one of our node pool says why the gang is pending, with KAI's reasons;
conditions of other pools stay. It is written when its reason or message changes; the amounts of the
queue in its details are those of that time. Gangs that wait for their own pods, gates or claims, or
for capacity that is being released, have none, and neither has a gang with nothing to place. A
PodGroup whose pods have ended or are gone is no gang; its status is emptied.

Two annotations keep times across restarts, in whole seconds, as in KAI:

    kai.scheduler/stale-podgroup-timestamp   since when the gang has run below minMember; removed
                                             once minMember runs again, or no pod of it runs
    kai.scheduler/last-eviction-timestamp    when a pod of it was last chosen as a victim, from
                                             which the gang's preemption delay counts
"""

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from kai_py.api.numbers import parse_int64
from kai_py.api.records.kai import (
    POD_GROUP_API_VERSION,
    KaiPodGroup,
    KaiReason,
    KaiSchedulingCondition,
)
from kai_py.api.texts import bounded_message
from kai_py.api.times import format_time
from kai_py.commit.api_access import preconditions
from kai_py.commit.statuses.kai_messages import kai_message
from kai_py.commit.statuses.queue import kai_resource_list, merge_patch
from kai_py.dialects.kai.keys import LAST_EVICTION, STALE_SINCE, parse_time
from kai_py.plan.observations import QueueShare
from kai_py.plan.plan import SHORT_OF_CAPACITY, Plan, Stage, Unplaced
from kai_py.snapshot.accounting import total
from kai_py.snapshot.gangs import Gang
from kai_py.watch.resource import Key

CONDITION_TYPE = "UnschedulableOnNodePool"
REASONS: Mapping[Stage, str] = {
    Stage.QUEUE_NOT_FOUND: "QueueDoesNotExist",
    Stage.QUEUE_MAX: "OverLimit",
    Stage.NON_PREEMPTIBLE: "NonPreemptibleOverQuota",
    **dict.fromkeys(
        (Stage.INVALID, Stage.PROVISIONING, Stage.SCALE_UP_INEFFECTIVE, *sorted(SHORT_OF_CAPACITY)),
        "PodSchedulingErrors",
    ),
}
DEFAULT_NODE_POOL = "default"
QUOTA_REASONS = ("OverLimit", "NonPreemptibleOverQuota")


class KaiPodGroupReport(Struct, frozen=True):
    """A plan's report on a gang; ``keep_condition``: leave its condition, if any, as it is.

    ``has_pods``: whether the PodGroup is a gang of ours, which it is while it has pods.
    """

    node_pool: str
    uid: str
    resources: dict[str, dict[str, str]]
    reason: KaiReason | None
    keep_condition: bool
    has_pods: bool = True


def kai_pod_group_reports(
    plan: Plan, gangs: Iterable[Gang], node_pool: str
) -> dict[Key, KaiPodGroupReport]:
    """A report for every gang that is a PodGroup of KAI."""
    waiting = {unplaced.gang: unplaced for unplaced in plan.unplaced}
    shares = {share.queue: share for share in plan.queues}
    return {
        (gang.owner.namespace, gang.owner.name): KaiPodGroupReport(
            node_pool=node_pool or DEFAULT_NODE_POOL,
            uid=gang.owner.uid,
            resources=_resources(gang),
            reason=_unschedulable_reason(waiting.get(gang.key), gang, shares),
            keep_condition=gang.settings.attempts_exhausted,
        )
        for gang in gangs
        if gang.owner.api_version == POD_GROUP_API_VERSION
    }


def empty_pod_group_report(uid: str, node_pool: str) -> KaiPodGroupReport:
    """The report on a PodGroup without pods: it has nothing, and it waits for nothing."""
    return KaiPodGroupReport(
        node_pool=node_pool or DEFAULT_NODE_POOL,
        uid=uid,
        resources={"allocated": {}, "allocatedNonPreemptible": {}, "requested": {}},
        reason=None,
        keep_condition=False,
        has_pods=False,
    )


def kai_pod_group_patch(
    report: KaiPodGroupReport, known: KaiPodGroup, now: datetime
) -> dict[str, Any] | None:
    """The merge patch of the status, or None if the PodGroup is up to date."""
    if known.metadata.uid != report.uid:
        return None
    status: dict[str, Any] = {}
    resources = merge_patch(msgspec.to_builtins(known.status.resources_status), report.resources)
    if resources:
        status["resourcesStatus"] = resources
    conditions = None if report.keep_condition else _conditions(report, known, now)
    if conditions is not None:
        status["schedulingConditions"] = conditions
    if not status:
        return None
    return {"metadata": preconditions(known), "status": status}


def _resources(gang: Gang) -> dict[str, dict[str, str]]:
    return {
        "allocated": kai_resource_list(gang.allocated),
        "allocatedNonPreemptible": kai_resource_list(gang.non_preemptible),
        "requested": kai_resource_list(gang.requested),
    }


def _unschedulable_reason(
    unplaced: Unplaced | None, gang: Gang, shares: Mapping[str, QueueShare]
) -> KaiReason | None:
    if unplaced is None or unplaced.stage not in REASONS:
        return None
    reason, share = REASONS[unplaced.stage], shares.get(gang.queue)
    details = None
    if reason in QUOTA_REASONS and share is not None:
        details = {"queueDetails": _queue_details(share, gang)}
    message = bounded_message(kai_message(unplaced))
    return KaiReason(reason=reason, message=message, details=details)


def _queue_details(share: QueueShare, gang: Gang) -> dict[str, Any]:
    non_preemptible = total(
        m.charge for m in (*gang.bound, *gang.pending) if gang.is_non_preemptible(m)
    )
    return {
        "name": share.queue,
        "queueRequestedResources": kai_resource_list(share.requested),
        "queueDeservedResources": kai_resource_list(share.deserved),
        "queueAllocatedResources": kai_resource_list(share.allocated),
        "queueAllocatedNonPreemptibleResources": kai_resource_list(share.non_preemptible),
        "queueResourceLimits": kai_resource_list(share.maximum),
        "podGroupRequestedResources": kai_resource_list(gang.requested),
        "podGroupRequestedNonPreemptibleResources": kai_resource_list(non_preemptible),
    }


def _conditions(
    report: KaiPodGroupReport, known: KaiPodGroup, now: datetime
) -> list[dict[str, Any]] | None:
    """The whole list of conditions, or None if it is up to date."""
    listed = known.status.scheduling_conditions
    ours = next((each for each in listed if each.node_pool == report.node_pool), None)
    others = [msgspec.to_builtins(each) for each in listed if each.node_pool != report.node_pool]
    if report.reason is None:
        return others if ours is not None else None
    # Not the details: what the queue has changes with each of its pods, for all that wait in it.
    said = () if ours is None else tuple((each.reason, each.message) for each in ours.reasons)
    if said == ((report.reason.reason, report.reason.message),):
        return None
    return [*others, _condition(report.reason, report.node_pool, ours, now)]


def _condition(
    unschedulable: KaiReason, node_pool: str, before: KaiSchedulingCondition | None, now: datetime
) -> dict[str, Any]:
    transition = before.transition_id if before is not None else "0"
    # Any text may stand there: the status of a PodGroup can be written by others.
    number = max(parse_int64(transition) or 0, 0) % MAX_TRANSITIONS
    reason = {"reason": unschedulable.reason, "message": unschedulable.message}
    return {
        "type": CONDITION_TYPE,
        "nodePool": node_pool,
        "status": "True",
        "reason": "Unschedulable",
        "message": unschedulable.message,
        "reasons": [
            reason
            if unschedulable.details is None
            else {**reason, "details": unschedulable.details}
        ],
        # For KAI's controllers the condition with the highest transitionID is the newest.
        "transitionID": str(number + 1),
        "lastTransitionTime": format_time(now),
    }


MAX_TRANSITIONS = 2**62
MAX_KEPT = 4096


class KaiPodGroupAnnotations(Struct, frozen=True):
    """Annotations of the PodGroup with this uid; ``stale_since`` as in ``Gang``.

    ``last_evicted``: when a pod of it was last chosen as a victim, seconds since the epoch; None if
    never by this process. ``has_pods``: as in ``KaiPodGroupReport``.
    """

    uid: str
    stale_since: float | None
    last_evicted: float | None = None
    has_pods: bool = True


class LastEvictions:
    """The time of each PodGroup's last eviction, for the last ``MAX_KEPT`` gangs."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._evicting: frozenset[str] = frozenset()

    def update(self, plan: Plan, now: float) -> Mapping[str, float]:
        """All times by gang key, including ``plan``; an eviction planned before keeps its time."""
        evicting = frozenset(
            each.gang for each in plan.evictions if each.owner.api_version == POD_GROUP_API_VERSION
        )
        for gang in sorted(evicting - self._evicting):
            # Re-inserted at the end: dicts keep insertion order, and the oldest entries are dropped
            # below.
            self._times.pop(gang, None)
            self._times[gang] = now
        self._evicting = evicting
        for gang in tuple(self._times)[:-MAX_KEPT]:
            del self._times[gang]
        return self._times


def kai_pod_group_annotations(
    gangs: Iterable[Gang], last_evicted: Mapping[str, float]
) -> dict[Key, KaiPodGroupAnnotations]:
    """The annotations of every gang that is a PodGroup of KAI; ``last_evicted`` by gang key."""
    return {
        (gang.owner.namespace, gang.owner.name): KaiPodGroupAnnotations(
            gang.owner.uid, gang.stale_since, last_evicted.get(gang.key)
        )
        for gang in gangs
        if gang.owner.api_version == POD_GROUP_API_VERSION
    }


def kai_pod_group_annotations_patch(
    annotations: KaiPodGroupAnnotations, known: KaiPodGroup, _now: datetime
) -> dict[str, Any] | None:
    """The merge patch of the PodGroup, or None if it is up to date."""
    current = known.metadata.annotations
    desired = {
        STALE_SINCE: None
        if annotations.stale_since is None
        else _timestamp_up(annotations.stale_since)
    }
    if (
        annotations.last_evicted is not None
        and (parse_time(current.get(LAST_EVICTION, "")) or 0.0) < annotations.last_evicted
    ):
        desired[LAST_EVICTION] = _timestamp_up(annotations.last_evicted)
    changed = {key: text for key, text in desired.items() if current.get(key) != text}
    if known.metadata.uid != annotations.uid or not changed:
        return None
    return {"metadata": {**preconditions(known), "annotations": changed}}


def _timestamp_up(seconds: float) -> str:
    """Rounded up to seconds, so that no pod is evicted before the grace period has passed."""
    return format_time(math.ceil(seconds))
