"""Fixtures of the tests on real nodes: a control plane with two nodes, one set for all of them."""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest

from tests.cluster.controlplane import ControlPlane, control_plane
from tests.cluster.controlplane.server import EVERY_RESOURCE_API
from tests.node.node import Node, node
from tests.node.requirements import missing
from tests.node.workloads import DRIVER, PARTS, device_class
from tests.support.cluster.account import scheduler_account
from tests.support.cluster.api import Api
from tests.support.cluster.audit import findings
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import queue
from tests.support.cluster.scheduling import Running, install_definitions, scheduling
from tests.support.cluster.shared_gpus import RESERVATIONS
from tests.support.cluster.view import View, condition

NAMES = ("node-a", "node-b")
GPUS = 4
"""Devices that the example driver offers on each node."""
GATES = (
    "DRADeviceTaintRules",
    "DRANodeAllocatableResources",
    "DRAResourcePoolStatus",
)
READY_SECONDS = 60.0
_DEVICES = "/apis/resource.k8s.io/v1"
_PODS = ("/api/v1/namespaces/default/pods", RESERVATIONS)
_JOBS = "/apis/batch/v1/namespaces/default/jobs"
_CLAIMS = f"{_DEVICES}/namespaces/default/resourceclaims"
_PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_SETTINGS = (
    f"{_DEVICES}/namespaces/default/resourceclaimtemplates",
    f"{_DEVICES}/deviceclasses",
    "/apis/scheduling.kai.io/v1alpha1/queues",
)


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.node)


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane for the nodes alone."""
    if reasons := list(missing()):
        pytest.skip("; ".join(reasons))
    with control_plane(
        tmp_path_factory.mktemp("controlplane"),
        feature_gates=dict.fromkeys(GATES, True),
        runtime_config={**EVERY_RESOURCE_API, "resource.k8s.io/v1alpha3": True},
    ) as plane:
        yield plane


@pytest.fixture(scope="session")
def started(
    plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Node]]:
    """Both nodes by name, with no driver."""
    with ExitStack() as stack:
        made = {}
        for name in NAMES:
            directory = tmp_path_factory.mktemp(name)
            made[name] = stack.enter_context(node(name, plane, directory))
        yield made


@pytest.fixture
async def cluster(plane: ControlPlane, started: dict[str, Node]) -> AsyncIterator[Cluster]:
    """A cluster of two real nodes, each with four GPUs of the example driver, and no pods."""
    async with Api(plane.kubeconfig) as api:
        account = await scheduler_account(api)
        await install_definitions(api)
        for each in started.values():
            for program, start in (
                ("containerd", each.start_containerd),
                ("kubelet", each.start_kubelet),
                ("example-driver", lambda each=each: each.start_example_driver(devices=GPUS)),
            ):
                if not each.runs(program):
                    start()
        await eventually(lambda: _ready(api), within=READY_SECONDS, what="two ready nodes")
        opened = Cluster("nodes", plane.kubeconfig, account, plane.url, api, run_nodes=_has_nodes)
        await opened.submit(device_class(DRIVER), device_class(PARTS), queue())
        yield opened
        await eventually(lambda: _sound(api), within=10.0, what="nothing that an audit finds")
        await _clear(api)
        for each in started.values():
            for program in ("parts-driver", "gpu-plugin"):
                if each.runs(program):
                    each.stop(program)
        # Kubelets would withdraw the slices, too, half a minute later.
        await api.delete(f"{_DEVICES}/resourceslices", fieldSelector=f"spec.driver={PARTS}")


def _has_nodes(_nodes: object) -> None:
    raise NotImplementedError("this cluster has nodes")


async def _ready(api: Api) -> bool:
    nodes = await api.items("/api/v1/nodes")
    ready = [each for each in nodes if condition(each, "Ready").get("status") == "True"]
    slices = await api.items(f"{_DEVICES}/resourceslices")
    offered = {each["spec"]["nodeName"] for each in slices if each["spec"]["driver"] == DRIVER}
    names = {each["metadata"]["name"] for each in ready}
    assert names == set(NAMES), f"ready: {names}"
    assert offered == set(NAMES), f"with slices: {offered}"
    return True


async def _sound(api: Api) -> bool:
    found = await findings(api)
    assert not found, found
    return True


async def _clear(api: Api) -> None:
    """Delete what tests make, as users do: kubelets end containers and give devices back.

    Nothing else: a running driver whose slices others delete may not publish them again.
    """
    await api.delete(_JOBS, {"propagationPolicy": "Background"})
    for pods in _PODS:
        await api.delete(pods, {"gracePeriodSeconds": 1})
    await eventually(lambda: _gone(api, *_PODS, _CLAIMS), within=60.0)
    for collection in _SETTINGS:
        await api.delete(collection)
    for each in await api.items(_PRIORITIES):
        if not each["metadata"]["name"].startswith("system-"):
            await api.delete(f"{_PRIORITIES}/{each['metadata']['name']}")


async def _gone(api: Api, *collections: str) -> bool:
    for collection in collections:
        left = [each["metadata"]["name"] for each in await api.items(collection)]
        assert not left, f"{collection} that do not go: {left}"
    return True


@pytest.fixture
def nodes(started: dict[str, Node], cluster: Cluster) -> dict[str, Node]:
    """Both nodes by name, ready."""
    return started


@pytest.fixture
async def scheduler(cluster: Cluster) -> AsyncIterator[Running]:
    """A scheduler in this process."""
    async with scheduling(cluster) as running:
        yield running


@pytest.fixture
def view(cluster: Cluster) -> View:
    """The namespace `default`."""
    return View(cluster.api)
