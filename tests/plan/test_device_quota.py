"""Queues limited by DeviceClass: who may hold how many devices of which class."""

from msgspec.structs import replace

from kai_py.plan.decisions import Stage
from tests.scenario import (
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


def test_a_limit_by_attribute_is_reported_not_silently_disregarded():
    entry = {"name": "h", "attribute": "gpu.nvidia.com/productName", "values": ["H100"], "max": 1}
    plan = cluster(*hardware(queue("team", 16, devices=[entry]))).plan()
    [share] = plan.queues
    assert "devices[h] limits by attribute, which is not enforced" in str(share.problems)
