"""Partitions and shares: containers find in their environment what was allocated, and no more."""

from tests.node.pods import environment, environments, running, told
from tests.node.workloads import PARTS, SERVE, parts, pod_spec, request, template
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import job, pod

MEMORY = "memory"


def partition(name, slices, *, gpu="gpu-0"):
    """A part of a GPU that consumes so many of its four slices."""
    return {
        "name": name,
        "attributes": {"slices": {"int": slices}},
        "consumesCounters": [{"counterSet": gpu, "counters": {"slices": {"value": str(slices)}}}],
    }


def gpu(name="gpu-0"):
    return {"name": name, "counters": {"slices": {"value": "4"}}}


def of_slices(number):
    selector = {"cel": {"expression": f"device.attributes['{PARTS}'].slices == {number}"}}
    return request(PARTS, selectors=[selector])


async def test_partitions_share_their_gpu(cluster, nodes, scheduler, view):
    devices = [partition("whole", 4), *(partition(f"half-{i}", 2) for i in range(2))]
    nodes["node-a"].start_parts_driver(resources=parts(*devices, pool="node-a", counters=(gpu(),)))
    await cluster.submit(template("half", of_slices(2)), template("whole", of_slices(4)))
    await cluster.submit(job("halves", 2, pod_spec(SERVE, templates={"part": "half"})))
    await running(view, "halves", 2)
    seen = await environments(nodes, view, "halves")
    (one,), (other,) = (told(variables) for variables in seen.values())
    assert sorted((one["device"], other["device"])) == ["half-0", "half-1"]
    await cluster.submit(pod("big", pod_spec(SERVE, templates={"part": "whole"})))
    await view.wait_pending("big", 1, reason="Unschedulable")
    await cluster.api.delete(view.path("jobs") + "/halves", {"propagationPolicy": "Background"})
    await running(view, "big", 1)
    (device,) = told(await environment(nodes["node-a"], "big"))
    assert device["device"] == "whole"


async def test_shares_of_a_device_are_told_apart(cluster, nodes, scheduler, view):
    card = {
        "name": "card",
        "allowMultipleAllocations": True,
        "capacity": {
            MEMORY: {
                "value": "80Gi",
                "requestPolicy": {"default": "10Gi", "validRange": {"min": "10Gi", "step": "10Gi"}},
            }
        },
    }
    driver = nodes["node-b"].start_parts_driver(resources=parts(card, pool="node-b"))
    await cluster.submit(template("share", request(PARTS, capacity={"requests": {MEMORY: "25Gi"}})))
    await cluster.submit(job("pair", 2, pod_spec(SERVE, templates={"part": "share"})))
    await running(view, "pair", 2)
    seen = await environments(nodes, view, "pair")
    shares = [share for variables in seen.values() for share in told(variables)]
    assert {share["device"] for share in shares} == {"card"}
    assert [share["consumedCapacity"] for share in shares] == [{MEMORY: "30Gi"}] * 2
    assert len({share["shareID"] for share in shares}) == 2
    await cluster.submit(pod("third", pod_spec(SERVE, templates={"part": "share"})))
    await view.wait_pending("third", 1, reason="Unschedulable")
    await cluster.api.delete(view.path("jobs") + "/pair", {"propagationPolicy": "Background"})
    await running(view, "third", 1)

    async def unprepared():
        return len(set(driver.calls("unprepare"))) == 2

    await eventually(unprepared, within=30.0)
