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

Writes what pending pods say, behind the cycle's back and never ahead of bindings.

Only the newest wish per pod is kept: a pod whose reason changes twice while the API is slow is
written once. The writer has its own few lanes, of which one at a time writes to a pod, so that the
newest wish is also the last to arrive. What failed, or must wait because the pod was written to a
moment ago, is left to another cycle, which is asked for: it sees that the pod still says something
else.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kai_py.api.records.core import Condition, Pod
from kai_py.api.references import PodRef
from kai_py.api.timestamp import format_time
from kai_py.commit.api_access import ApiAccess, is_gone
from kai_py.commit.retry import TRANSIENT
from kai_py.plan.plan import SHORT_OF_CAPACITY, Plan, Stage, Unplaced
from kai_py.watch.client import PatchType
from kai_py.watch.errors import ApiError

POD_SCHEDULED = "PodScheduled"
UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"
INCOMPLETE_STAGES = frozenset({Stage.MEMBERS_MISSING, Stage.SCHEDULING_GATED})
"""Stages of half a gang: pods are missing, or others have gated them."""


@dataclass(frozen=True, slots=True)
class PendingPodStatus:
    """What a pending pod's status must say; an empty ``nominated`` clears the field.

    An empty ``reason`` leaves the condition alone; ``incomplete`` changes one that is ours and
    makes none. ``lacks_devices``: its claims are what cannot be satisfied.
    """

    pod: PodRef
    reason: str
    message: str
    nominated_node: str = ""
    lacks_devices: bool = False
    incomplete: bool = False


ELASTIC = "AboveFloor"
"""Reason of pods that their gang starts without, where those do not call for nodes."""


def condition_reason(stage: Stage) -> str:
    """The reason of PodScheduled=False for a stage."""
    return UNSCHEDULABLE if stage in SHORT_OF_CAPACITY else stage.value


def pending_statuses(
    plan: Plan, *, elastic_calls_for_nodes: bool = True
) -> tuple[PendingPodStatus, ...]:
    """What the plan says of every pod that stays pending, in plan order.

    ``surplus_calls``: whether pods above the floor of their gang call for nodes, too.
    """
    nominated = {nomination.pod.uid: nomination.node for nomination in plan.nominations}
    silent = frozenset[PodRef]()
    if not elastic_calls_for_nodes:
        silent = frozenset(pod for unplaced in plan.unplaced for pod in unplaced.elastic)
    return tuple(
        PendingPodStatus(
            pod=pod,
            reason=_reason(unplaced, is_silent=pod in silent),
            message=unplaced.message,
            nominated_node=nominated.get(pod.uid, ""),
            lacks_devices=unplaced.stage is Stage.DEVICES,
            incomplete=unplaced.stage in INCOMPLETE_STAGES,
        )
        for unplaced in plan.unplaced
        for pod in unplaced.pods
    )


def _reason(unplaced: Unplaced, *, is_silent: bool) -> str:
    if not unplaced.marked:
        return ""
    reason = condition_reason(unplaced.stage)
    return ELASTIC if is_silent and reason == UNSCHEDULABLE else reason


def differs(desired: PendingPodStatus, pod: Pod) -> bool:
    """Whether the pod, as known, says anything else than what is wanted."""
    if pod.status.nominated_node_name != desired.nominated_node:
        return True
    return _writes_condition(desired, pod) and _written_condition(pod) != (
        desired.reason,
        desired.message,
    )


def is_unwritten(desired: PendingPodStatus, pod: Pod) -> bool:
    """Whether the pod waits for a reason that it does not say in its condition."""
    return desired.incomplete and bool(desired.reason) and not pod.spec.scheduling_gates


def differs_in_message_only(desired: PendingPodStatus, pod: Pod) -> bool:
    """Whether nothing but the sentence has changed."""
    said = _written_condition(pod)
    return (
        said is not None
        and said[0] == desired.reason
        and pod.status.nominated_node_name == desired.nominated_node
    )


def pod_status_patch(desired: PendingPodStatus, pod: Pod, now: datetime) -> dict[str, Any]:
    """The strategic merge patch of pods/status that brings the pod to ``wanted``."""
    status: dict[str, Any] = {}
    if pod.status.nominated_node_name != desired.nominated_node:
        status["nominatedNodeName"] = desired.nominated_node or None
    if _writes_condition(desired, pod):
        condition = {
            "type": POD_SCHEDULED,
            "status": "False",
            "reason": desired.reason,
            "message": desired.message,
        }
        if _written_condition(pod) is None:
            condition["lastTransitionTime"] = format_time(now)
        status["conditions"] = [condition]
    return {"metadata": {"uid": desired.pod.uid}, "status": status}


def _writes_condition(desired: PendingPodStatus, pod: Pod) -> bool:
    if not desired.reason or pod.spec.scheduling_gates:
        return False
    if not desired.incomplete:
        return True
    said = _written_condition(pod)
    return said is not None and said[0] != Stage.SCHEDULING_GATED


def _written_condition(pod: Pod) -> tuple[str, str] | None:
    condition = _scheduled_condition(pod.status.conditions)
    if condition is None or condition.status != "False":
        return None
    return condition.reason, condition.message


def _scheduled_condition(conditions: Iterable[Condition]) -> Condition | None:
    return next((c for c in conditions if c.type == POD_SCHEDULED), None)


log = logging.getLogger(__name__)
PodLookup = Callable[[PodRef], Pod | None]
"""A pod as the mirror has it; None when it is gone or another incarnation."""


