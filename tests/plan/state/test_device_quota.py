"""Queues limited by DeviceClass: how many devices of each class they may have allocated."""

import pytest
from msgspec.structs import replace

from kai_py.api.records.resource import DeviceAttribute
from kai_py.plan.plan import Stage
from kai_py.snapshot.tables.queues import QueueFault
from tests.support.records import from_json
from tests.support.scenario import (
    claim,
    claiming,
    claiming_job,
    cluster,
    device_class,
    evicted,
    gpu_slice,
    node,
    placed,
    pod,
    queue,
)

FAST = "h100"


def hardware(*extra):
    """Eight H100 and eight A100, a class for each, and one for both."""
    products = {"h100": "H100", "a100": "A100"}
    made = [device_class()]
    for name, product in products.items():
        expression = f'device.attributes["gpu.nvidia.com"].productName == "{product}"'
        made += [
            device_class(name, expression),
            node(f"n-{name}", 0),
            gpu_slice(f"n-{name}", 8, product),
        ]
    return [*made, *extra]


def of_class(objects, name):
    """The same objects, their claims asking for devices of class ``name``."""
    return [
        _asking(each, name) if type(each).__name__ == "ResourceClaim" else each for each in objects
    ]


def _asking(made, name):
    [request] = made.spec.devices.requests
    exactly = replace(request.exactly, device_class_name=name)
    devices = replace(made.spec.devices, requests=(replace(request, exactly=exactly),))
    return replace(made, spec=replace(made.spec, devices=devices))


def limited(name="team", **entry):
    share = {"name": "fast", "deviceClassName": FAST} | entry
    return queue(name, 8, devices=[share])


def test_a_queue_gets_no_more_devices_of_a_class_than_its_max():
    world = cluster(
        *hardware(limited(max=3)),
        of_class(claiming_job("four", 4, queue="team"), FAST),
        of_class(claiming_job("three", 3, queue="team", created=1), FAST),
        of_class(claiming_job("other", 8, queue="team", created=2), "a100"),
    )
    plan = world.plan()
    assert {name.split("-")[0] for name in placed(plan)} == {"three", "other"}
    [waits] = plan.unplaced
    assert waits.stage is Stage.QUEUE_MAX
    assert "team quota has reached the allowable limit of devices of class h100" in waits.message
    assert "Limit is 3 devices of class h100" in waits.message


def test_an_allocated_claim_counts_by_the_class_of_the_request_it_serves():
    held = claim("held", 2, held_by=["p"], on=[("n-h100", "gpu-0"), ("n-h100", "gpu-1")], owner="p")
    running = claiming(pod("p", 0, queue="team", node="n-h100"), "held")
    world = cluster(
        *hardware(limited(max=3)),
        of_class([held], FAST),
        running,
        of_class(claiming_job("two", 2, queue="team", created=1), FAST),
    )
    plan = world.plan()
    assert placed(plan) == {}
    [share] = plan.queues
    assert share.allocated[f"deviceclass/{FAST}"] == 2


def test_a_queue_takes_back_the_devices_of_a_class_that_it_deserves():
    world = cluster(*hardware(limited("mine", deserved=2), queue("other", 8)))
    for i in range(8):
        held = claim(f"o{i}-gpu", owner=f"o{i}", held_by=[f"o{i}"], on=[("n-h100", f"gpu-{i}")])
        running = claiming(pod(f"o{i}", 0, queue="other", node="n-h100", created=i), f"o{i}-gpu")
        world.add(of_class([held], FAST), running)
    world.add(of_class(claiming_job("job", 2, queue="mine", created=50), FAST))
    plan = world.plan()
    assert len(evicted(plan)) == 2
    assert len(plan.nominations) == 2


PRODUCT = "gpu.nvidia.com/productName"


def by_product(*values, name="team", **entry):
    share = {"name": "h", "attribute": PRODUCT, "values": list(values)} | entry
    return queue(name, 16, devices=[share])


