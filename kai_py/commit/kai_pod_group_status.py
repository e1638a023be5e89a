"""What KAI's controllers would write into a PodGroup's status, from our plans.

``resourcesStatus`` is what the gang holds and asks for. Of ``schedulingConditions`` the one of our
node pool says why the gang waits, in KAI's words for the reason; conditions of other pools stay.
Gangs that wait for their own pods, gates or claims, or for room that is being freed, have none, and
neither has a gang with nothing to place.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from kai_py.api.records.kai import (
    POD_GROUP_API_VERSION,
    KaiPodGroup,
    KaiReason,
    KaiSchedulingCondition,
)
from kai_py.api.timestamp import timestamp
from kai_py.commit.kai_amounts import resource_list
from kai_py.commit.kai_messages import kai_message
from kai_py.commit.preconditions import preconditions
from kai_py.commit.queue_status import merge_patch
from kai_py.plan.plan import SHORT_OF_ROOM, Plan, QueueShare, Stage, Unplaced
from kai_py.snapshot.accounting import total
from kai_py.snapshot.gangs import Gang
from kai_py.watch.resource import Key

CONDITION_TYPE = "UnschedulableOnNodePool"
REASONS: Mapping[Stage, str] = {
    Stage.QUEUE: "QueueDoesNotExist",
    Stage.QUEUE_MAX: "OverLimit",
    Stage.NON_PREEMPTIBLE: "NonPreemptibleOverQuota",
    **dict.fromkeys(
        (Stage.INVALID, Stage.PROVISIONING, Stage.FUTILE, *sorted(SHORT_OF_ROOM)),
        "PodSchedulingErrors",
    ),
}
DEFAULT_POOL = "default"
QUOTA_REASONS = ("OverLimit", "NonPreemptibleOverQuota")


@dataclass(frozen=True, slots=True)
class KaiPodGroupReport:
    """What a plan says of a gang; ``settled``: its condition, if any, stays as it is."""

    pool: str
    uid: str
    resources: dict[str, dict[str, str]]
    verdict: KaiReason | None
    settled: bool


def kai_pod_group_reports(
    plan: Plan, gangs: Iterable[Gang], pool: str
) -> dict[Key, KaiPodGroupReport]:
    """A report on every gang that a PodGroup of KAI makes."""
    waiting = {unplaced.gang: unplaced for unplaced in plan.unplaced}
    shares = {share.queue: share for share in plan.queues}
    return {
        (gang.owner.namespace, gang.owner.name): KaiPodGroupReport(
            pool=pool or DEFAULT_POOL,
            uid=gang.owner.uid,
            resources=_resources(gang),
            verdict=_verdict(waiting.get(gang.key), gang, shares),
            settled=gang.attempted,
        )
        for gang in gangs
        if gang.owner.api_version == POD_GROUP_API_VERSION
    }


def kai_pod_group_patch(
    report: KaiPodGroupReport, known: KaiPodGroup, now: datetime
) -> dict[str, Any] | None:
    """The merge patch of the status, or None if the PodGroup says all of it."""
    if known.metadata.uid != report.uid:
        return None
    wanted: dict[str, Any] = {}
    resources = merge_patch(msgspec.to_builtins(known.status.resources_status), report.resources)
    if resources:
        wanted["resourcesStatus"] = resources
    conditions = None if report.settled else _conditions(report, known, now)
    if conditions is not None:
        wanted["schedulingConditions"] = conditions
    if not wanted:
        return None
    return {"metadata": preconditions(known), "status": wanted}


def _resources(gang: Gang) -> dict[str, dict[str, str]]:
    return {
        "allocated": resource_list(gang.allocated),
        "allocatedNonPreemptible": resource_list(gang.fixed),
        "requested": resource_list(gang.requested),
    }


def _verdict(
    unplaced: Unplaced | None, gang: Gang, shares: Mapping[str, QueueShare]
) -> KaiReason | None:
    if unplaced is None or unplaced.stage not in REASONS:
        return None
    reason, share = REASONS[unplaced.stage], shares.get(gang.queue)
    details = None
    if reason in QUOTA_REASONS and share is not None:
        details = {"queueDetails": _queue_details(share, gang)}
    return KaiReason(reason=reason, message=kai_message(unplaced), details=details)


def _queue_details(share: QueueShare, gang: Gang) -> dict[str, Any]:
    fixed = total(m.charge for m in (*gang.bound, *gang.pending) if gang.is_fixed(m))
    return {
        "name": share.queue,
        "queueRequestedResources": resource_list(share.requested),
        "queueDeservedResources": resource_list(share.deserved),
        "queueAllocatedResources": resource_list(share.allocated),
        "queueAllocatedNonPreemptibleResources": resource_list(share.non_preemptible),
        "queueResourceLimits": resource_list(share.maximum),
        "podGroupRequestedResources": resource_list(gang.requested),
        "podGroupRequestedNonPreemptibleResources": resource_list(fixed),
    }


def _conditions(
    report: KaiPodGroupReport, known: KaiPodGroup, now: datetime
) -> list[dict[str, Any]] | None:
    """The whole list, or None if it stands as it is."""
    listed = known.status.scheduling_conditions
    ours = next((each for each in listed if each.node_pool == report.pool), None)
    others = [msgspec.to_builtins(each) for each in listed if each.node_pool != report.pool]
    if report.verdict is None:
        return others if ours is not None else None
    if ours is not None and ours.reasons == (report.verdict,):
        return None
    return [*others, _condition(report.verdict, report.pool, ours, now)]


def _condition(
    verdict: KaiReason, pool: str, before: KaiSchedulingCondition | None, now: datetime
) -> dict[str, Any]:
    transition = before.transition_id if before is not None else ""
    reason = {"reason": verdict.reason, "message": verdict.message}
    return {
        "type": CONDITION_TYPE,
        "nodePool": pool,
        "status": "True",
        "reason": "Unschedulable",
        "message": verdict.message,
        "reasons": [reason if verdict.details is None else {**reason, "details": verdict.details}],
        "transitionID": str(int(transition) + 1 if transition.isdecimal() else 1),
        "lastTransitionTime": timestamp(now),
    }
