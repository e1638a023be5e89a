"""Pods that share GPUs of a DRA driver get claims, and no GPU is given out beyond its memory."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import kai_py.scheduler as scheduler_module
from kai_py.api.gpu_share import SHARE_RESOURCE
from kai_py.api.quantity import parse_quantity
from kai_py.cli.connection import cluster_client
from kai_py.observe.metrics import Metrics
from kai_py.scheduler import Scheduler
from kai_py.watch.client import Client
from tests.cluster.fake_kubelet import gpu_nodes
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import queue
from tests.support.cluster.scheduling import scheduling
from tests.support.cluster.shared_gpus import SHARING, sharing
from tests.support.cluster.view import View
from tests.support.dying import run_until_killed
from tests.support.records import replace

CARD = parse_quantity("81559Mi").nano


async def running(view: View, prefix: str, count: int) -> list[Document]:
    """Wait until the kubelet has started so many pods, and no other."""

    async def started() -> list[Document]:
        pods = await view.pods(prefix)
        phases = [each["status"].get("phase") for each in pods]
        assert phases.count("Running") == count, f"{phases}: {await view.say(prefix)}"
        return pods

    return await eventually(started, within=20.0)


async def consumed(view: View) -> dict[str, int]:
    """Nano-bytes that claims consume, by device."""
    found: dict[str, int] = {}
    for claim in await view.claims():
        allocation = claim.get("status", {}).get("allocation", {})
        for result in allocation.get("devices", {}).get("results", ()):
            amount = parse_quantity(result["consumedCapacity"]["memory"]).nano
            found[result["device"]] = found.get(result["device"], 0) + amount
    return found


@pytest.mark.usefixtures("definitions")
async def test_parts_of_a_drivers_gpus_are_claimed_and_given_back(cluster: Cluster, view: View):
    async with (
        cluster.run_nodes(gpu_nodes(1, published_gpus=1, shareable=True)),
        scheduling(cluster, SHARING),
    ):
        await cluster.submit(queue(), *(sharing(f"half-{i}", fraction="0.5") for i in range(3)))
        pods = await running(view, "half", 2)
        [started, *_] = [each for each in pods if each["status"]["phase"] == "Running"]
        [use] = started["status"]["extendedResourceClaimStatus"]["requestMappings"]
        assert (use["containerName"], use["resourceName"]) == ("main", SHARE_RESOURCE)
        assert "runai-gpu-group" not in (started["metadata"].get("labels") or {})
        assert await consumed(view) == {"gpu-0": CARD // 2 * 2}
        [message] = [m for m in await view.say("half") if "insufficient" in m]
        assert "insufficient allocatable devices" in message
        await cluster.api.delete(f"{view.path('pods')}/{started['metadata']['name']}")

        async def third() -> bool:
            pods = await view.pods("half")
            return [each["status"].get("phase") for each in pods] == ["Running"] * 2

        await eventually(third, within=20.0)
        assert await consumed(view) == {"gpu-0": CARD // 2 * 2}


@pytest.mark.usefixtures("definitions")
async def test_each_kind_of_node_serves_in_its_way(cluster: Cluster, view: View):
    nodes = [
        *gpu_nodes(1, prefix="driver", published_gpus=1, shareable=True),
        *gpu_nodes(1, prefix="plugin", plugin_gpus=1),
    ]
    if cluster.name == "embedded":  # on a real one it is part of the installation
        await cluster.create_namespace("kai-resource-reservation")
    async with cluster.run_nodes(nodes), scheduling(cluster, SHARING):
        await cluster.submit(queue(), *(sharing(f"half-{i}", fraction="0.5") for i in range(4)))
        pods = await running(view, "half", 4)
        for each in pods:
            on_driver = each["spec"]["nodeName"] == "driver-0"
            assert ("extendedResourceClaimStatus" in each["status"]) == on_driver
            assert ("runai-gpu-group" in (each["metadata"].get("labels") or {})) != on_driver
        assert (
            sorted(each["spec"]["nodeName"] for each in pods) == ["driver-0"] * 2 + ["plugin-0"] * 2
        )


def writes_pods(call: Any) -> bool:
    """Whether a call is about a claim, a pod's status or a binding."""
    return call.kind.startswith(("ResourceClaim", "Pod"))


def first_scheduler(client: Client) -> Scheduler:
    return Scheduler(client, SHARING, Metrics(CollectorRegistry()), identity="first")


@pytest.mark.parametrize("writes", [1, 2, 3, 4, 5, 6, 7, 8])
async def test_a_scheduler_after_a_killed_one_gives_no_gpu_twice(
    cluster: Cluster, view: View, definitions: None, monkeypatch: pytest.MonkeyPatch, writes: int
):
    settings = replace(scheduler_module.commit_settings(SHARING), claim_grace=0.9)
    monkeypatch.setattr(scheduler_module, "commit_settings", lambda _configuration: settings)
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=1, shareable=True)):
        await cluster.submit(queue(), *(sharing(f"half-{i}", fraction="0.5") for i in range(2)))
        async with cluster_client(str(cluster.kubeconfig), "") as client:
            await run_until_killed(client, first_scheduler, writes, writes_pods)
        async with scheduling(cluster, SHARING):
            await running(view, "half", 2)
        assert await consumed(view) == {"gpu-0": CARD // 2 * 2}
        assert len(await view.claims()) == 2
