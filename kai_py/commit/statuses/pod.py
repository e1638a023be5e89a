"""Statuses of pending pods: their conditions, and the writer that keeps them up to date.

The condition PodScheduled=False carries the gang's message; its reason decides what autoscalers do.
``Unschedulable`` makes them add nodes, so only stages that more nodes could help use it, for all
pods of the gang in one cycle; every other stage is its own reason, which autoscalers ignore (they
compare the text). Pods with scheduling gates keep the API server's own reason. Pods of an
incomplete gang get no condition, since scheduling was not attempted. One that they had from us
before, above all ``Unschedulable``, is kept current.

``nominatedNodeName`` is set while a pod waits for capacity that terminating pods release.

Written on transitions only; a change of the message alone is written at most once per interval and
pod, so that changing counts do not become API traffic.

The writer works outside the scheduling cycle and never delays bindings. Only the newest status per
pod is kept: a pod whose reason changes twice while the API is slow is written once. Of its
concurrent writes at most one is to the same pod, so that the newest status is also the last to
arrive. What failed, or must wait because the pod was written a moment ago, is left to another
cycle, which is requested: it finds the pod still out of date.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kai_py.api.records.core import Pod
from kai_py.api.references import PodRef
from kai_py.api.texts import bounded_message
from kai_py.api.times import format_time
from kai_py.commit.api_access import ApiAccess, FindPod, is_gone
from kai_py.commit.retry import TRANSIENT
from kai_py.plan.plan import SHORT_OF_CAPACITY, Plan, Stage, Unplaced
from kai_py.watch.client import PatchType
from kai_py.watch.errors import ApiError

POD_SCHEDULED = "PodScheduled"
UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"
INCOMPLETE_STAGES = frozenset({Stage.BELOW_MIN_MEMBER, Stage.SCHEDULING_GATED})
"""Stages of an incomplete gang: pods are missing, or gated by others."""


class PendingPodStatus(Struct, frozen=True):
    """The desired status of a pending pod; an empty ``nominated_node`` clears the field.

    An empty ``reason`` leaves the condition alone; ``incomplete`` updates an existing one of ours
    but creates none. ``lacks_devices``: its claims are what cannot be satisfied.
    """

    pod: PodRef
    reason: str
    message: str
    nominated_node: str = ""
    lacks_devices: bool = False
    incomplete: bool = False


ELASTIC = "ElasticUnschedulable"
"""Reason of elastic pods, where those do not request nodes."""


def condition_reason(stage: Stage) -> str:
    """The reason of PodScheduled=False for a stage."""
    return UNSCHEDULABLE if stage in SHORT_OF_CAPACITY else stage.value


def pending_statuses(
    plan: Plan, *, elastic_calls_for_nodes: bool = True
) -> tuple[PendingPodStatus, ...]:
    """The desired status of every pod that stays pending, in plan order.

    ``elastic_calls_for_nodes``: whether pods above minMember request nodes, too.
    """
    nominated = {nomination.pod.uid: nomination.node for nomination in plan.nominations}
    suppressed = frozenset[PodRef]()
    if not elastic_calls_for_nodes:
        suppressed = frozenset(pod for unplaced in plan.unplaced for pod in unplaced.elastic)
    return tuple(
        PendingPodStatus(
            pod=pod,
            reason=_reason(unplaced, is_silent=pod in suppressed),
            message=bounded_message(unplaced.message),
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
    """Whether the pod's status differs from the desired one."""
    if pod.status.nominated_node_name != desired.nominated_node:
        return True
    return _writes_condition(desired, pod) and _written_condition(pod) != (
        desired.reason,
        desired.message,
    )


def is_unwritten(desired: PendingPodStatus, pod: Pod) -> bool:
    """Whether the pod waits for a reason that is not written into its condition."""
    return desired.incomplete and bool(desired.reason) and not pod.spec.scheduling_gates


def differs_in_message_only(desired: PendingPodStatus, earlier: PendingPodStatus) -> bool:
    """Whether only the message differs from an earlier status of the same pod."""
    return replace(earlier, message=desired.message) == desired


def pod_status_patch(desired: PendingPodStatus, pod: Pod, now: datetime) -> dict[str, Any]:
    """The strategic merge patch of pods/status that brings the pod to ``desired``."""
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
        # Without it the server keeps the old time, as it must while the status stays False.
        if _written_condition(pod) is None:
            condition["lastTransitionTime"] = format_time(now)
        status["conditions"] = [condition]
    return {"metadata": {"uid": desired.pod.uid}, "status": status}


