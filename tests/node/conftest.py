"""Fixtures of the tests on real nodes: a control plane with two nodes, one set for all of them."""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest

from tests.cluster.controlplane import ControlPlane, control_plane
from tests.node.node import Node, node
from tests.node.requirements import missing
from tests.node.workloads import DRIVER, PARTS, device_class
from tests.support.cluster.account import scheduler_account
from tests.support.cluster.api import Api
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import queue
from tests.support.cluster.scheduling import Running, install_definitions, scheduling
from tests.support.cluster.sweep import Sweep
from tests.support.cluster.view import View, condition

NAMES = ("node-a", "node-b")
GPUS = 4
"""Devices that the example driver offers on each node."""
READY_SECONDS = 60.0
_PODS = "/api/v1/namespaces/default/pods"
_JOBS = "/apis/batch/v1/namespaces/default/jobs"


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.node)


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane for the nodes alone."""
    if reasons := list(missing()):
        pytest.skip("; ".join(reasons))
    gates = {"DRADeviceTaintRules": True}
    with control_plane(tmp_path_factory.mktemp("controlplane"), feature_gates=gates) as plane:
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


@pytest.fixture(scope="session")
def real_sweep() -> Sweep:
    """What the control plane is brought back to after each test."""
    return Sweep()


@pytest.fixture
async def cluster(
    plane: ControlPlane, started: dict[str, Node], real_sweep: Sweep
) -> AsyncIterator[Cluster]:
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
        await real_sweep.remember(api)
        opened = Cluster("nodes", plane.kubeconfig, account, plane.url, api, run_nodes=_has_nodes)
        await opened.submit(device_class(DRIVER), device_class(PARTS), queue())
        yield opened
        await _remove_pods(api)
        for each in started.values():
            if each.runs("parts-driver"):
                each.stop("parts-driver")
        await real_sweep.clean(api)


def _has_nodes(_nodes: object) -> None:
    raise NotImplementedError("this cluster has nodes")


async def _ready(api: Api) -> bool:
    nodes = await api.items("/api/v1/nodes")
    ready = [each for each in nodes if condition(each, "Ready").get("status") == "True"]
    slices = await api.items("/apis/resource.k8s.io/v1/resourceslices")
    offered = {each["spec"]["nodeName"] for each in slices if each["spec"]["driver"] == DRIVER}
    names = {each["metadata"]["name"] for each in ready}
    assert names == set(NAMES), f"ready: {names}"
    assert offered == set(NAMES), f"with slices: {offered}"
    return True


async def _remove_pods(api: Api) -> None:
    """Delete all pods as users do: kubelets end their containers and give devices back."""
    await api.delete(_JOBS, {"propagationPolicy": "Background"})
    await api.delete(_PODS, {"gracePeriodSeconds": 1})

    async def gone() -> bool:
        left = [pod["metadata"]["name"] for pod in await api.items(_PODS)]
        assert not left, f"pods that do not end: {left}"
        return True

    await eventually(gone, within=60.0, what="no pods")


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
