"""Requests that pods save their work, by an annotation that each reads through the downward API.

scheduling.kai.io/checkpoint-by   until when, RFC 3339
scheduling.kai.io/checkpointed    the pod's answer: the same value

A pod whose write failed is left to the next plan, which asks again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from kai_py.api.queue import CHECKPOINT_BY_KEY
from kai_py.api.references import PodRef
from kai_py.api.times import format_time
from kai_py.commit.api_access import ApiAccess, is_gone
from kai_py.commit.statuses.pod import PodLookup
from kai_py.plan.observations import CheckpointRequest
from kai_py.watch.client import PatchType
from kai_py.watch.errors import ApiError

log = logging.getLogger(__name__)

ASK_AGAIN = 60.0
"""Seconds after which a pod that does not show the request yet is asked again."""

ReportRequest = Callable[[PodRef, CheckpointRequest], None]


class CheckpointRequester:
    """Writes outside the scheduling cycle; a pod is queued at most once at a time."""

    def __init__(self, access: ApiAccess, find_pod: PodLookup, report: ReportRequest) -> None:
        self._access = access
        self._find_pod = find_pod
        self._report = report
        self._queue: asyncio.Queue[tuple[PodRef, CheckpointRequest]] = asyncio.Queue()
        self._queued: set[str] = set()
        self._asked: dict[str, float] = {}

    def update(self, requests: Iterable[CheckpointRequest]) -> None:
        """Queue the pods of these requests."""
        wanted = {pod.uid: (pod, request) for request in requests for pod in request.pods}
        self._asked = {uid: by for uid, by in self._asked.items() if uid in wanted}
        for uid, (pod, request) in wanted.items():
            asked = self._asked.get(uid)
            if uid not in self._queued and (asked is None or request.by - asked > ASK_AGAIN):
                self._queued.add(uid)
                self._queue.put_nowait((pod, request))

    async def run(self) -> None:
        """Write until cancelled; several may run side by side."""
        while True:
            pod, request = await self._queue.get()
            try:
                await self._ask(pod, request)
            finally:
                self._queued.discard(pod.uid)

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