def test_a_limit_by_product_holds_whatever_class_is_asked():
    world = cluster(
        *hardware(by_product("H100", max=3)),
        of_class(claiming_job("four", 4, queue="team"), FAST),
        claiming_job("three", 3, queue="team", created=1),
        of_class(claiming_job("other", 5, queue="team", created=2), "a100"),
    )
    plan = world.plan()
    assert {name.split("-")[0] for name in placed(plan)} == {"three", "other"}
    [waits] = plan.unplaced
    assert waits.stage is Stage.QUEUE_MAX
    assert f"Limit is 3 devices with {PRODUCT} H100" in waits.message


def test_selectors_of_a_request_tell_what_it_may_get():
    [made] = [claim("c", 4, selector='device.attributes["gpu.nvidia.com"].productName == "A100"')]
    world = cluster(*hardware(by_product("H100", max=1)))
    world.add(made, claiming(pod("p", 0, queue="team"), "c", template=False))
    assert placed(world.plan()) == {"p": "n-a100"}


def test_once_allocated_a_claim_counts_by_what_it_got():
    held = claim("held", 2, held_by=["p"], on=[("n-a100", "gpu-0"), ("n-a100", "gpu-1")], owner="p")
    running = claiming(pod("p", 0, queue="team", node="n-a100"), "held")
    world = cluster(
        *hardware(by_product("H100", max=2)),
        held,
        running,
        of_class(claiming_job("two", 2, queue="team", created=1), FAST),
    )
    plan = world.plan()
    assert sorted(placed(plan)) == ["two-0", "two-1"]
    [share] = plan.queues
    assert share.allocated[f"deviceattribute/{PRODUCT}=H100"] == 2


def test_a_limit_that_is_written_later_counts_running_pods():
    held = claim("held", 2, held_by=["p"], on=[("n-h100", "gpu-0"), ("n-h100", "gpu-1")], owner="p")
    running = claiming(pod("p", 0, queue="team", node="n-h100"), "held")
    world = cluster(*hardware(queue("team", 16)), held, running)
    world.plan()
    world.add(by_product("A100", "H100", max=9))
    [share] = world.plan().queues
    assert share.allocated[f"deviceattribute/{PRODUCT}=A100|H100"] == 2


def test_a_limit_by_memory_is_one_by_capacity():
    share = {"name": "m", "attribute": "gpu.nvidia.com/memory", "values": ["81559Mi"], "max": 1}
    world = cluster(*hardware(queue("team", 16, devices=[share])))
    world.add(claiming_job("two", 2, queue="team"), claiming_job("one", 1, queue="team", created=1))
    assert sorted(placed(world.plan())) == ["one-0"]


def test_w12_all_devices_cost_as_many_as_a_node_may_give():
    [everything] = of_class([claim("c")], FAST)
    [request] = everything.spec.devices.requests
    asked = replace(request.exactly, allocation_mode="All")
    devices = replace(everything.spec.devices, requests=(replace(request, exactly=asked),))
    world = cluster(*hardware(limited(max=7)))
    world.add(replace(everything, spec=replace(everything.spec, devices=devices)))
    world.add(claiming(pod("p", 0, queue="team"), "c", template=False))
    [waits] = world.plan().unplaced
    assert waits.stage is Stage.QUEUE_MAX
    assert "workload requested 8 devices of class h100" in waits.message
    world.add(limited(max=8))
    assert placed(world.plan()) == {"p": "n-h100"}


IS_H100 = 'device.attributes["gpu.nvidia.com"].productName == "H100"'


def by_selector(*limits, **spec):
    entries = [{"selector": selector, "max": most} for selector, most in limits]
    return queue("team", 16, limits=entries, **spec)


def test_a_limit_by_selector_holds_whatever_class_is_asked():
    world = cluster(
        *hardware(by_selector((IS_H100, 3))),
        of_class(claiming_job("four", 4, queue="team"), FAST),
        of_class(claiming_job("three", 3, queue="team", created=1), FAST),
        of_class(claiming_job("other", 5, queue="team", created=2), "a100"),
    )
    plan = world.plan()
    assert {name.split("-")[0] for name in placed(plan)} == {"three", "other"}
    [waits] = plan.unplaced
    assert waits.stage is Stage.QUEUE_MAX
    assert f"Limit is 3 devices with {IS_H100}, currently 0" in waits.message