def _writes_condition(desired: PendingPodStatus, pod: Pod) -> bool:
    if not desired.reason or pod.spec.scheduling_gates:
        return False
    if not desired.incomplete:
        return True
    current = _written_condition(pod)
    return current is not None and current[0] != Stage.SCHEDULING_GATED


def _written_condition(pod: Pod) -> tuple[str, str] | None:
    condition = next((c for c in pod.status.conditions if c.type == POD_SCHEDULED), None)
    if condition is None or condition.status != "False":
        return None
    return condition.reason, condition.message


log = logging.getLogger(__name__)


class PodStatusWriter:
    """Reconciles the statuses of pending pods with the last plan."""

    def __init__(
        self,
        access: ApiAccess,
        find_pod: FindPod,
        *,
        message_interval: float,
        on_transition: Callable[[PendingPodStatus], None],
        wake: Callable[[float], None],
    ) -> None:
        """``wake`` requests a cycle in that many seconds."""
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
        """Record the desired statuses; ``now`` in seconds of a monotonic clock.

        A pod that is not among them is no longer written to.
        """
        self._now = now
        desired_uids = {desired.pod.uid for desired in statuses}
        self._refused = {uid: at for uid, at in self._refused.items() if uid in desired_uids}
        self._written = {uid: last for uid, last in self._written.items() if uid in desired_uids}
        for uid in [uid for uid in self._desired if uid not in desired_uids]:
            del self._desired[uid]
        waits = [0.0]
        for desired in statuses:
            pod = self._find_pod(desired.pod)
            if pod is None or pod.spec.node_name:
                continue
            if not differs(desired, pod):
                if is_unwritten(desired, pod):
                    waits.append(self._report_unwritten(desired, now))
                continue
            waits.append(wait := self._write_delay(desired, now))
            if wait <= 0:
                self._enqueue(desired, now)
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
        """Wait until all queued statuses are written, at most ``within`` seconds."""
        try:
            async with asyncio.timeout(within):
                await self._queue.join()
        except TimeoutError:
            log.info("%d pod statuses were not written in time", self._queue.qsize())

    def _write_delay(self, desired: PendingPodStatus, now: float) -> float:
        """Seconds until the pod may be written again; a changed message alone has to wait.

        Compared with what was written last: the mirror, and queued writes, may be behind.
        """
        refused = self._refused.get(desired.pod.uid)
        if refused is not None:
            return refused + self._message_interval - now
        last = self._written.get(desired.pod.uid)
        if last is None:
            return 0.0
        written, at = last
        if not differs_in_message_only(desired, written):
            return 0.0
        return at + self._message_interval - now

    def _enqueue(self, desired: PendingPodStatus, now: float) -> None:
        uid = desired.pod.uid
        self._report_transition(desired, now)
        # Still queued otherwise: the queued write takes the newest status.
        if uid not in self._desired:
            self._queue.put_nowait(uid)
        self._desired[uid] = desired

    def _report_unwritten(self, desired: PendingPodStatus, now: float) -> float:
        """Report a pod whose condition stays; returns the seconds until that may be done.

        A changed message alone has to wait.
        """
        last = self._written.get(desired.pod.uid)
        if last is not None and last[0] == desired:
            return 0.0
        if (wait := self._write_delay(desired, now)) <= 0:
            self._report_transition(desired, now)
        return wait

    def _report_transition(self, desired: PendingPodStatus, now: float) -> None:
        """Report what the pod waits for, unless that was the last report."""
        last = self._written.get(desired.pod.uid)
        if last is None or last[0] != desired:
            self._on_transition(desired)
        self._written[desired.pod.uid] = (desired, now)

    async def _write_newest(self, uid: str) -> None:
        """Write to the pod until its newest desired status is written."""
        self._in_flight.add(uid)
        try:
            while (desired := self._desired.pop(uid, None)) is not None:
                pod = self._find_pod(desired.pod)
                if pod is not None and differs(desired, pod):
                    await self._write(desired, pod)
        finally:
            self._in_flight.discard(uid)

    async def _write(self, desired: PendingPodStatus, pod: Pod) -> None:
        patch = pod_status_patch(desired, pod, self._access.client.machine.utc_now())
        try:
            await self._access.patch_pod(
                desired.pod, patch, subresource="status", patch_type=PatchType.STRATEGIC
            )
        except ApiError as error:
            if is_gone(error, desired.pod.name):
                return
            self._record_failure(desired.pod, error)
        else:
            self._refused.pop(desired.pod.uid, None)

    def _record_failure(self, pod: PodRef, error: ApiError) -> None:
        """Leave the retry to the next cycle; a failure that repeats is logged once per interval."""
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
