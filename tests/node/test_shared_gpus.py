"""Pods that share GPUs see exactly theirs, by the word of their containers.

GPUs of a device plugin by the environment of reservation pods, those of a DRA driver by its CDI
devices.
"""

import asyncio
import signal
from contextlib import asynccontextmanager, suppress

import pytest

from kai_py.api.gpu_reservation import GPU_CONTAINER, RESERVED_GPU, VISIBLE_DEVICES, gpu_environment
from tests.node.image import RESERVATION as IMAGE
from tests.node.pods import containers, environment, running, told
from tests.node.workloads import PARTS, SERVE, container, device_class, parts, pod_spec
from tests.support.cluster.api import ApiError
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import IN_TEAM_A, pod
from tests.support.cluster.scheduling import scheduling
from tests.support.cluster.shared_gpus import RESERVATION, RESERVATIONS, SHARING

GPUS = 2
SEPARATE = SHARING.gpu_sharing.model_copy(update={"image": IMAGE, "reservation_timeout": 60.0})


@pytest.fixture
async def sharing_scheduler(cluster, nodes):
    """A scheduler that reserves shared GPUs; node-a has two of a device plugin."""
    node = nodes["node-a"]
    node.start_device_plugin(gpus=GPUS)
    await eventually(lambda: offered(cluster), within=30.0)
    async with (
        scheduling(cluster, SHARING.model_copy(update={"gpu_sharing": SEPARATE})) as running,
        reservations_told(cluster, node),
    ):
        yield running


async def offered(cluster):
    node = await cluster.api.get("/api/v1/nodes/node-a")
    return node["status"]["allocatable"].get("nvidia.com/gpu") == str(GPUS)


@asynccontextmanager
async def reservations_told(cluster, node):
    """Write for reservation pods, which have no network, what they print: their GPU."""

    async def tell():
        while True:
            for each in await cluster.api.items(RESERVATIONS):
                name, annotations = each["metadata"]["name"], each["metadata"]["annotations"]
                told = node.log_of_container(RESERVATION, name, "reservation")
                if told and RESERVED_GPU not in annotations:
                    patch = {"metadata": {"annotations": {RESERVED_GPU: told.strip()}}}
                    with suppress(ApiError):  # it has gone meanwhile
                        await cluster.api.patch(f"{RESERVATIONS}/{name}", patch)
            await asyncio.sleep(0.1)

    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        telling.cancel()


def half(name, *, user="main"):
    """A pod with half a GPU for one of its two containers, as the webhook leaves it."""
    made = pod(name, pod_spec(SERVE), annotations={**IN_TEAM_A, "gpu-fraction": "0.5"})
    made["metadata"]["annotations"] |= {GPU_CONTAINER: user, "gpu-fraction-container-name": user}
    made["spec"]["containers"].append(container(SERVE, name="other"))
    made["spec"] |= gpu_environment(made, user)
    return made


