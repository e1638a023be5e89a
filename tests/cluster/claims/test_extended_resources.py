"""`nvidia.com/gpu` in a container is served by device plugins, by DRA drivers, or by both."""

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import kai_py.scheduler as scheduler_module
from kai_py.cli.connection import cluster_client
from kai_py.observe.metrics import Metrics
from kai_py.scheduler import Scheduler
from kai_py.watch.client import Client
from tests.cluster.fake_kubelet import gpu_nodes
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import job, pod, pod_spec, queue
from tests.support.cluster.scheduling import EAGER, scheduling
from tests.support.cluster.view import View, devices_of
from tests.support.dying import run_until_killed
from tests.support.records import replace

MADE = "resource.kubernetes.io/extended-resource-claim"


async def running(view: View, prefix: str, count: int) -> list[Document]:
    """Wait until the kubelet, which checks claims as drivers do, has started all pods."""

    async def started() -> list[Document]:
        pods = await view.pods(prefix)
        phases = [each["status"].get("phase") for each in pods]
        assert phases == ["Running"] * count, f"{phases}: {await view.say(prefix)}"
        return pods

    return await eventually(started, within=20.0)


async def made_claims(view: View) -> list[Document]:
    return [
        claim
        for claim in await view.claims()
        if (claim["metadata"].get("annotations") or {}).get(MADE) == "true"
    ]


@pytest.mark.usefixtures("scheduler")
async def test_a_pod_gets_its_gpus_from_a_driver_without_naming_a_claim(
    cluster: Cluster, view: View
):
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=8)):
        await cluster.submit(queue(), pod("train", pod_spec(gpus=2)))
        [started] = await running(view, "train", 1)
        [claim] = await made_claims(view)
        told = started["status"]["extendedResourceClaimStatus"]
        assert told["resourceClaimName"] == claim["metadata"]["name"]
        [use] = told["requestMappings"]
        assert (use["containerName"], use["resourceName"]) == ("main", "nvidia.com/gpu")
        assert [request["name"] for request in claim["spec"]["devices"]["requests"]] == [
            use["requestName"]
        ]
        assert len(devices_of(claim)) == 2
        assert [user["name"] for user in claim["status"]["reservedFor"]] == ["train"]


@pytest.mark.usefixtures("scheduler")
async def test_a_gang_runs_across_plugin_and_driver_nodes(cluster: Cluster, view: View):
    nodes = [
        *gpu_nodes(1, prefix="driver", published_gpus=4),
        *gpu_nodes(1, prefix="plugin", plugin_gpus=4),
    ]
    async with cluster.run_nodes(nodes):
        await cluster.submit(queue(), job("train", 8, pod_spec(gpus=1)))
        await running(view, "train", 8)
        bound = await view.bound("train")
        assert sorted(bound.values()) == ["driver-0"] * 4 + ["plugin-0"] * 4
        held = [device for claim in await made_claims(view) for device in devices_of(claim)]
        assert len(held) == len(set(held)) == 4


@pytest.mark.usefixtures("scheduler")
async def test_devices_are_free_again_when_the_pod_is_deleted(cluster: Cluster, view: View):
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=2)):
        await cluster.submit(queue(), pod("first", pod_spec(gpus=2)))
        await running(view, "first", 1)
        await cluster.submit(pod("second", pod_spec(gpus=2)))
        message = await view.wait_pending("second", 1, reason="Unschedulable")
        assert "insufficient allocatable devices" in message
        await cluster.api.delete(f"{view.path('pods')}/first")
        await running(view, "second", 1)

        async def one_left() -> bool:
            return len(await made_claims(view)) == 1

        await eventually(one_left, what="the first pod's claim gone", within=20.0)


@pytest.mark.usefixtures("scheduler")
async def test_claims_and_extended_resources_share_a_node_without_meeting(
    cluster: Cluster, view: View
):
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=8)):
        implicit = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
        spec = pod_spec()
        spec["containers"][0]["resources"] = {"limits": {implicit: "3"}}
        await cluster.submit(queue(), pod("implicit", spec), job("explicit", 5, pod_spec(gpus=1)))
        await asyncio.gather(running(view, "implicit", 1), running(view, "explicit", 5))
        held = await view.held()
        assert len(held) == len(set(held)) == 8


def writes_pods(call: Any) -> bool:
    """Whether a call is about a claim, a pod's status or a binding."""
    return call.kind.startswith(("ResourceClaim", "Pod"))


def first_scheduler(client: Client) -> Scheduler:
    return Scheduler(client, EAGER, Metrics(CollectorRegistry()), identity="first")


@pytest.mark.parametrize("writes", [1, 3, 5, 7, 9, 11])
async def test_the_next_leader_after_a_killed_scheduler_starts_the_gang(
    cluster: Cluster, view: View, definitions: None, monkeypatch: pytest.MonkeyPatch, writes: int
):
    settings = replace(scheduler_module.commit_settings(EAGER), claim_grace=0.9)
    monkeypatch.setattr(scheduler_module, "commit_settings", lambda _configuration: settings)
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=3)):
        await cluster.submit(queue(), job("train", 3, pod_spec(gpus=1)))
        async with cluster_client(str(cluster.kubeconfig), "") as client:
            await run_until_killed(client, first_scheduler, writes, writes_pods)
        assert len(await view.bound("train")) < 3
        async with scheduling(cluster):
            await running(view, "train", 3)
        held = await view.held()
        assert len(held) == len(set(held)) == 3
        assert len(await made_claims(view)) == 3
