"""Pods that lost a device restart elsewhere: alone where their gang works without, else whole."""

import pytest
from msgspec.structs import replace

from kai_py.api.records.core import ContainerStatus, ObjectMeta, ResourceHealth, ResourceStatus
from kai_py.api.records.resource import DeviceTaint, DeviceToleration
from kai_py.api.records.resource_admin import (
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
)
from kai_py.relevance import affects_plan
from tests.support.records import from_json
from tests.support.scenario import (
    claim,
    claiming,
    cluster,
    device_class,
    evicted,
    gpu_slice,
    job,
    node,
    placed,
    pod,
    queue,
)

GPU = "nvidia.com/gpu"


def reporting(each, health="Unhealthy", name=GPU, device="GPU-1"):
    """``each`` as its kubelet reports a device of it."""
    found = ResourceStatus(name, (ResourceHealth(resource_id=device, health=health),))
    status = ContainerStatus(allocated_resources_status=(found,))
    return replace(each, status=replace(each.status, container_statuses=(status,)))


def running(count, **annotations):
    owner = job("train", count, "q", **annotations)
    return owner, [pod(f"train-{n}", 1, owner=owner, node="a") for n in range(count)]


def test_a_gang_that_lost_a_device_restarts_whole_and_says_why():
    owner, (first, *others) = running(3)
    world = cluster(queue("q", 8), node("a", 4), owner, reporting(first), *others)
    plan = world.plan()
    assert evicted(plan) == ["train-0", "train-1", "train-2"]
    reasons = {each.pod.name: each.reason for each in plan.evictions}
    said = "the kubelet reports device GPU-1 of pod default/train-0 as unhealthy"
    assert reasons["train-0"] == said
    assert reasons["train-1"] == f"{said}; the gang restarts whole"


def test_a_gang_above_its_minimum_loses_the_pod_alone():
    minimum = {"scheduling.kai.io/min-available": "2"}
    owner, (first, *others) = running(3, **minimum)
    world = cluster(queue("q", 8), node("a", 4), owner, reporting(first), *others)
    assert evicted(world.plan()) == ["train-0"]


@pytest.mark.parametrize("health", ["Healthy", "Unknown", ""])
def test_nothing_else_is_a_reason(health):
    owner, (first, *others) = running(2)
    world = cluster(queue("q", 8), node("a", 4), owner, reporting(first, health), *others)
    assert evicted(world.plan()) == []


def test_a_report_is_relevant():
    alone = pod("p", 1, queue="q", node="a")
    assert affects_plan(alone, reporting(alone))
    assert not affects_plan(reporting(alone), reporting(alone))


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("claim:gpu", "gpu.nvidia.com/a/gpu-0"),
        ("claim:gpu/gpu", "k8s.gpu.nvidia.com/device=gpu-0"),
        ("claim:gpu", "whatever the driver calls it"),
    ],
)
def test_a_device_of_a_claim_that_was_lost_is_given_to_no_other_pod(name, device):
    held = claim("held", owner="runs", held_by=["runs"], on=[("a", "gpu-0")])
    runs = claiming(pod("runs", 0, queue="q", node="a"), "held", template=False)
    world = cluster(
        queue("q", 8),
        node("a", 0),
        gpu_slice("a", 2),
        device_class(),
        held,
        reporting(runs, name=name, device=device),
    )
    assert evicted(world.plan(1000.0)) == ["runs"]
    world.remove(world.get("pods", "runs"), held)
    waiting = [claim(f"c{n}") for n in range(2)]
    pods = [claiming(pod(f"p{n}", 0, queue="q"), f"c{n}", template=False) for n in range(2)]
    plan = world.add(*waiting, *pods).plan(1001.0)
    assert len(placed(plan)) == 1
    assert "scheduling.kai.io/device-unhealthy=Unhealthy" in plan.unplaced[0].message
    assert len(placed(world.plan(1700.0))) == 2


