"""Parts of GPUs of a DRA driver: a claim is made, its amount follows the GPUs of the node."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.api.gpu_share import SHARE_RESOURCE, GpuShare
from kai_py.api.quantity import parse_quantity
from kai_py.api.records.resource import DeviceCapacity
from kai_py.commit.dependencies import assumed_binding
from kai_py.dra.capacity import consumed_capacity, parse_capacity
from kai_py.dra.divisible_gpus import DivisibleGpu, share_request
from kai_py.plan.plan import Stage
from tests.support.executed_plans import carry_out
from tests.support.records import from_json
from tests.support.scenario import (
    cluster,
    device_class,
    device_slice,
    evicted,
    job_with_pods,
    node,
    placed,
    pod,
    queue,
    shared,
)

GPU = "nvidia.com/gpu"
GIB = 2**30


def serving(resource=GPU):
    return device_class(resource=resource)


def card(name, memory, *, uuid="", shareable=True, policy=None, **capacity):
    amounts = {"memory": {"value": memory}} if memory else {}
    amounts |= {key: {"value": value} for key, value in capacity.items()}
    if policy:
        amounts["memory"]["requestPolicy"] = policy
    return {
        "name": name,
        "allowMultipleAllocations": shareable,
        "attributes": {"type": {"string": "gpu"}} | ({"uuid": {"string": uuid}} if uuid else {}),
        "capacity": amounts,
    }


def driver_node(name="n0", *memories, **options):
    cards = [
        card(f"gpu-{i}", memory, uuid=f"GPU-{name}-{i}", **options)
        for i, memory in enumerate(memories)
    ]
    return [node(name, 0), device_slice(name, cards)]


def part(name, fraction="", *, seen=True, **options):
    """A pod with a part of a GPU, as the webhook leaves it if it has seen it."""
    marks = {
        key: options.pop(key)
        for key in ("gpu_memory", "gpu_fraction_num_devices")
        if key in options
    }
    requests = {SHARE_RESOURCE: "1"} if seen else {}
    return shared(pod(name, 0, queue="q", requests=requests, **options), fraction, **marks)


def claimed(plan):
    """By pod, the devices of the claim that is made for it, each with what it consumes."""
    return {
        each.pod.name: [
            (result.device, dict(result.consumed_capacity))
            for result in each.create_claim.claim.status.allocation.devices.results
        ]
        for gang in plan.placements
        for each in gang.pods
        if each.create_claim is not None
    }


def test_a_fraction_claims_that_part_of_the_memory_of_a_gpu_of_the_node():
    world = cluster(serving(), queue("q", 8), *driver_node("n0", "80Gi"), part("p", "0.5"))
    plan = world.plan()
    assert placed(plan) == {"p": "n0"}
    assert claimed(plan) == {"p": [("gpu-0", {"memory": "40Gi"})]}
    [[placement]] = [gang.pods for gang in plan.placements]
    assert placement.gpus == ()
    [request] = placement.create_claim.claim.spec.devices.requests
    assert request.exactly.selectors[0].cel.expression == "device.allowMultipleAllocations"
    [use] = placement.create_claim.uses
    assert (use.container_name, use.resource_name, use.request_name) == (
        "main",
        SHARE_RESOURCE,
        request.name,
    )
    assert plan.queues[0].allocated["gpu"] == 0.5


def test_parts_fill_a_gpu_and_no_more():
    parts = [part(f"p{i}", "0.25") for i in range(9)]
    plan = cluster(serving(), queue("q", 8), *driver_node("n0", "81559Mi", "81559Mi"), parts).plan()
    assert len(placed(plan)) == 8
    on = [device for given in claimed(plan).values() for device, _ in given]
    assert sorted(on) == ["gpu-0"] * 4 + ["gpu-1"] * 4
    assert plan.queues[0].allocated["gpu"] == 2
    [waiting] = plan.unplaced
    assert waiting.stage is Stage.DEVICES


def test_an_amount_is_claimed_as_written_and_charged_by_the_gpu_that_it_is_of():
    mixed = [*driver_node("n0", "80Gi"), *driver_node("n1", "16Gi")]
    plan = cluster(serving(), queue("q", 8), mixed, part("p", gpu_memory="20480")).plan()
    assert claimed(plan) == {"p": [("gpu-0", {"memory": "20Gi"})]}
    assert plan.queues[0].allocated["gpu"] == 0.25


def test_a_limit_of_the_queue_is_asked_by_the_part():
    world = cluster(serving(), queue("q", 1, 1), *driver_node("n0", "80Gi", "80Gi"))
    plan = world.add(*[part(f"p{i}", "0.5") for i in range(3)]).plan()
    assert len(placed(plan)) == 2
    assert plan.unplaced[0].stage is Stage.QUEUE_MAX


def test_parts_of_several_gpus_are_on_distinct_ones():
    world = cluster(serving(), queue("q", 8), *driver_node("n0", "80Gi", "80Gi"))
    plan = world.add(part("p", "0.5", gpu_fraction_num_devices="2")).plan()
    assert sorted(device for device, _ in claimed(plan)["p"]) == ["gpu-0", "gpu-1"]
    assert plan.queues[0].allocated["gpu"] == 1.0
    [[placement]] = [gang.pods for gang in plan.placements]
    [constraint] = placement.create_claim.claim.spec.devices.constraints
    assert constraint.distinct_attribute == "gpu.nvidia.com/uuid"
    more = cluster(serving(), queue("q", 8), *driver_node("n0", "80Gi", "80Gi"))
    assert not more.add(part("p", "0.5", gpu_fraction_num_devices="3")).plan().placements


def test_gpus_of_several_sizes_each_give_the_same_fraction():
    world = cluster(serving(), queue("q", 8), *driver_node("n0", "80Gi", "40Gi"))
    plan = world.add(*[part(f"p{i}", "0.5") for i in range(4)]).plan()
    given = [each for found in claimed(plan).values() for each in found]
    assert sorted((device, amounts["memory"]) for device, amounts in given) == [
        ("gpu-0", "40Gi"),
        ("gpu-0", "40Gi"),
        ("gpu-1", "20Gi"),
        ("gpu-1", "20Gi"),
    ]
    assert plan.queues[0].allocated["gpu"] == 2


def test_every_capacity_is_divided_alike():
    """A capacity that is not requested would be consumed whole."""
    world = cluster(serving(), queue("q", 8), *driver_node("n0", "80Gi", cores="100"))
    plan = world.add(part("a", "0.5"), part("b", gpu_memory="40960")).plan()
    assert claimed(plan) == {
        name: [("gpu-0", {"memory": "40Gi", "cores": "50"})] for name in ("a", "b")
    }


def test_each_node_decides_how_it_serves():
    kinds = [serving(), queue("q", 8), node("plugin", 1), *driver_node("driver", "80Gi")]
    plan = cluster(*kinds, *(part(f"p{i}", "0.5") for i in range(4))).plan()
    by_node = sorted(placed(plan).values())
    assert by_node == ["driver", "driver", "plugin", "plugin"]
    for gang in plan.placements:
        for each in gang.pods:
            assert bool(each.gpus) == (each.node == "plugin") != bool(each.create_claim)


def test_a_whole_device_is_never_taken_by_a_part():
    """A capacity request alone would also be met by a device that is allocated whole."""
    world = cluster(serving(), queue("q", 8), *driver_node("n0", "80Gi", shareable=False))
    plan = world.add(part("p", "0.5")).plan()
    assert not plan.placements
    assert "1 have no GPUs of a device plugin" in plan.unplaced[0].message
    assert "nor GPUs of a DRA driver that allow multiple allocations" in plan.unplaced[0].message


@pytest.mark.parametrize(
    ("objects", "seen"), [([serving()], False), ([serving("example.com/other")], True)]
)
def test_what_is_missing_is_said(objects, seen):
    world = cluster(
        *objects, queue("q", 8), *driver_node("n0", "80Gi"), part("p", "0.5", seen=seen)
    )
    [waiting] = world.plan().unplaced
    assert "no webhook of kai-py has seen the pod, or no DeviceClass serves" in waiting.message


def test_without_a_uuid_parts_of_several_gpus_are_not_claimed():
    same = device_slice("n0", [card("gpu-0", "80Gi"), card("gpu-1", "80Gi")])
    world = cluster(serving(), queue("q", 8), node("n0", 0), same)
    plan = world.add(part("two", "0.5", gpu_fraction_num_devices="2"), part("one", "0.5")).plan()
    assert placed(plan) == {"one": "n0"}
    assert "for parts of several GPUs, a uuid" in plan.unplaced[0].message


def test_running_parts_count_after_a_restart_and_a_victim_frees_its_part():
    world = cluster(serving(), queue("q", 8), *driver_node("n0", "80Gi"), part("low", "0.6"))
    carry_out(world, world.plan())
    again = cluster(*world.all())
    snapshot = again.snapshot()
    assert snapshot.gpu_sharing.rows.size == 0, "no GPU of a device plugin"
    plan = again.add(part("high", "0.5", priority=9, created=5)).plan()
    assert evicted(plan) == ["low"]
    assert [each.pod.name for each in plan.nominations] == ["high"]
    assert placed(again.add(part("small", "0.4", created=6)).plan()) in ({}, {"small": "n0"})


def test_what_is_being_made_is_not_given_again_and_comes_back_when_forgotten():
    world = cluster(serving(), queue("q", 8), *driver_node("n0", "80Gi"), part("a", "0.6"))
    [[first]] = [gang.pods for gang in world.plan().placements]
    world.builder.assume(assumed_binding(first))
    assert world.snapshot().gpu_sharing.rows.size == 0
    world.add(part("b", "0.6", created=1))
    assert placed(world.plan()) == {}
    world.builder.forget(first.pod.uid)
    assert placed(world.plan()) == {"a": "n0"}


def test_a_gang_of_parts_starts_whole_or_not_at_all():
    def workers(count):
        owner, *pods = job_with_pods("train", count, 0, queue="q", requests={SHARE_RESOURCE: "1"})
        return [owner, *(shared(each, "0.5") for each in pods)]

    hardware = [serving(), queue("q", 8), *driver_node("n0", "80Gi"), *driver_node("n1", "40Gi")]
    assert len(placed(cluster(*hardware, *workers(4)).plan())) == 4
    assert placed(cluster(*hardware, *workers(5)).plan()) == {}


@st.composite
def capacities(draw):
    value = draw(st.integers(1, 100))
    kind = draw(st.sampled_from(("none", "range", "values")))
    policy = None
    if kind == "range":
        least = draw(st.integers(1, value))
        step = draw(st.integers(1, value))
        policy = {"default": str(value), "validRange": {"min": f"{least}Gi", "step": f"{step}Gi"}}
    elif kind == "values":
        values = sorted(draw(st.sets(st.integers(1, value), min_size=1, max_size=5)))
        policy = {"default": f"{values[-1]}Gi", "validValues": [f"{each}Gi" for each in values]}
    document = {"value": f"{value}Gi"} | ({"requestPolicy": policy} if policy else {})
    return parse_capacity("memory", from_json(DeviceCapacity, document))


@given(capacities(), st.integers(1, 999_999_999))
def test_what_is_asked_for_is_what_the_policy_gives_out(capacity, billionths):
    """So the request is consumed as written, and is no more than the fraction or the least."""
    gpu = DivisibleGpu("gpu.nvidia.com", capacity.value, (capacity,), "")
    share = GpuShare(fraction=billionths / 1e9)
    request = share_request("gpu-share", "gpu", share, [gpu]).exactly
    asked = parse_quantity(request.capacity.requests["memory"]).nano
    assert consumed_capacity((capacity,), {"memory": asked}, fractional=True) == (
        ("memory", asked),
    )
    least = capacity.range.min if capacity.range else min(capacity.valid_values, default=10**9)
    assert asked <= max(billionths * capacity.value // 10**9, least)


@given(capacities(), st.integers(2, 50))
def test_as_many_equal_fractions_fit_as_the_policy_permits(capacity, count):
    gpu = DivisibleGpu("gpu.nvidia.com", capacity.value, (capacity,), "")
    share = GpuShare(fraction=float(f"{1 / count - 5e-10:.9f}"))
    request = share_request("gpu-share", "gpu", share, [gpu]).exactly
    asked = parse_quantity(request.capacity.requests["memory"]).nano
    least = capacity.range.min if capacity.range else min(capacity.valid_values, default=1)
    assert asked * count <= capacity.value or asked == least