def whole(name):
    """A pod with a whole GPU."""
    spec = pod_spec(SERVE)
    spec["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    return pod(name, spec, annotations=IN_TEAM_A)


async def visible(node, name, user="main"):
    """The GPUs that a container sees, by its environment."""
    return (await environment(node, name, user))[VISIBLE_DEVICES]


@pytest.mark.usefixtures("sharing_scheduler")
async def test_halves_see_their_gpu_and_whole_pods_another(cluster, nodes, view):
    node = nodes["node-a"]
    await cluster.submit(half("a"))
    await running(view, "a", 1)
    shared = await visible(node, "a")
    assert shared in {f"GPU-node-a-{number}" for number in range(GPUS)}
    assert await visible(node, "a", "other") == "void"
    await cluster.submit(whole("w"))
    await running(view, "w", 1)
    assert {shared, await visible(node, "w")} == {f"GPU-node-a-{number}" for number in range(GPUS)}
    await cluster.submit(half("b", user="other"))
    await running(view, "b", 1)
    assert (await visible(node, "b"), await visible(node, "b", "other")) == ("void", shared)
    # A second whole pod gets the GPU once nothing shares it any more.
    await cluster.submit(whole("x"))
    for name in ("a", "b"):
        assert not await view.bound("x")
        await cluster.api.delete(f"{view.path('pods')}/{name}")
    await running(view, "x", 1)
    assert await visible(node, "x") == shared

    async def unreserved():
        return await cluster.api.items(RESERVATIONS) == []

    await eventually(unreserved, within=30.0)


MEMORY = "memory"
STEPS = {"default": "8Gi", "validRange": {"min": "8Gi", "step": "8Gi"}}
CARD = {
    "allowMultipleAllocations": True,
    "capacity": {MEMORY: {"value": "80Gi", "requestPolicy": STEPS}},
}
"""A GPU of a driver that gives out its memory in steps."""


@pytest.fixture
async def drivers_gpus(cluster, nodes):
    """Two shareable GPUs of a DRA driver on node-b, in the class for nvidia.com/gpu."""
    made = device_class(PARTS)
    made["metadata"]["name"] = "gpus"
    made["spec"]["extendedResourceName"] = "nvidia.com/gpu"
    await cluster.submit(made)
    cards = [{"name": f"card-{number}"} | CARD for number in range(GPUS)]
    cards = [card | {"attributes": {"uuid": {"string": card["name"]}}} for card in cards]
    return nodes["node-b"].start_parts_driver(resources=parts(*cards, pool="node-b"))


def part(name, user="main", **asked):
    """A pod with parts of GPUs for one of its two containers, as the webhook leaves it."""
    made = half(name, user=user)
    annotations = made["metadata"]["annotations"]
    del annotations["gpu-fraction"]
    annotations |= {f"gpu-{key.replace('_', '-')}": value for key, value in asked.items()}
    return made


async def given(node, name, user="main"):
    """(GPU, GiB) of each device that a container sees, by its environment."""
    found = told(await environment(node, name, user))
    return sorted((each["device"], each["consumedCapacity"][MEMORY]) for each in found)


@pytest.mark.usefixtures("scheduler")
async def test_parts_of_a_drivers_gpus_reach_their_container(cluster, nodes, view, drivers_gpus):
    node = nodes["node-b"]
    await cluster.submit(part("both", fraction="0.5", fraction_num_devices="2"))
    await running(view, "both", 1)
    assert await given(node, "both") == [("card-0", "40Gi"), ("card-1", "40Gi")]
    assert await given(node, "both", "other") == []
    await cluster.submit(part("a", fraction="0.33"), part("b", "other", memory="30720"))
    await running(view, "a", 1)
    await running(view, "b", 1)
    [(first, size)], [(second, amount)] = await given(node, "a"), await given(node, "b", "other")
    assert {first, second} == {"card-0", "card-1"}
    assert (size, amount) == ("24Gi", "32Gi"), "by the steps of the driver"
    assert (await given(node, "a", "other"), await given(node, "b")) == ([], [])
    # 16 and 8 GiB are left: a half has to wait until a pod leaves.
    node.stop("kubelet", signal.SIGKILL)
    served = {name: await containers(view, name) for name in ("both", "a", "b")}
    await cluster.submit(part("c", fraction="0.5"))
    await view.wait_pending("c", 1, reason="Unschedulable")
    node.start_kubelet()
    await cluster.api.delete(f"{view.path('pods')}/both")
    await running(view, "c", 1)
    [(_gpu, size)] = await given(node, "c")
    assert size == "40Gi"
    for name in ("a", "b"):
        assert await containers(view, name) == served[name], "a restarted kubelet ends nothing"
    for name in ("a", "b", "c"):
        await cluster.api.delete(f"{view.path('pods')}/{name}")

    async def given_back():
        assert len(drivers_gpus.calls("unprepare")) >= 4
        return await view.claims() == []

    await eventually(given_back, within=30.0)
