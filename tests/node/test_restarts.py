"""Kubelets, containerd and drivers restart while gangs run; nothing is lost or given twice."""

import signal

import pytest

from tests.node.conftest import GPUS, NAMES
from tests.node.pods import containers, running
from tests.node.workloads import DRIVER, SERVE, TELL, pod_spec, request, template
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import job

SLICES = "/apis/resource.k8s.io/v1/resourceslices"


@pytest.fixture
async def serving(cluster, nodes, scheduler, view):
    """A gang that runs on both nodes and leaves one GPU of each idle."""
    await cluster.submit(template("gpu", request()))
    count = (GPUS - 1) * len(NAMES)
    spec = pod_spec(SERVE, templates={"gpu": "gpu"})
    await cluster.submit(job("serve", count, spread(spec)))
    await running(view, "serve", count)
    return await containers(view, "serve")


def spread(spec):
    """The pods of a gang evenly on both nodes."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"batch.kubernetes.io/job-name": "serve"}},
    }
    return spec | {"topologySpreadConstraints": [constraint]}


async def test_a_kubelet_that_is_killed_and_started(cluster, nodes, view, serving):
    node = nodes["node-a"]
    node.stop("kubelet", signal.SIGKILL)
    await cluster.submit(job("during", 2, pod_spec(TELL, templates={"gpu": "gpu"})))
    await view.wait_bound("during", 2)
    node.start_kubelet()
    await running(view, "during", 2, phase="Succeeded")
    assert await containers(view, "serve") == serving


async def test_containerd_that_is_killed_and_started(cluster, nodes, view, serving):
    node = nodes["node-a"]
    node.stop("containerd", signal.SIGKILL)
    await cluster.submit(job("during", 2, pod_spec(TELL, templates={"gpu": "gpu"})))
    await view.wait_bound("during", 2)
    node.start_containerd()
    await running(view, "during", 2, phase="Succeeded", within=120.0)
    assert await containers(view, "serve") == serving


async def test_a_driver_that_comes_back_with_other_devices(cluster, nodes, view, serving):
    try:
        await restart_drivers(cluster, nodes, devices=1)
        # Four devices are gone while they are used: what runs goes on, what comes has to wait.
        await cluster.submit(job("more", 3, pod_spec(SERVE, templates={"gpu": "gpu"})))
        await view.wait_pending("more", 3, reason="Unschedulable")
        assert await containers(view, "serve") == serving
        await restart_drivers(cluster, nodes, devices=GPUS + 1)
        await running(view, "more", 3)
        assert await containers(view, "serve") == serving
        held = await view.held()
        assert len(set(held)) == len(held) == len(serving) + 3
    finally:
        await restart_drivers(cluster, nodes, devices=GPUS)


async def test_a_driver_that_is_away(cluster, nodes, view, serving):
    for node in nodes.values():
        node.stop("example-driver")
    await withdrawn(cluster)  # by the kubelets, half a minute later
    await cluster.submit(job("later", 2, pod_spec(SERVE, templates={"gpu": "gpu"})))
    await view.wait_pending("later", 2, reason="Unschedulable")
    assert await containers(view, "serve") == serving
    for node in nodes.values():
        node.start_example_driver(devices=GPUS)
    await running(view, "later", 2)
    assert await containers(view, "serve") == serving


async def restart_drivers(cluster, nodes, *, devices):
    """Stop both example drivers, start them with so many devices, wait until these are offered."""
    for node in nodes.values():
        node.stop("example-driver")
        node.start_example_driver(devices=devices)
    await offered(cluster, devices)


async def withdrawn(cluster):
    async def reached():
        left = [each["metadata"]["name"] for each in await cluster.api.items(SLICES)]
        assert not left, f"slices: {left}"
        return True

    await eventually(reached, within=60.0)


async def offered(cluster, count):
    async def reached():
        slices = await cluster.api.items(SLICES)
        found = {
            each["spec"]["nodeName"]: len(each["spec"].get("devices", ()))
            for each in slices
            if each["spec"]["driver"] == DRIVER
        }
        assert found == dict.fromkeys(NAMES, count), found
        return True

    await eventually(reached, within=60.0)
