"""Nodes go while gangs run: announced or drained. Gangs leave whole, as they declare."""

from typing import Any

import pytest

from tests.cluster.fake_kubelet import gpu_nodes
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import job, pod_spec, queue
from tests.support.cluster.view import View

DEPARTURE = "scheduling.kai.io/on-node-departure"
CHECKPOINT_BY = "scheduling.kai.io/checkpoint-by"


def train(**annotations: str) -> Document:
    """Two pods that need a node each."""
    made = job("train", 2, pod_spec(gpus=8))
    made["metadata"].setdefault("annotations", {}).update(annotations)
    made["spec"]["podReplacementPolicy"] = "Failed"
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    made["spec"]["podFailurePolicy"] = {"rules": [rule]}
    return made


async def taint(cluster: Cluster, node: str, key: str) -> None:
    found = {"key": key, "effect": "NoSchedule"}
    await cluster.api.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": [found]}})


async def running(view: View) -> dict[str, str]:
    """Name and node of each pod that runs and is not ending."""
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in await view.pods("train")
        if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
    }


async def wait_moved(view: View, before: dict[str, str], gone: str) -> None:
    async def moved() -> bool:
        now = await running(view)
        return len(now) == 2 and not (now.keys() & before.keys()) and gone not in now.values()

    await eventually(moved, what="both pods, made again, on other nodes")


@pytest.mark.usefixtures("scheduler")
async def test_a_gang_leaves_a_node_that_karpenter_disrupts_whole(cluster: Cluster, view: View):
    async with cluster.run_nodes(gpu_nodes(3, plugin_gpus=8)):
        await cluster.submit(queue(maxGPUs=64), train())
        before = await view.wait_bound("train", 2)
        gone = min(before.values())
        await taint(cluster, gone, "karpenter.sh/disrupted")
        await wait_moved(view, before, gone)


@pytest.mark.usefixtures("scheduler")
async def test_pods_are_asked_to_save_their_work_first(cluster: Cluster, view: View):
    async with cluster.run_nodes(gpu_nodes(3, plugin_gpus=8)):
        await cluster.submit(queue(maxGPUs=64), train(**{DEPARTURE: "checkpoint"}))
        before = await view.wait_bound("train", 2)
        gone = min(before.values())
        await taint(cluster, gone, "ToBeDeletedByClusterAutoscaler")

        async def asked() -> list[dict[str, Any]]:
            pods = await view.pods("train")
            return pods if all(CHECKPOINT_BY in _annotations(pod) for pod in pods) else []

        for pod in await eventually(asked, what="requests to save work"):
            meta = pod["metadata"]
            answer = {"scheduling.kai.io/checkpointed": meta["annotations"][CHECKPOINT_BY]}
            body = {"metadata": {"annotations": answer}}
            await cluster.api.patch(f"{view.path('pods')}/{meta['name']}", body)
        await wait_moved(view, before, gone)


def _annotations(pod: Document) -> Document:
    found: Document = pod["metadata"].get("annotations", {})
    return found


@pytest.mark.usefixtures("scheduler")
async def test_the_rest_of_a_drained_gang_restarts_at_once(cluster: Cluster, view: View):
    async with cluster.run_nodes(gpu_nodes(3, plugin_gpus=8)):
        await cluster.submit(queue(maxGPUs=64), train())
        before = await view.wait_bound("train", 2)
        name, gone = min(before.items())
        await cluster.api.patch(f"/api/v1/nodes/{gone}", {"spec": {"unschedulable": True}})
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": "default"},
        }
        await cluster.api.post(f"{view.path('pods')}/{name}/eviction", eviction)
        await wait_moved(view, before, gone)


@pytest.mark.usefixtures("scheduler")
async def test_a_pod_that_its_kubelet_refused_goes_elsewhere(cluster: Cluster, view: View):
    small = gpu_nodes(1, plugin_gpus=1, prefix="small")
    async with cluster.run_nodes([*small, *gpu_nodes(1, plugin_gpus=8)]):
        # The API says that there are two GPUs, of which the kubelet has one.
        path = f"/api/v1/nodes/{small[0].name}/status"
        more = {"status": {"allocatable": {"nvidia.com/gpu": "2"}}}
        await cluster.api.patch(path, more)
        await cluster.submit(queue(maxGPUs=64), job("train", 1, pod_spec(gpus=2)))

        async def refused() -> bool:
            pods = await view.pods("train")
            reasons = [pod["status"].get("reason", "") for pod in pods]
            return any(reason.startswith("OutOf") for reason in reasons)

        await eventually(refused, what="a refused pod")

        async def runs() -> bool:
            pods = await view.pods("train")
            where = {p["spec"].get("nodeName") for p in pods if p["status"]["phase"] == "Running"}
            return len(where) == 1 and small[0].name not in where

        await eventually(runs, within=40, what="its successor on the other node")
        assert len(await view.pods("train")) == 2
