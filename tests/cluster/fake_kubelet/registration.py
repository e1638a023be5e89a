"""How do nodes come into the cluster and stay alive in it?

Registered nodes are tainted as not ready until the node lifecycle controller has seen that they
are; `register` returns when all may be used. From then on a renewed lease is all it asks for,
unless the lease was late: then it has set the node's conditions to Unknown and leaves it to the
kubelet to say that it is ready.
"""

import asyncio
import time
from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime

import aiohttp

from kai_py.api.times import format_time
from tests.cluster.fake_kubelet.nodes import (
    LEASE_NAMESPACE,
    Document,
    FakeNode,
    gpu_class_document,
    lease_document,
    node_document,
    slice_document,
)
from tests.support.cluster.api import Api, ApiError
from tests.support.cluster.eventually import eventually

_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases"
_SLICES = "/apis/resource.k8s.io/v1/resourceslices"
_CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"


async def register(api: Api, nodes: Sequence[FakeNode], *, concurrency: int) -> None:
    """Create nodes, leases, slices and the class of the GPUs; wait until pods may go there."""
    limit = asyncio.Semaphore(concurrency)

    async def limited(node: FakeNode) -> None:
        async with limit:
            await _register(api, node)

    if any(node.published_gpus for node in nodes):
        await _ensure(api, _CLASSES, gpu_class_document())
    await asyncio.gather(*(limited(node) for node in nodes))
    names = {node.name for node in nodes}
    await eventually(lambda: _usable(api, names), within=60, what="nodes without not-ready taint")


async def renew_lease(api: Api, name: str) -> bool:
    """Say that the node lives; returns whether that was heard.

    A node that was deleted has no lease, which is no error.
    """
    return await _heard(api.patch(f"{_LEASES}/{name}", {"spec": {"renewTime": _now_micro()}}))


async def say_ready(api: Api, node: FakeNode) -> None:
    """Make the node ready again if the control plane has lost sight of it."""
    conditions = node_document(node, format_time(time.time()))["status"]["conditions"]
    await _heard(_say_ready(api, f"/api/v1/nodes/{node.name}", conditions))


async def _say_ready(api: Api, path: str, conditions: list[Document]) -> None:
    present = (await api.get(path))["status"].get("conditions", ())
    if any(each["type"] == "Ready" and each["status"] == "Unknown" for each in present):
        await api.patch(f"{path}/status", {"status": {"conditions": conditions}})


async def _heard(call: Awaitable[object]) -> bool:
    try:
        await call
    except ApiError as error:
        if error.code != 404 and error.code < 429:
            raise
        return error.code == 404
    except (aiohttp.ClientError, TimeoutError):
        return False  # the next time is soon enough
    return True


async def _register(api: Api, node: FakeNode) -> None:
    made = await _ensure(api, "/api/v1/nodes", node_document(node, format_time(time.time())))
    uid = made["metadata"]["uid"]
    await _ensure(api, _LEASES, lease_document(node, uid, _now_micro()))
    if node.published_gpus:
        await _ensure(api, _SLICES, slice_document(node, uid))


async def _ensure(api: Api, collection: str, document: Document) -> Document:
    try:
        return await api.post(collection, document)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
        return await api.get(f"{collection}/{document['metadata']['name']}")


async def _usable(api: Api, names: set[str]) -> bool:
    usable = {
        node["metadata"]["name"]
        for node in await api.items("/api/v1/nodes")
        if all(t["key"] != "node.kubernetes.io/not-ready" for t in node["spec"].get("taints", ()))
    }
    return names <= usable


def _now_micro() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
