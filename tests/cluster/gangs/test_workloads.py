"""Which pods start together, which one by one, and which not yet."""

import pytest

from tests.cluster.fake_kubelet import gpu_nodes
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.manifests import (
    IN_TEAM_A,
    MIN_AVAILABLE_KEY,
    POD_GROUP_KEY,
    TEMPLATE,
    claim,
    claim_template,
    gpu_request,
    job,
    pod,
    pod_spec,
    queue,
    replicated,
)
from tests.support.cluster.view import View, devices_of

pytestmark = pytest.mark.usefixtures("scheduler")


async def test_bare_pods_start_one_by_one(cluster: Cluster, view: View):
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=2)):
        await cluster.submit(queue(), claim_template(), *(pod(f"bare-{i}") for i in range(3)))
        await view.wait_bound("bare", 2)
        message = await view.wait_pending("bare", 1, reason="Unschedulable")
        assert message.startswith("0/1 nodes are available")


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet"])
async def test_replicas_start_one_by_one(cluster: Cluster, view: View, kind: str):
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=3)):
        await cluster.submit(queue(), claim_template(), replicated(kind, "web", 5))
        await view.wait_bound("web", 3)
        # A StatefulSet makes its next pod when the one before is ready.
        await view.wait_pending("web", 1 if kind == "StatefulSet" else 2, reason="Unschedulable")
        assert len(set(await view.held())) == 3


async def test_a_job_with_min_available_starts_with_so_many(cluster: Cluster, view: View):
    elastic = IN_TEAM_A | {MIN_AVAILABLE_KEY: "2"}
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=3)):
        await cluster.submit(queue(), claim_template(), job("elastic", 4, annotations=elastic))
        await view.wait_bound("elastic", 3)


async def test_pods_of_a_pod_group_start_when_min_available_exist(cluster: Cluster, view: View):
    ring = IN_TEAM_A | {POD_GROUP_KEY: "ring", MIN_AVAILABLE_KEY: "3"}
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=4)):
        await cluster.submit(queue(), claim_template())
        for index in range(2):
            await cluster.submit(pod(f"ring-{index}", annotations=ring))
        await view.wait_incomplete("ring", 2, note="minMember is 3; existing pods: 2.")
        await cluster.submit(pod("ring-2", annotations=ring))
        await view.wait_bound("ring", 3)
        await cluster.submit(pod("ring-3", annotations=ring))
        await view.wait_bound("ring", 4)


async def test_gated_pods_wait_and_the_gang_with_them(cluster: Cluster, view: View):
    ring = IN_TEAM_A | {POD_GROUP_KEY: "ring", MIN_AVAILABLE_KEY: "2"}
    gated = pod_spec(template=TEMPLATE, schedulingGates=[{"name": "kai-py.test/wait"}])
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=4)):
        await cluster.submit(queue(), claim_template())
        await cluster.submit(
            pod("ring-0", annotations=ring), pod("ring-1", gated, annotations=ring)
        )

        held_back = "minMember is 2; existing pods: 1, gated pods: 1 (by kai-py.test/wait)."
        await view.wait_incomplete("ring", 2, note=held_back)
        assert await view.bound("ring") == {}
        await cluster.api.patch(f"{view.path('pods')}/ring-1", {"spec": {"schedulingGates": None}})
        await view.wait_bound("ring", 2)


async def test_a_pod_of_another_scheduler_is_left_alone(cluster: Cluster, view: View):
    foreign = pod_spec(template=TEMPLATE, scheduler="other-scheduler")
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=1)):
        await cluster.submit(queue(), claim_template(), pod("foreign", foreign), pod("ours"))
        await view.wait_bound("ours", 1)
        assert await view.bound("foreign") == {}


async def test_pods_share_a_claim_by_name_on_its_node(cluster: Cluster, view: View):
    async with cluster.run_nodes(gpu_nodes(3, published_gpus=2)):
        await cluster.submit(queue(maxGPUs=8), claim("shared", gpu_request(count=2)))
        for index in range(3):
            await cluster.submit(pod(f"user-{index}", pod_spec(claim="shared")))
        bound = await view.wait_bound("user", 3)
        assert len(set(bound.values())) == 1
        (shared,) = await view.claims()
        assert len(devices_of(shared)) == 2
        users = {consumer["name"] for consumer in shared["status"]["reservedFor"]}
        assert users == set(bound)


def plugin_pod(name: str) -> Document:
    return pod(name, pod_spec(gpus=1))


def claiming_pod(name: str) -> Document:
    return pod(name, pod_spec(template=TEMPLATE))


@pytest.mark.parametrize(
    ("first", "second"), [(plugin_pod, claiming_pod), (claiming_pod, plugin_pod)]
)
async def test_limits_and_claims_share_the_gpus_of_a_node(
    cluster: Cluster, view: View, first, second
):
    """The device plugin and the DRA driver report the same four GPUs."""
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=4, plugin_gpus=4)):
        await cluster.submit(queue(), claim_template())
        await cluster.submit(*(first(f"first-{index}") for index in range(3)))
        await view.wait_bound("first", 3)
        await cluster.submit(*(second(f"second-{index}") for index in range(2)))
        await view.wait_bound("second", 1)
        await view.wait_pending("second", 1, reason="Unschedulable")
        # One that leaves frees capacity for the one that waits, whichever way it asks.
        await cluster.api.delete(f"{view.path('pods')}/first-0")
        await view.wait_bound("second", 2)
