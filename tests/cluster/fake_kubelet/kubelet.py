"""How do many nodes live in one process?

One watch of all bound pods feeds a queue; a fixed number of workers carries out what it holds, so
thousands of pods never mean thousands of requests at once. Leases are renewed evenly over the
interval, not all at the same moment.

A pod goes through three steps: it starts when it fits on its node (`admission`) and its claims give
it their devices (`devices`; `waiting` says which pods do not start, and why); it finishes after
the time its annotation gives; once deleted it ends, is reported as ended, and is removed.
"""

import asyncio
import enum
import logging
import time
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

from kai_py.api.times import format_time
from tests.cluster.fake_kubelet import pods
from tests.cluster.fake_kubelet.admission import Admission
from tests.cluster.fake_kubelet.devices import Devices
from tests.cluster.fake_kubelet.nodes import FakeNode
from tests.cluster.fake_kubelet.pods import Pod
from tests.cluster.fake_kubelet.registration import register, renew_lease, say_ready
from tests.support.cluster.api import STRATEGIC_MERGE_PATCH, Api, ApiError

_log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.2
_LEASE_SLOTS = 10
_LOST_SECONDS = 180.0
"""For so long after a late renewal a node may still be taken for lost."""


class _Step(enum.IntEnum):
    START = 1
    FINISH = 2
    STOP = 3


class _ListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _PodList(msgspec.Struct):
    metadata: _ListMetadata
    items: list[Pod]


