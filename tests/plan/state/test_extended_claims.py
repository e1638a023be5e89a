"""`nvidia.com/gpu` in a container: served by a device plugin, or by a claim that is made."""

import pytest
from msgspec.structs import replace

from kai_py.api.records.resource import DeviceClassSpec
from kai_py.commit.dependencies import assumed_binding
from kai_py.grouping.owner_chain import GroupKind
from kai_py.plan.plan import Stage
from tests.support.executed_plans import carry_out
from tests.support.scenario import (
    cluster,
    device_class,
    device_slice,
    evicted,
    gpu_slice,
    job_with_pods,
    node,
    placed,
    pod,
    queue,
)

GPU = "nvidia.com/gpu"


def answering(name="gpu.nvidia.com", resource=GPU):
    return device_class(name, resource=resource)


def with_driver(name, gpus=8, **options):
    return [node(name, 0, **options), gpu_slice(name, gpus)]


def made(plan):
    """Pod to the devices of the claim that is made for it."""
    return {
        each.pod.name: [
            result.device for result in each.create_claim.claim.status.allocation.devices.results
        ]
        for gang in plan.placements
        for each in gang.pods
        if each.create_claim is not None
    }


def test_a_node_without_a_device_plugin_serves_by_a_claim_that_is_made():
    plan = cluster(answering(), *with_driver("n0"), queue("q", 8), pod("p", 2, queue="q")).plan()
    assert placed(plan) == {"p": "n0"}
    [[placement]] = [gang.pods for gang in plan.placements]
    claim = placement.create_claim.claim
    assert claim.metadata.name.startswith("p-extended-resources-")
    assert claim.metadata.annotations == {"resource.kubernetes.io/extended-resource-claim": "true"}
    [owner] = claim.metadata.owner_references
    assert (owner.kind, owner.uid, owner.controller) == ("Pod", "pod-p", True)
    [request] = claim.spec.devices.requests
    assert request.name == "container-0-request-1"
    assert request.exactly.count == 2
    assert len(made(plan)["p"]) == 2
    [use] = placement.create_claim.uses
    assert (use.container_name, use.resource_name) == ("main", GPU)
    assert plan.queues[0].allocated["gpu"] == 2


def test_a_node_with_a_device_plugin_serves_as_ever():
    plan = cluster(answering(), node("n0", 8), queue("q", 8), pod("p", 2, queue="q")).plan()
    assert placed(plan) == {"p": "n0"}
    assert made(plan) == {}


def test_nodes_with_a_device_plugin_go_first_so_that_claims_find_their_devices():
    kinds = [answering(), queue("team", 16), with_driver("a-driver"), node("b-plugin", 2)]
    plan = cluster(*kinds, *(pod(f"p{i}", 1, queue="team") for i in range(3))).plan()
    assert sorted(placed(plan).values()) == ["a-driver", "b-plugin", "b-plugin"]


@pytest.mark.parametrize("count", [3, 80])
def test_however_many_resources_a_pod_names_those_that_lack_are_claimed(count):
    names = [f"example.com/kind-{n:02}" for n in range(count)]
    bare, *driver = with_driver("n")
    reported = {**bare.status.allocatable, **dict.fromkeys(names[1:-1], "1")}
    most = replace(bare, status=replace(bare.status, allocatable=reported))
    world = cluster(
        queue("team", 0),
        most,
        driver,
        node("without", 0),
        [answering(f"class-{n}", name) for n, name in enumerate(names)],
        pod("p", 0, queue="team", requests=dict.fromkeys(names, "1")),
    )
    plan = world.plan()
    assert placed(plan) == {"p": "n"}
    assert len(made(plan)["p"]) == 2


def test_no_class_no_claim():
    plan = cluster(device_class(), *with_driver("n0"), queue("q", 8), pod("p", 2, queue="q")).plan()
    assert placed(plan) == {}
    assert "1 Insufficient nvidia.com/gpu" in plan.unplaced[0].message


def test_a_gang_may_straddle_both_kinds_of_nodes():
    world = cluster(
        answering(),
        *with_driver("driver", 4),
        node("plugin", 4),
        queue("q", 8),
        *job_with_pods("train", 8, queue="q"),
    )
    plan = world.plan()
    assert len(placed(plan)) == 8
    by_claim = made(plan)
    assert {placed(plan)[name] for name in by_claim} == {"driver"}
    assert len(by_claim) == 4
    assert len({device for devices in by_claim.values() for device in devices}) == 4
    assert plan.queues[0].allocated["gpu"] == 8


