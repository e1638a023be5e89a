"""What does a pending pod say of itself, and when is that written?

The condition PodScheduled=False carries the gang's one sentence; its reason decides what
autoscalers do. ``Unschedulable`` is their call for nodes, so only stages that more nodes could
help use it, for all pods of the gang in one pass; every other stage is its own reason, which they
ignore (they compare the text). Pods with scheduling gates keep the API server's own reason.
Pods of half a gang get no condition: nobody has tried to place them. One that they had from us
before, above all a call for nodes, is kept true.
``nominatedNodeName`` is set while a pod waits for room that others are leaving.

Written on transitions only; a change of the sentence alone is written at most every few seconds
per pod, so that counts that move do not become API traffic.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kai_py.api.records.core import Condition, Pod
from kai_py.api.references import PodRef
from kai_py.api.timestamp import timestamp
from kai_py.plan.plan import SHORT_OF_ROOM, Plan, Stage, Unplaced

POD_SCHEDULED = "PodScheduled"
UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"
INCOMPLETE = frozenset({Stage.MEMBERS, Stage.GATED})
"""Stages of half a gang: pods are missing, or others have gated them."""


@dataclass(frozen=True, slots=True)
class PendingStatus:
    """What a pending pod's status must say; an empty ``nominated`` clears the field.

    An empty ``reason`` leaves the condition alone; ``incomplete`` changes one that is ours and
    makes none. ``lacks_devices``: its claims are what cannot be satisfied.
    """

    pod: PodRef
    reason: str
    message: str
    nominated: str = ""
    lacks_devices: bool = False
    incomplete: bool = False


ABOVE_FLOOR = "AboveFloor"
"""Reason of pods that their gang starts without, where those do not call for nodes."""


def condition_reason(stage: Stage) -> str:
    """The reason of PodScheduled=False for a stage."""
    return UNSCHEDULABLE if stage in SHORT_OF_ROOM else stage.value


def pending_statuses(plan: Plan, *, surplus_calls: bool = True) -> tuple[PendingStatus, ...]:
    """What the plan says of every pod that stays pending, in plan order.

    ``surplus_calls``: whether pods above the floor of their gang call for nodes, too.
    """
    nominated = {nomination.pod.uid: nomination.node for nomination in plan.nominations}
    silent = frozenset[PodRef]()
    if not surplus_calls:
        silent = frozenset(pod for unplaced in plan.unplaced for pod in unplaced.surplus)
    return tuple(
        PendingStatus(
            pod=pod,
            reason=_reason(unplaced, is_silent=pod in silent),
            message=unplaced.message,
            nominated=nominated.get(pod.uid, ""),
            lacks_devices=unplaced.stage is Stage.DEVICES,
            incomplete=unplaced.stage in INCOMPLETE,
        )
        for unplaced in plan.unplaced
        for pod in unplaced.pods
    )


def _reason(unplaced: Unplaced, *, is_silent: bool) -> str:
    if not unplaced.marked:
        return ""
    reason = condition_reason(unplaced.stage)
    return ABOVE_FLOOR if is_silent and reason == UNSCHEDULABLE else reason


def differs(wanted: PendingStatus, pod: Pod) -> bool:
    """Whether the pod, as known, says anything else than what is wanted."""
    if pod.status.nominated_node_name != wanted.nominated:
        return True
    return _has_condition(wanted, pod) and _said(pod) != (wanted.reason, wanted.message)


def is_kept_quiet(wanted: PendingStatus, pod: Pod) -> bool:
    """Whether the pod waits for a reason that it does not say in its condition."""
    return wanted.incomplete and bool(wanted.reason) and not pod.spec.scheduling_gates


def differs_in_words_only(wanted: PendingStatus, pod: Pod) -> bool:
    """Whether nothing but the sentence has changed."""
    said = _said(pod)
    return (
        said is not None
        and said[0] == wanted.reason
        and pod.status.nominated_node_name == wanted.nominated
    )


def status_patch(wanted: PendingStatus, pod: Pod, now: datetime) -> dict[str, Any]:
    """The strategic merge patch of pods/status that brings the pod to ``wanted``."""
    status: dict[str, Any] = {}
    if pod.status.nominated_node_name != wanted.nominated:
        status["nominatedNodeName"] = wanted.nominated or None
    if _has_condition(wanted, pod):
        condition = {
            "type": POD_SCHEDULED,
            "status": "False",
            "reason": wanted.reason,
            "message": wanted.message,
        }
        if _said(pod) is None:
            condition["lastTransitionTime"] = timestamp(now)
        status["conditions"] = [condition]
    return {"metadata": {"uid": wanted.pod.uid}, "status": status}


def _has_condition(wanted: PendingStatus, pod: Pod) -> bool:
    if not wanted.reason or pod.spec.scheduling_gates:
        return False
    if not wanted.incomplete:
        return True
    said = _said(pod)
    return said is not None and said[0] != Stage.GATED


def _said(pod: Pod) -> tuple[str, str] | None:
    condition = _condition(pod.status.conditions)
    if condition is None or condition.status != "False":
        return None
    return condition.reason, condition.message


def _condition(conditions: Iterable[Condition]) -> Condition | None:
    return next((c for c in conditions if c.type == POD_SCHEDULED), None)
