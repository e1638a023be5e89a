"""Patches of pods that a plan asks for: our scheduling gate removed, a request to save their work.

``GateRemover`` removes the scheduler's own gate from pods that were admitted; other gates are not
touched. ``CheckpointRequester`` writes an annotation that pods read through the downward API:

    scheduling.kai.io/checkpoint-by   until when, RFC 3339
    scheduling.kai.io/checkpointed    the pod's answer: the same value

Patches are written outside the scheduling cycle. A pod that has changed in between, or whose write
failed, is left to the next plan, which asks again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

from kai_py.api.queue import ADMISSION_GATE, CHECKPOINT_BY_KEY
from kai_py.api.references import PodRef
from kai_py.api.times import format_time
from kai_py.commit.api_access import ApiAccess, FindPod, is_gone
from kai_py.plan.observations import CheckpointRequest
from kai_py.plan.plan import Admission
from kai_py.watch.client import PatchType
from kai_py.watch.errors import ApiError

log = logging.getLogger(__name__)
Item = TypeVar("Item")

ASK_AGAIN = 60.0
"""Seconds after which a pod that does not show the request yet is asked again."""

ReportRequest = Callable[[PodRef, CheckpointRequest], None]


class _PodQueue(Generic[Item]):
    """Pods to write, each with what is written; a pod is queued at most once at a time."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[tuple[PodRef, Item]] = asyncio.Queue()
        self._queued: set[str] = set()

    def put(self, pod: PodRef, item: Item) -> None:
        if pod.uid not in self._queued:
            self._queued.add(pod.uid)
            self._queue.put_nowait((pod, item))

    async def run(self, write: Callable[[PodRef, Item], Awaitable[None]]) -> None:
        while True:
            pod, item = await self._queue.get()
            try:
                await write(pod, item)
            finally:
                self._queued.discard(pod.uid)


class GateRemover:
    """Removes gates of admitted pods."""

    def __init__(self, access: ApiAccess, find_pod: FindPod) -> None:
        self._access = access
        self._find_pod = find_pod
        self._queue = _PodQueue[None]()

    def update(self, admissions: Iterable[Admission]) -> None:
        """Queue the pods of these admissions."""
        for admission in admissions:
            for pod in admission.pods:
                self._queue.put(pod, None)

    async def run(self) -> None:
        """Write until cancelled; several may run side by side."""
        await self._queue.run(self._remove_gate)

    async def _remove_gate(self, ref: PodRef, _item: None) -> None:
        pod = self._find_pod(ref)
        if pod is None or all(gate.name != ADMISSION_GATE for gate in pod.spec.scheduling_gates):
            return
        removal = {"$patch": "delete", "name": ADMISSION_GATE}
        patch = {"metadata": {"uid": ref.uid}, "spec": {"schedulingGates": [removal]}}
        try:
            await self._access.patch_pod(ref, patch, patch_type=PatchType.STRATEGIC)
        except ApiError as error:
            if not is_gone(error, ref.name):
                log.warning("cannot remove the scheduling gate of pod %s: %s", ref, error)


class CheckpointRequester:
    """Asks pods to save their work."""

    def __init__(self, access: ApiAccess, find_pod: FindPod, report: ReportRequest) -> None:
        self._access = access
        self._find_pod = find_pod
        self._report = report
        self._queue = _PodQueue[CheckpointRequest]()
        self._asked: dict[str, float] = {}

    def update(self, requests: Iterable[CheckpointRequest]) -> None:
        """Queue the pods of these requests."""
        wanted = {pod.uid: (pod, request) for request in requests for pod in request.pods}
        self._asked = {uid: by for uid, by in self._asked.items() if uid in wanted}
        for uid, (pod, request) in wanted.items():
            asked = self._asked.get(uid)
            if asked is None or request.by - asked > ASK_AGAIN:
                self._queue.put(pod, request)

    async def run(self) -> None:
        """Write until cancelled; several may run side by side."""
        await self._queue.run(self._ask)

    async def _ask(self, pod: PodRef, request: CheckpointRequest) -> None:
        if self._find_pod(pod) is None:
            return
        annotations = {CHECKPOINT_BY_KEY: format_time(request.by)}
        patch = {"metadata": {"uid": pod.uid, "annotations": annotations}}
        try:
            await self._access.patch_pod(pod, patch, patch_type=PatchType.STRATEGIC)
        except ApiError as error:
            if not is_gone(error, pod.name):
                log.warning("cannot ask pod %s to save its work: %s", pod, error)
            return
        self._asked[pod.uid] = request.by
        self._report(pod, request)