def on_devices(minimum, **tainting):
    """A gang of two pods with a device each, and two devices more."""
    owner = job(
        "train", 2, "q", **({"scheduling.kai.io/min-available": minimum} if minimum else {})
    )
    made = [owner]
    for n in range(2):
        held = claim(f"c{n}", owner=f"p{n}", held_by=[f"p{n}"], on=[("a", f"gpu-{n}")])
        made += [held, claiming(pod(f"p{n}", 0, owner=owner, node="a"), f"c{n}", template=False)]
    return cluster(queue("q", 8), node("a", 0), device_class(), tainted_slice(**tainting), *made)


def tainted_slice(**tainting):
    """Four devices, of which the first has a taint."""
    taint = DeviceTaint(key="example.com/broken", **({"effect": "NoExecute"} | tainting))
    made = gpu_slice("a", 4)
    first, *others = made.spec.devices
    return replace(
        made, spec=replace(made.spec, devices=(replace(first, taints=(taint,)), *others))
    )


def test_a_taint_that_ends_pods_ends_the_gang_that_needs_them():
    plan = on_devices("").plan()
    assert evicted(plan) == ["p0", "p1"]
    said = "device gpu.nvidia.com/a/gpu-0 of pod default/p0 has taint example.com/broken:NoExecute"
    assert {each.reason for each in plan.evictions} == {said, f"{said}; the gang restarts whole"}
    assert evicted(on_devices("1").plan()) == ["p0"]
    assert evicted(on_devices("", effect="NoSchedule").plan()) == []


@pytest.mark.parametrize("seconds", [None, 60])
def test_a_taint_that_the_claim_tolerates_does_not(seconds):
    made = on_devices("")
    held = made.get("resourceclaims", "c0")
    toleration = DeviceToleration(operator="Exists", toleration_seconds=seconds)
    [result] = held.status.allocation.devices.results
    results = (replace(result, tolerations=(toleration,)),)
    devices = replace(held.status.allocation.devices, results=results)
    allocation = replace(held.status.allocation, devices=devices)
    made.add(replace(held, status=replace(held.status, allocation=allocation)))
    assert evicted(made.plan()) == []


def test_a_rule_taints_as_a_driver_does():
    made = on_devices("", effect="None")
    assert evicted(made.plan()) == []
    selector = DeviceTaintSelector(driver="gpu.nvidia.com", pool="a", device="gpu-1")
    taint = DeviceTaint(key="example.com/repair", effect="NoExecute")
    rule = DeviceTaintRule(
        metadata=ObjectMeta(name="repair"),
        spec=DeviceTaintRuleSpec(device_selector=selector, taint=taint),
    )
    made.builder.apply("devicetaintrules", None, rule)
    assert evicted(made.plan()) == ["p0", "p1"]


def rule(**selector):
    return from_json(
        DeviceTaintRule,
        {
            "metadata": {"name": "rule"},
            "spec": {
                "deviceSelector": selector,
                "taint": {"key": "example.com/repair", "effect": "NoExecute"},
            },
        },
    )


def cel(*expressions):
    return [{"cel": {"expression": each}} for each in expressions]


@pytest.mark.parametrize(
    ("selector", "ended"),
    [
        ({"selectors": cel('device.driver == "gpu.nvidia.com"')}, ["p0", "p1"]),
        ({"selectors": cel('device.driver == "other.example.com"')}, []),
        ({"selectors": cel("true", "false")}, []),
        ({"selectors": cel('device.attributes["gpu.nvidia.com"].unknown == 1')}, []),
        ({"selectors": cel("device.driver ==")}, []),
        ({"driver": "other.example.com", "selectors": cel("true")}, []),
        ({"deviceClassName": "missing"}, []),
        ({"deviceClassName": "gpu.nvidia.com"}, ["p0", "p1"]),
        ({"deviceClassName": "gpu.nvidia.com", "selectors": cel("false")}, []),
    ],
)
def test_a_rule_of_1_34_taints_only_what_its_class_and_expressions_select(selector, ended):
    made = on_devices("", effect="None")
    made.builder.apply("devicetaintrules", None, rule(**selector))
    assert evicted(made.plan()) == ended


def test_a_rule_follows_the_class_that_it_names():
    made = on_devices("", effect="None")
    made.builder.apply("devicetaintrules", None, rule(deviceClassName="late"))
    assert evicted(made.plan()) == []
    made.add(device_class("late"))
    assert evicted(made.plan()) == ["p0", "p1"]