def test_a_selector_by_memory_or_over_all_devices_bounds_what_runs():
    memory = 'device.capacity["gpu.nvidia.com"].memory.isLessThan(quantity("100Gi"))'
    for selector in (memory, "true"):
        world = cluster(*hardware(by_selector((selector, 9))))
        world.add(claiming_job("a", 8, queue="team"), claiming_job("b", 2, queue="team", created=1))
        world.add(claiming_job("c", 1, queue="team", created=2))
        assert {name.split("-")[0] for name in placed(world.plan())} == {"a", "c"}


def test_a_limit_by_selector_guarantees_and_rations_nothing():
    """Whole-GPU jobs of another queue, and such as may not be preempted, are as before."""
    world = cluster(*hardware(by_selector((IS_H100, 1)), queue("other", 8)))
    fixed = {"scheduling.kai.io/preemptibility": "non-preemptible"}
    world.add(of_class(claiming_job("train", 8, queue="other", annotations=fixed), FAST))
    assert len(placed(world.plan())) == 8


def test_a_selector_that_fails_on_a_device_does_not_count_it():
    elsewhere = 'device.attributes["gpu.amd.com"].family == "AI"'
    world = cluster(*hardware(by_selector((elsewhere, 0))))
    world.add(claiming_job("train", 8, queue="team"))
    assert len(placed(world.plan())) == 8


def test_a_selector_that_does_not_compile_limits_nothing_and_the_queue_says_so():
    world = cluster(*hardware(by_selector(("device.model == 1", 0))))
    world.add(claiming_job("train", 8, queue="team"))
    plan = world.plan()
    assert len(placed(plan)) == 8
    [report] = plan.queues
    [problem] = report.problems
    assert problem.fault is QueueFault.INVALID_SELECTOR
    assert "undefined field 'model'" in problem.reason


@pytest.mark.parametrize("gpu", [0, 5])
def test_a_limit_may_name_what_tells_equal_devices_apart(gpu):
    root = f'device.attributes["resource.kubernetes.io"].pcieRoot == "pci0000:{gpu // 4}"'
    uuid = f'device.attributes["gpu.nvidia.com"].uuid == "GPU-n-h100-{gpu}"'
    named = {"name": "g", "attribute": "gpu.nvidia.com/uuid", "values": [f"GPU-n-h100-{gpu}"]}
    by_uuid = queue("team", 16, devices=[named | {"max": 0}])
    for limits in (by_selector((root, 3)), by_selector((uuid, 0)), by_uuid):
        world = cluster(*hardware(limits))
        world.add(of_class(claiming_job("all", 8, queue="team"), FAST))
        assert placed(world.plan()) == {}


def test_a_device_that_is_published_with_another_uuid_counts_again():
    uuid = 'device.attributes["gpu.nvidia.com"].uuid == "GPU-n-0"'
    world = cluster(device_class(), node("n", 0), gpu_slice("n", 1), by_selector((uuid, 0)))
    world.add(claiming_job("train", 1, queue="team"))
    assert placed(world.plan()) == {}
    slot = gpu_slice("n", 1)
    attributes = slot.spec.devices[0].attributes | {"uuid": DeviceAttribute(string_value="GPU-2")}
    devices = (replace(slot.spec.devices[0], attributes=attributes),)
    world.add(replace(slot, spec=replace(slot.spec, devices=devices)))
    assert placed(world.plan()) == {"train-0": "n"}


def test_alternatives_beyond_a_limit_by_selector_are_closed():
    made = claim("c", owner="p")
    options = [
        {"name": "fast", "deviceClassName": FAST},
        {"name": "slow", "deviceClassName": "a100"},
    ]
    requests = {"devices": {"requests": [{"name": "gpu", "firstAvailable": options}]}}
    spec = from_json(type(made), {"metadata": {}, "spec": requests}).spec
    world = cluster(*hardware(by_selector((IS_H100, 0))), replace(made, spec=spec))
    world.add(claiming(pod("p", 0, queue="team"), "c"))
    assert placed(world.plan()) == {"p": "n-a100"}
