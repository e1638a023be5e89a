"""Removes the scheduler's own gate from pods that a plan admitted; other gates are not touched.

A pod that has changed in between, or whose write failed, is left to the next plan, which admits it
again.
"""

import asyncio
import logging

from kai_py.api.queue import ADMISSION_GATE
from kai_py.api.references import PodRef
from kai_py.commit.api_access import ApiAccess, is_gone
from kai_py.commit.statuses.pod import PodLookup
from kai_py.plan.plan import Admission
from kai_py.watch.client import PatchType
from kai_py.watch.errors import ApiError

log = logging.getLogger(__name__)


class GateRemover:
    """Removes gates outside the scheduling cycle; a pod is queued at most once at a time."""

    def __init__(self, access: ApiAccess, find_pod: PodLookup) -> None:
        self._access = access
        self._find_pod = find_pod
        self._queue: asyncio.Queue[PodRef] = asyncio.Queue()
        self._queued: set[str] = set()

    def update(self, admissions: tuple[Admission, ...]) -> None:
        """Queue the pods of these admissions."""
        for pod in (pod for admission in admissions for pod in admission.pods):
            if pod.uid not in self._queued:
                self._queued.add(pod.uid)
                self._queue.put_nowait(pod)

    async def run(self) -> None:
        """Write until cancelled; several may run side by side."""
        while True:
            pod = await self._queue.get()
            try:
                await self._remove_gate(pod)
            finally:
                self._queued.discard(pod.uid)

    async def _remove_gate(self, ref: PodRef) -> None:
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
