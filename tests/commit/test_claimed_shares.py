"""Parts of GPUs by claim: a crash at any write, and attempts on nodes that serve them otherwise."""

import asyncio

import pytest

from kai_py.api.gpu_reservation import VISIBLE_GPUS
from kai_py.api.gpu_share import SHARE_RESOURCE, GpuShare, SharedGpu, has_claimed_share, shared_gpus
from kai_py.api.records.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
)
from kai_py.plan.plan import Placement, Plan
from tests.commit.assume_cache import RecordingAssumeCache
from tests.commit.cluster import (
    DRIVER,
    NAMESPACE,
    Cluster,
    Crashed,
    gang_of,
    transaction,
)
from tests.commit.test_crash import Mortal, follow
from tests.commit.test_made_claims import making_claim

SIZE = 2
CALLS = 6 * SIZE
"""A create, a finalizer, an allocation, a status and a binding for each pod, and one more."""


def half_of(name: str) -> AllocationResult:
    """Half of the only GPU."""
    result = DeviceRequestAllocationResult(
        request="gpu-share",
        driver=DRIVER,
        pool="node-a",
        device="gpu-0",
        share_id=f"00000000-0000-4000-8000-00000000000{name[-1]}",
        consumed_capacity={"memory": "40Gi"},
    )
    return AllocationResult(devices=DeviceAllocationResult(results=(result,)))


def placement(cluster: Cluster, index: int) -> Placement:
    name = f"worker-{index}"
    pod = cluster.add_pod(
        name,
        containers=[
            {
                "name": "main",
                "image": "cuda",
                "resources": {
                    "limits": {SHARE_RESOURCE: "1"},
                    "requests": {SHARE_RESOURCE: "1"},
                },
            }
        ],
    )
    allocation = half_of(name)
    return making_claim(pod, f"{name}-share", "gpu-share", allocation, resource=SHARE_RESOURCE)


def plan_of(cluster: Cluster, placements: list[Placement]) -> Plan:
    """What the next cycle decides: the pods that are on no node get what they got before."""
    waiting = [each for each in placements if each.pod.name not in cluster.nodes()]
    return Plan(placements=(gang_of(*waiting),)) if waiting else Plan()


async def crash(cluster: Cluster, plan: Plan, transport: Mortal) -> None:
    committer = cluster.committer(RecordingAssumeCache(), transport=transport)
    committer.commit(plan, now=0.0)
    deaths = await asyncio.gather(*committer.tasks, return_exceptions=True)
    assert all(death is None or isinstance(death, Crashed) for death in deaths)


points = pytest.mark.parametrize(
    ("calls", "arrives"),
    [(calls, arrives) for calls in range(1, CALLS + 1) for arrives in (False, True)],
)


@points
async def test_after_a_crash_every_pod_has_one_claim_with_its_half(calls, arrives):
    cluster = Cluster()
    placements = [placement(cluster, index) for index in range(SIZE)]
    dying = Mortal(cluster, calls, last_arrives=arrives)
    await crash(cluster, plan_of(cluster, placements), dying)
    await follow(cluster, plan_of(cluster, placements))
    assert cluster.nodes() == {f"worker-{i}": "node-a" for i in range(SIZE)}
    assert len(cluster.claims()) == SIZE
    for index in range(SIZE):
        made = cluster.claim(f"worker-{index}-share")
        assert [user.name for user in made.status.reserved_for] == [f"worker-{index}"]
        [result] = made.status.allocation.devices.results
        assert dict(result.consumed_capacity) == {"memory": "40Gi"}
        assert has_claimed_share(cluster.pod(f"worker-{index}"))


@points
async def test_after_a_crash_nothing_is_kept_for_a_pod_that_is_not_placed_again(calls, arrives):
    cluster = Cluster()
    placements = [placement(cluster, index) for index in range(SIZE)]
    dying = Mortal(cluster, calls, last_arrives=arrives)
    await crash(cluster, plan_of(cluster, placements), dying)
    await follow(cluster, Plan())
    bound = {name.removeprefix("worker-") for name in cluster.nodes()}
    kept = {
        claim.metadata.name for claim in cluster.claims() if claim.status.allocation is not None
    }
    assert kept == {f"worker-{index}-share" for index in bound}


async def run(cluster: Cluster, *placements: Placement):
    begun = transaction(cluster, gang_of(*placements), find_pod=lambda ref: cluster.pod(ref.name))
    return await begun.run()


def by_device_plugin(by_claim: Placement) -> Placement:
    return Placement(
        by_claim.pod,
        "node-b",
        gpus=(SharedGpu("group-b", 0),),
        gpu_share=GpuShare(fraction=0.5),
    )


async def test_a_pod_that_goes_to_a_device_plugin_after_all_names_no_claim():
    """Its kubelet would wait for the claim, and its GPU would not count as shared."""
    cluster = Cluster()
    first = placement(cluster, 0)
    dying = Mortal(cluster, 5, last_arrives=False)
    await crash(cluster, plan_of(cluster, [first]), dying)
    assert has_claimed_share(cluster.pod("worker-0"))
    assert not cluster.nodes()
    outcome = await run(cluster, by_device_plugin(first))
    assert outcome.reason == ""
    pod = cluster.pod("worker-0")
    assert cluster.nodes() == {"worker-0": "node-b"}
    assert pod.status.extended_resource_claim_status is None
    assert [gpu.group for gpu in shared_gpus(pod)] == ["group-b"]


async def test_a_pod_that_gets_a_claim_after_all_names_no_gpu_of_a_device_plugin():
    cluster = Cluster()
    by_claim = placement(cluster, 0)
    metadata = {
        "labels": {"runai-gpu-group": "group-b"},
        "annotations": {VISIBLE_GPUS: "GPU-7", "scheduling.kai.io/gpu-index": "0"},
    }
    await cluster.access().client.patch(
        cluster.access().pods, "worker-0", {"metadata": metadata}, namespace=NAMESPACE
    )
    outcome = await run(cluster, by_claim)
    assert outcome.reason == ""
    pod = cluster.pod("worker-0")
    assert has_claimed_share(pod)
    assert shared_gpus(pod) == ()
    assert VISIBLE_GPUS not in pod.metadata.annotations