class _Versioned(msgspec.Struct):
    metadata: _ListMetadata


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class FakeKubelet:
    """The kubelets of `nodes`, for as long as the block lasts; the nodes stay registered."""

    def __init__(
        self,
        api: Api,
        nodes: Sequence[FakeNode],
        *,
        heartbeat_seconds: float = 10.0,
        concurrency: int = 16,
    ) -> None:
        self.waiting: dict[str, str] = {}
        """Pods ("namespace/name") that are bound and do not start, with the reason."""
        self._api = api
        self._nodes = {node.name: node for node in nodes}
        self._heartbeat_seconds = heartbeat_seconds
        self._concurrency = concurrency
        self._admission = Admission({node.name: node.resources for node in nodes})
        self._devices = Devices()
        self._pods: dict[str, Pod] = {}
        self._begun: dict[str, _Step] = {}
        self._queue: asyncio.Queue[tuple[_Step, str]] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await register(self._api, list(self._nodes.values()), concurrency=self._concurrency)
        self._spawn(self._follow_pods())
        self._spawn(self._renew_leases())
        for _ in range(self._concurrency):
            self._spawn(self._work())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        failed = [e for e in ended if isinstance(e, Exception)]
        if failed and error is None:
            raise ExceptionGroup("the fake kubelet failed", failed)

    def _spawn(self, routine: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(routine))

    async def _renew_leases(self) -> None:
        names, clock = sorted(self._nodes), asyncio.get_running_loop().time
        heard = dict.fromkeys(names, clock())
        lost_until = dict.fromkeys(names, 0.0)
        while True:
            for slot in range(_LEASE_SLOTS):
                await asyncio.sleep(self._heartbeat_seconds / _LEASE_SLOTS)
                for name in names[slot::_LEASE_SLOTS]:
                    if not await renew_lease(self._api, name):
                        continue
                    if clock() - heard[name] > 2 * self._heartbeat_seconds:
                        lost_until[name] = clock() + _LOST_SECONDS
                    heard[name] = clock()
                    if clock() < lost_until[name]:
                        await say_ready(self._api, self._nodes[name])

    async def _follow_pods(self) -> None:
        version = ""
        while True:
            try:
                version = version or await self._list_pods()
                version = await self._watch_pods(version)
            except (aiohttp.ClientError, TimeoutError, ApiError) as error:
                _log.info("watch of pods: %s", error)
                version = ""
                await asyncio.sleep(_RETRY_SECONDS)

    async def _list_pods(self) -> str:
        answer = await self._api.request(
            "GET", "/api/v1/pods", parameters={"fieldSelector": "spec.nodeName!="}
        )
        listed = msgspec.json.decode(answer, type=_PodList)
        present = {pod.metadata.uid for pod in listed.items}
        for uid in [uid for uid in self._pods if uid not in present]:
            self._forget(uid)
        for pod in listed.items:
            self._observe(pod)
        return listed.metadata.resource_version

    async def _watch_pods(self, version: str) -> str:
        """Follow one watch to its end; return where to go on, "" when only a list helps."""
        event_of = msgspec.json.Decoder(_Event).decode
        pod_of = msgspec.json.Decoder(Pod).decode
        version_of = msgspec.json.Decoder(_Versioned).decode
        async for line in self._api.watch(
            "/api/v1/pods",
            fieldSelector="spec.nodeName!=",
            resourceVersion=version,
            allowWatchBookmarks="true",
        ):
            event = event_of(line)
            if event.type == "ERROR":
                return ""
            version = version_of(event.object).metadata.resource_version
            if event.type == "DELETED":
                self._forget(pod_of(event.object).metadata.uid)
            elif event.type != "BOOKMARK":
                self._observe(pod_of(event.object))
        return version

    def _forget(self, uid: str) -> None:
        pod = self._pods.pop(uid, None)
        self._begun.pop(uid, None)
        if pod is not None:
            self.waiting.pop(pod.key, None)
            self._release(pod)

    def _observe(self, pod: Pod) -> None:
        if pod.spec.node_name not in self._nodes:
            return
        uid = pod.metadata.uid
        self._pods[uid] = pod
        if pod.finished:
            self._release(pod)
        elif pod.status.phase == "Running":
            self._admission.occupy(pod)
        step, delay = _due(pod)
        if step is None or self._begun.get(uid, 0) >= step:
            return
        self._begun[uid] = step
        self._enqueue(step, uid, delay)

    def _enqueue(self, step: _Step, uid: str, delay: float) -> None:
        if delay > 0:
            loop = asyncio.get_running_loop()
            loop.call_later(delay, self._queue.put_nowait, (step, uid))
        else:
            self._queue.put_nowait((step, uid))

    async def _work(self) -> None:
        while True:
            step, uid = await self._queue.get()
            pod = self._pods.get(uid)
            if pod is None or self._begun.get(uid) != step:
                continue  # gone meanwhile, or being stopped
            try:
                await self._carry_out(step, pod)
            except (aiohttp.ClientError, TimeoutError) as error:
                self._try_again(step, pod, str(error))
            except ApiError as error:
                if error.code == 409 or error.code >= 429:
                    self._try_again(step, pod, str(error))
                elif error.code != 404 and self._begun.get(uid) == step:
                    raise  # not just deleted, or overtaken by the next step

    async def _carry_out(self, step: _Step, pod: Pod) -> None:
        if step is _Step.START:
            await self._start(pod)
        elif step is _Step.FINISH:
            exit_code = int(pod.number(pods.EXIT_CODE) or 0)
            await self._patch_status(pod, pods.finished(pod, exit_code, format_time(time.time())))
        else:
            if not pod.finished:
                ended = pods.finished(pod, pods.STOPPED_BY_SIGNAL, format_time(time.time()))
                await self._patch_status(pod, ended)
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}}
            await self._api.delete(pod.path, options)

    async def _start(self, pod: Pod) -> None:
        shortage = self._admission.shortage(pod)
        if shortage:
            await self._patch_status(pod, pods.rejected(pod, shortage))
            return
        self._admission.occupy(pod)
        reason = await self._unprepared_claim(pod)
        if reason:
            self._try_again(_Step.START, pod, reason)
            return
        self.waiting.pop(pod.key, None)
        await self._report_gpus(pod)
        has_image = pod.metadata.annotations.get(pods.IMAGE) != pods.ABSENT
        started = pods.running if has_image else pods.without_image
        await self._patch_status(pod, started(pod, format_time(time.time())))

    async def _report_gpus(self, pod: Pod) -> None:
        """Write which GPUs a pod sees; a reservation pod tells the scheduler which it was given."""
        given = self._admission.gpus(pod)
        seen = pods.visible_gpus(pod, given)
        if not given and set(seen.values()) <= {"all"}:
            return
        annotations = {pods.VISIBLE: ";".join(f"{name}={gpus}" for name, gpus in seen.items())}
        if pod.metadata.labels.get("app") == "kai-resource-reservation":
            annotations["run.ai/reserve_for_gpu_index"] = ",".join(given)
        uid = pod.metadata.uid
        await self._api.patch(pod.path, {"metadata": {"uid": uid, "annotations": annotations}})

    def _try_again(self, step: _Step, pod: Pod, reason: str) -> None:
        self.waiting[pod.key] = reason
        self._enqueue(step, pod.metadata.uid, _RETRY_SECONDS)

    async def _patch_status(self, pod: Pod, patch: pods.Document) -> None:
        await self._api.patch(f"{pod.path}/status", patch, content_type=STRATEGIC_MERGE_PATCH)

    async def _unprepared_claim(self, pod: Pod) -> str:
        """Say which claim keeps the pod from starting, "" when none does."""
        names = pod.claim_names()
        claims = f"/apis/resource.k8s.io/v1/namespaces/{pod.metadata.namespace}/resourceclaims"
        if None in names:
            return "a claim is not made from its template yet"
        found = [await self._api.get(f"{claims}/{name}") for name in names]
        if pod.metadata.uid not in self._pods:
            return "the pod was deleted meanwhile"
        group = pod.spec.scheduling_group.pod_group_name
        return self._devices.prepare(pod.metadata.uid, found, group=group)

    def _release(self, pod: Pod) -> None:
        self._admission.release(pod)
        self._devices.release(pod.metadata.uid)


def _due(pod: Pod) -> tuple[_Step | None, float]:
    """Return the step the pod is due for, and in how many seconds."""
    if pod.metadata.deletion_timestamp is not None:
        if pod.metadata.annotations.get(pods.STOP_SECONDS) == pods.HELD:
            return None, 0.0
        return _Step.STOP, pod.number(pods.STOP_SECONDS) or 0.0
    if pod.status.phase == "Pending":
        return _Step.START, 0.0
    runs = pod.number(pods.RUN_SECONDS)
    if pod.status.phase == "Running" and runs is not None:
        return _Step.FINISH, runs
    return None, 0.0