class PodStatusWriter:
    """Brings the statuses of pending pods in line with the last plan."""

    def __init__(
        self,
        access: ApiAccess,
        find_pod: PodLookup,
        *,
        message_interval: float,
        on_transition: Callable[[PendingPodStatus], None],
        wake: Callable[[float], None],
    ) -> None:
        """``wake`` asks for a cycle after so many seconds."""
        self._access = access
        self._wake = wake
        self._wakes_at = 0.0
        self._find_pod = find_pod
        self._message_interval = message_interval
        self._on_transition = on_transition
        self._desired: dict[str, PendingPodStatus] = {}
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._written: dict[str, tuple[PendingPodStatus, float]] = {}
        self._in_flight: set[str] = set()
        self._refused: dict[str, float] = {}
        self._now = 0.0
        self._warned = -math.inf

    def update(self, statuses: tuple[PendingPodStatus, ...], now: float) -> None:
        """Note what pods must say from now on; ``now`` in seconds of a steady clock.

        A pod that is no longer named is no longer written to.
        """
        self._now = now
        named = {wanted.pod.uid for wanted in statuses}
        self._refused = {uid: at for uid, at in self._refused.items() if uid in named}
        self._written = {uid: last for uid, last in self._written.items() if uid in named}
        for uid in [uid for uid in self._desired if uid not in named]:
            del self._desired[uid]
        waits = [0.0]
        for wanted in statuses:
            pod = self._find_pod(wanted.pod)
            if pod is None or pod.spec.node_name:
                continue
            if not differs(wanted, pod):
                if is_unwritten(wanted, pod):
                    waits.append(self._report_unwritten(wanted, now))
                continue
            waits.append(wait := self._write_delay(wanted, pod, now))
            if wait <= 0:
                self._enqueue(wanted, now)
        if max(waits) > 0 and now >= self._wakes_at:
            self._wakes_at = now + max(waits)
            self._wake(max(waits))

    async def run(self) -> None:
        """Write until cancelled; several may run side by side."""
        while True:
            uid = await self._queue.get()
            if uid not in self._in_flight:
                await self._write_newest(uid)
            self._queue.task_done()

    async def drain(self, within: float) -> None:
        """Wait until everything noted is written, at most ``within`` seconds."""
        try:
            async with asyncio.timeout(within):
                await self._queue.join()
        except TimeoutError:
            log.info("%d pod statuses were not written in time", self._queue.qsize())

    def _write_delay(self, desired: PendingPodStatus, pod: Pod, now: float) -> float:
        """Seconds until the pod may be written to again; other words alone are not urgent."""
        refused = self._refused.get(desired.pod.uid)
        if refused is not None:
            return refused + self._message_interval - now
        last = self._written.get(desired.pod.uid)
        if last is None:
            return 0.0
        written, at = last
        if written != desired and not differs_in_message_only(desired, pod):
            return 0.0
        return at + self._message_interval - now

    def _enqueue(self, desired: PendingPodStatus, now: float) -> None:
        uid = desired.pod.uid
        self._report_transition(desired, now)
        if uid not in self._desired:
            self._queue.put_nowait(uid)
        self._desired[uid] = desired

    def _report_unwritten(self, desired: PendingPodStatus, now: float) -> float:
        """Tell of a pod whose condition stays; gives the seconds until that may be done.

        Other words alone are not urgent.
        """
        told, at = self._written.get(desired.pod.uid, (None, -math.inf))
        if told == desired:
            return 0.0
        wait = at + self._message_interval - now
        if told is not None and told.reason == desired.reason and wait > 0:
            return wait
        self._report_transition(desired, now)
        return 0.0

    def _report_transition(self, desired: PendingPodStatus, now: float) -> None:
        """Tell of what the pod waits for, unless that was told last."""
        last = self._written.get(desired.pod.uid)
        if last is None or last[0] != desired:
            self._on_transition(desired)
        self._written[desired.pod.uid] = (desired, now)

    async def _write_newest(self, uid: str) -> None:
        """Write to the pod until it says the newest that is wanted."""
        self._in_flight.add(uid)
        try:
            while (wanted := self._desired.pop(uid, None)) is not None:
                pod = self._find_pod(wanted.pod)
                if pod is not None and differs(wanted, pod):
                    await self._write(wanted, pod)
        finally:
            self._in_flight.discard(uid)

    async def _write(self, desired: PendingPodStatus, pod: Pod) -> None:
        patch = pod_status_patch(desired, pod, datetime.now(UTC))
        try:
            await self._access.call(
                lambda: self._access.client.patch(
                    self._access.pods,
                    desired.pod.name,
                    patch,
                    namespace=desired.pod.namespace,
                    subresource="status",
                    patch_type=PatchType.STRATEGIC,
                )
            )
        except ApiError as error:
            if is_gone(error):
                return
            self._record_failure(desired.pod, error)
        else:
            self._refused.pop(desired.pod.uid, None)

    def _record_failure(self, pod: PodRef, error: ApiError) -> None:
        """The next cycle tries again; later, and warned of once, where that would not help."""
        self._written.pop(pod.uid, None)
        self._wake(self._message_interval)
        level = logging.WARNING
        if not isinstance(error, TRANSIENT):
            self._refused[pod.uid] = self._now
            if self._now < self._warned + self._message_interval:
                level = logging.DEBUG
            else:
                self._warned = self._now
        log.log(level, "status of pod %s: %s", pod, error)
