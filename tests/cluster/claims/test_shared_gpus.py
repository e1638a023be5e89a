"""Pods that share GPUs of a device plugin see exactly theirs, and nothing else gets one of those.

The kubelet of these nodes hands out GPUs by itself, lowest number first, and writes on each pod
which ones its containers see. Images are taken to ask for all GPUs.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from tests.cluster.fake_kubelet import FakeNode, gpu_nodes
from tests.cluster.fake_kubelet.pods import VISIBLE
from tests.support.cluster.api import Api, Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import IN_TEAM_A, pod, pod_spec, priority_class, queue
from tests.support.cluster.scheduling import Running, scheduling
from tests.support.cluster.shared_gpus import RESERVATION, RESERVATIONS, SHARING, sharing
from tests.support.cluster.view import View


@asynccontextmanager
async def shared_gpus(
    cluster: Cluster, gpus: int | Sequence[FakeNode], nodes: int = 1
) -> AsyncIterator[Running]:
    """A scheduler that reserves shared GPUs, on nodes with so many of a device plugin."""
    used = gpu_nodes(nodes, plugin_gpus=gpus) if isinstance(gpus, int) else gpus
    if cluster.name == "embedded":  # on a real one it is part of the installation
        await cluster.create_namespace(RESERVATION)
    await cluster.submit(queue())
    async with (
        cluster.run_nodes(used),
        scheduling(cluster, SHARING) as running,
    ):
        yield running


async def seen(view: View, name: str) -> dict[str, str]:
    """GPUs by container, once the pod runs."""

    async def started() -> dict[str, str]:
        [found] = await view.pods(name)
        assert found["status"].get("phase") == "Running", await view.say(name)
        parts = found["metadata"]["annotations"].get(VISIBLE, "").split(";")
        return dict(part.split("=") for part in parts if part)

    return await eventually(started, within=20.0)


async def reservations(cluster: Cluster) -> list[Document]:
    return await cluster.api.items(RESERVATIONS)


async def reserved(cluster: Cluster, count: int) -> list[Document]:
    """Wait until there are exactly so many reservation pods."""

    async def found() -> tuple[list[Document]]:
        present = await reservations(cluster)
        assert len(present) == count, [each["metadata"]["name"] for each in present]
        return (present,)

    (present,) = await eventually(found, within=20.0)
    return present


@pytest.mark.usefixtures("definitions")
async def test_two_halves_see_one_gpu_and_a_whole_pod_gets_the_other(cluster: Cluster, view: View):
    async with shared_gpus(cluster, gpus=2):
        await cluster.submit(sharing("a", fraction="0.5"))
        given = await seen(view, "a")
        assert given == {"main": "GPU-node-0-0", "other": "void"}
        await cluster.submit(pod("whole", pod_spec(gpus=1), annotations=IN_TEAM_A))
        assert await seen(view, "whole") == {"main": "GPU-node-0-1"}
        await cluster.submit(
            sharing("b", fraction="0.5", container="other", fraction_container_name="other")
        )
        assert await seen(view, "b") == {"main": "void", "other": "GPU-node-0-0"}
        [kept] = await reservations(cluster)
        assert kept["metadata"]["labels"]["app"] == RESERVATION
        # The GPU is a whole one again when the last pod has gone.
        await cluster.submit(pod("next", pod_spec(gpus=1), annotations=IN_TEAM_A))
        for name in ("a", "b"):
            assert not await view.bound("next")
            await cluster.api.delete(f"{view.path('pods')}/{name}")
        assert await seen(view, "next") == {"main": "GPU-node-0-0"}
        await reserved(cluster, 0)


@pytest.mark.usefixtures("definitions")
async def test_parts_of_several_gpus_are_on_distinct_gpus(cluster: Cluster, view: View):
    async with shared_gpus(cluster, gpus=3):
        await cluster.submit(sharing("two", fraction="0.5", fraction_num_devices="2"))
        both = (await seen(view, "two"))["main"].split(",")
        assert sorted(both) == ["GPU-node-0-0", "GPU-node-0-1"]
        await cluster.submit(pod("whole", pod_spec(gpus=1), annotations=IN_TEAM_A))
        assert await seen(view, "whole") == {"main": "GPU-node-0-2"}


@pytest.mark.usefixtures("definitions")
async def test_a_pod_that_no_webhook_has_seen_waits_and_says_why(cluster: Cluster, view: View):
    async with shared_gpus(cluster, gpus=1):
        plain = pod("plain", pod_spec(), annotations={**IN_TEAM_A, "gpu-fraction": "0.5"})
        await cluster.submit(plain)

        async def told() -> bool:
            [message] = await view.say("plain")
            return "no admission webhook" in message

        await eventually(told, within=20.0)
        assert await view.bound("plain") == {}
        await cluster.submit(pod("whole", pod_spec(gpus=1), annotations=IN_TEAM_A))
        assert await seen(view, "whole") == {"main": "GPU-node-0-0"}
        assert await reservations(cluster) == []


@pytest.mark.usefixtures("definitions")
async def test_pods_whose_reservation_is_evicted_give_their_gpu_back(cluster: Cluster, view: View):
    async with shared_gpus(cluster, gpus=2):
        await cluster.submit(sharing("a", fraction="0.5"))
        await seen(view, "a")
        [kept] = await reserved(cluster, 1)
        await cluster.api.delete(f"{RESERVATIONS}/{kept['metadata']['name']}")
        # No whole GPU may be given out while the plugin takes the shared one for free.
        await cluster.submit(pod("whole", pod_spec(gpus=2), annotations=IN_TEAM_A))
        assert await seen(view, "whole") == {"main": "GPU-node-0-0,GPU-node-0-1"}
        assert await view.bound("a") == {}
        assert await view.events(kind="Pod", name="a", reason="DevicesLost")


@pytest.mark.usefixtures("definitions")
async def test_the_next_scheduler_takes_over_and_deletes_what_is_left(cluster: Cluster, view: View):
    async with shared_gpus(cluster, gpus=2):
        await cluster.submit(sharing("a", fraction="0.5"))
        await seen(view, "a")
        [kept] = await reserved(cluster, 1)
    labels = {**kept["metadata"]["labels"], "runai-gpu-group": "of-no-pod"}
    left = pod("left", pod_spec(gpus=1), namespace=RESERVATION, annotations={}, labels=labels)
    left["spec"]["nodeName"] = "node-0"
    left["spec"]["schedulerName"] = "default-scheduler"
    async with cluster.run_nodes(gpu_nodes(1, plugin_gpus=2)):
        async with Api(cluster.scheduler_kubeconfig) as account:
            await account.create(left)
        async with scheduling(cluster, SHARING):
            await cluster.submit(sharing("b", fraction="0.5"))
            assert (await seen(view, "b"))["main"] == "GPU-node-0-0"
            [only] = await reserved(cluster, 1)
            assert only["metadata"]["uid"] == kept["metadata"]["uid"]
            await cluster.submit(pod("whole", pod_spec(gpus=1), annotations=IN_TEAM_A))
            assert await seen(view, "whole") == {"main": "GPU-node-0-1"}


@pytest.mark.usefixtures("definitions")
async def test_no_pod_is_evicted_for_one_that_no_webhook_has_seen(cluster: Cluster, view: View):
    async with shared_gpus(cluster, gpus=1):
        await cluster.submit(pod("low", pod_spec(gpus=1), annotations=IN_TEAM_A))
        await seen(view, "low")
        marks = {**IN_TEAM_A, "gpu-fraction": "0.5"}
        urgent = pod("urgent", pod_spec(), annotations=marks)
        urgent["spec"]["priorityClassName"] = "high"
        await cluster.submit(priority_class("high", 1000), urgent)

        async def told() -> bool:
            [message] = await view.say("urgent")
            return "no admission webhook" in message

        await eventually(told, within=20.0)
        assert await view.bound("low")


@pytest.mark.usefixtures("definitions")
async def test_pods_may_request_all_cpu_of_a_node_whose_gpus_they_share(
    cluster: Cluster, view: View
):
    full = [FakeNode(name="node-0", allocatable={"cpu": "2", "nvidia.com/gpu": "2"})]
    async with shared_gpus(cluster, full):
        shares = [sharing(name, fraction="0.7") for name in ("a", "b")]
        for each in shares:
            each["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
        await cluster.submit(*shares)
        given = [(await seen(view, name))["main"] for name in ("a", "b")]
        assert sorted(given) == ["GPU-node-0-0", "GPU-node-0-1"]
