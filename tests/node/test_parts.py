"""Partitions and shares: containers find in their environment what was allocated, and no more.

And devices that stand for cpus of their node: what a claim has of them no other pod gets.
"""

import subprocess
from asyncio import to_thread

from kai_py.api.quantity import NANO, parse_quantity
from tests.node.conftest import GPUS
from tests.node.pods import environment, environments, running, told
from tests.node.workloads import DRIVER, PARTS, SERVE, parts, pod_spec, request, template
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import job, pod
from tests.support.repository import KAI_PY

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


CLAIMED, LEFT = "nodeAllocatableResourceClaimStatuses", 0.5


async def cpus(cluster, name):
    """The cpus that a node offers to pods."""
    node = await cluster.api.get(f"/api/v1/nodes/{name}")
    return parse_quantity(node["status"]["allocatable"]["cpu"]).nano / NANO


def using(cpu, *, claims=()):
    """A pod for node-b that requests cpus besides those of its claims."""
    spec = pod_spec(SERVE, templates=dict.fromkeys(claims, "cores"))
    spec["containers"][0]["resources"]["requests"] = {"cpu": str(cpu)}
    return spec | {"nodeSelector": {"kubernetes.io/hostname": "node-b"}}


async def test_cpus_that_a_claim_has_are_no_other_pods(cluster, nodes, scheduler, view):
    core = str(await cpus(cluster, "node-b") - LEFT)
    mapping = {"cpu": {"allocationMultiplier": core}}
    device = {"name": "cores", "nodeAllocatableResourceMappings": mapping}
    nodes["node-b"].start_parts_driver(resources=parts(device, pool="node-b"))
    await cluster.submit(template("cores", request(PARTS)))
    await cluster.submit(pod("first", using(0.1, claims=["cores"])))
    await running(view, "first", 1)
    [first] = await view.pods("first")
    [entry] = first["status"][CLAIMED]
    assert parse_quantity(entry["resources"]["cpu"]) == parse_quantity(core)
    assert entry["containers"] == ["main"]
    await cluster.submit(pod("plain", using(LEFT)))
    message = await view.wait_pending("plain", 1, reason="Unschedulable")
    assert "cpu" in message
    await cluster.api.delete(f"{view.path('pods')}/first")
    await running(view, "plain", 1)
    await cluster.submit(pod("second", using(0.1, claims=["cores"])))
    await view.wait_pending("second", 1, reason="Unschedulable")
    await cluster.api.delete(f"{view.path('pods')}/plain")
    await running(view, "second", 1)


POOLS = "/apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests"


async def test_the_status_of_pools_is_read(cluster, nodes, scheduler, view):
    await cluster.submit(template("gpu", request()))
    await cluster.submit(job("train", 2, pod_spec(SERVE, templates={"gpu": "gpu"})))
    await running(view, "train", 2)
    spec = {"driver": DRIVER}
    body = {"metadata": {"name": "gpus"}, "spec": spec}
    await cluster.api.post(POOLS, body | {"apiVersion": "resource.k8s.io/v1alpha3"})

    async def lines():
        command = [*KAI_PY, "devices", "--by", "pool", "--kubeconfig", str(cluster.kubeconfig)]
        text = await to_thread(subprocess.check_output, command, text=True)
        found = [line for line in text.splitlines() if line.startswith(f"{DRIVER}/")]
        assert [line.count("results at 20") for line in found] == [1, 1], text
        return found

    try:
        both = await eventually(lines, within=20.0)
    finally:
        await cluster.api.delete(f"{POOLS}/gpus")
    assert sum(f"{GPUS} devices, 2 results" in line for line in both) == 1
    assert sum(f"{GPUS} devices, 0 results" in line for line in both) == 1
    assert not any("; now" in line for line in both)