def test_nine_of_eight_do_not_start_and_both_reasons_are_told():
    plan = cluster(
        answering(),
        *with_driver("driver", 4),
        node("plugin", 4),
        queue("q", 9),
        *job_with_pods("train", 9, queue="q"),
    ).plan()
    assert placed(plan) == {}
    assert plan.unplaced[0].stage is Stage.DEVICES
    assert "insufficient allocatable devices" in plan.unplaced[0].message


def test_the_implicit_name_of_a_class_is_served_and_counts_as_gpu():
    implicit = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
    plan = cluster(
        device_class(),
        *with_driver("n0", 2),
        queue("q", 8),
        pod("p", 0, queue="q", requests={implicit: "2"}),
    ).plan()
    assert len(made(plan)["p"]) == 2
    assert plan.queues[0].allocated["gpu"] == 2


def test_limits_by_class_hold_whoever_serves():
    limited = queue("q", 8, devices=[{"name": "x", "deviceClassName": "gpu.nvidia.com", "max": 2}])
    for hardware in (with_driver("n0"), [node("n0", 8)]):
        plan = cluster(answering(), *hardware, limited, pod("p", 3, queue="q")).plan()
        assert plan.unplaced[0].stage is Stage.QUEUE_MAX


def test_w15_what_is_being_made_is_not_given_again_and_comes_back_when_forgotten():
    world = cluster(answering(), *with_driver("n0", 2), queue("q", 8), pod("a", 2, queue="q"))
    [[first]] = [gang.pods for gang in world.plan().placements]
    world.builder.assume(assumed_binding(first))
    world.add(pod("b", 2, queue="q", created=1))
    assert placed(world.plan()) == {}
    unallocated = replace(
        first.create_claim.claim,
        metadata=replace(first.create_claim.claim.metadata, uid="real"),
        status=type(first.create_claim.claim.status)(),
    )
    world.add(unallocated)
    assert placed(world.plan()) == {}, "the claim exists, its allocation is being written"
    world.builder.forget(first.pod.uid)
    assert placed(world.plan()) == {"a": "n0"}


def test_a_victim_frees_the_devices_of_its_claim():
    world = cluster(
        answering(), *with_driver("n0", 2), queue("q", 8), pod("low", 2, queue="q", priority=1)
    )
    carry_out(world, world.plan())
    world.add(pod("high", 2, queue="q", priority=9, created=5))
    plan = world.plan()
    assert evicted(plan) == ["low"]
    assert [each.pod.name for each in plan.nominations] == ["high"]


def test_a_class_that_appears_later_lets_the_pod_start():
    world = cluster(*with_driver("n0"), queue("q", 8), pod("p", 2, queue="q"))
    assert placed(world.plan()) == {}
    world.add(answering())
    assert placed(world.plan()) == {"p": "n0"}
    world.add(replace(answering(), spec=DeviceClassSpec()))
    assert placed(world.plan()) == {}


def test_pods_that_share_a_device_get_shares_of_their_own():
    device = {"name": "card", "allowMultipleAllocations": True}
    shared = device_slice("n0", [device])
    plan = cluster(
        answering(), node("n0", 0), shared, queue("q", 8), *job_with_pods("train", 3, queue="q")
    ).plan()
    shares = [
        result.share_id
        for gang in plan.placements
        for each in gang.pods
        for result in each.create_claim.claim.status.allocation.devices.results
    ]
    assert len(set(shares)) == len(shares) == 3


def test_what_lacks_is_told_by_container_and_resource():
    """Not by the claim that is made, which no manifest names."""
    world = cluster(answering(), *with_driver("n0"), queue("q", 16), pod("p", 9, queue="q"))
    [found] = world.plan().unplaced
    assert "container main, nvidia.com/gpu: insufficient allocatable devices" in found.message
    assert "container-0" not in found.message
    assert "<" not in found.message


def test_while_claims_may_not_be_read_no_device_counts_as_idle():
    world = cluster(answering(), *with_driver("n0"), queue("q", 8), pod("p", 2, queue="q"))
    claims = GroupKind("resource.k8s.io", "ResourceClaim")
    world.builder.set_owner_kind(claims, readable=False)
    assert not placed(world.plan(0))
    world.builder.set_owner_kind(claims, readable=True)
    assert placed(world.plan(1000)) == {"p": "n0"}
