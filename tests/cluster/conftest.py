"""Fixtures of the tests that run against an API server; every test here is marked `cluster`."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

import kai_py.scheduler as scheduler_module
from tests.cluster.controlplane import ControlPlane, Process, binaries, control_plane
from tests.cluster.frameworks.binaries import NIGHTLY, framework_binaries
from tests.support.cluster.clusters import CLUSTERS, Cluster, real_cluster
from tests.support.cluster.scheduling import EAGER, Running, install_definitions, scheduling
from tests.support.cluster.sweep import Sweep
from tests.support.cluster.view import View
from tests.support.records import replace

StartKubectl = Callable[..., Awaitable[asyncio.subprocess.Process]]
Kubectl = Callable[..., Awaitable[str]]
NUMBERS = itertools.count()


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.cluster)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what tests run before the first of them: a build outlasts any test's time limit."""
    if session.config.option.collectonly:
        return
    if any(map(_needs_real, session.items)):
        binaries()
    with_controllers = [
        item for item in session.items if "run_controller" in getattr(item, "fixturenames", ())
    ]
    if with_controllers:
        framework_binaries()
    if any(item.get_closest_marker("nightly") for item in with_controllers):
        for folder in NIGHTLY:
            framework_binaries(folder)


def _needs_real(item: pytest.Item) -> bool:
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return parameters.get("cluster") == "real" or "real_control_plane" in getattr(
        item, "fixturenames", ()
    )


@pytest.fixture(scope="package")
def real_control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd, kube-apiserver and kube-controller-manager, one set for all tests of this folder.

    Idle servers would take a tenth of a small machine from the tests that follow.
    """
    gates = {"DRADeviceTaintRules": True}
    with control_plane(tmp_path_factory.mktemp("controlplane"), feature_gates=gates) as plane:
        yield plane


@pytest.fixture(scope="package")
def real_sweep(real_control_plane: ControlPlane) -> Sweep:
    """What the real control plane is brought back to after each test."""
    return Sweep(real_control_plane.etcd_url)


@pytest.fixture(params=sorted(CLUSTERS))
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """An empty cluster, one test run for each kind."""
    async with CLUSTERS[request.param](request) as opened:
        yield opened


@pytest.fixture
async def real(
    request: pytest.FixtureRequest, real_control_plane: ControlPlane
) -> AsyncIterator[Cluster]:
    """The empty real cluster, for tests of what only that one can do."""
    async with real_cluster(request) as opened:
        yield opened


@pytest.fixture
def kube_scheduler(real_control_plane: ControlPlane) -> Iterator[Process]:
    """The default scheduler, beside the real control plane."""
    with real_control_plane.kube_scheduler() as scheduler:
        yield scheduler


@pytest.fixture
async def definitions(cluster: Cluster) -> None:
    """The cluster serves what `crds/` defines."""
    await install_definitions(cluster.api)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schedulers that soon take for lasting what is wrong, and for left over what no pod uses."""
    settings = replace(scheduler_module.commit_settings(EAGER), claim_grace=0.9)
    monkeypatch.setattr(scheduler_module, "commit_settings", lambda _configuration: settings)


@pytest.fixture
async def scheduler(cluster: Cluster, definitions: None) -> AsyncIterator[Running]:
    """A scheduler in this process, at work in the cluster."""
    async with scheduling(cluster) as running:
        yield running


@pytest.fixture
async def start_kubectl(cluster: Cluster) -> StartKubectl:
    """Start `kubectl ARGUMENTS` in a namespace of this test's own; gives the process."""
    namespace = f"kubectl-{next(NUMBERS)}"
    await cluster.create_namespace(namespace)
    options = (f"--kubeconfig={cluster.kubeconfig}", f"--namespace={namespace}")

    async def start(*arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            str(binaries() / "kubectl"),
            *options,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    return start


@pytest.fixture
def kubectl(start_kubectl: StartKubectl) -> Kubectl:
    """`kubectl ARGUMENTS` in a namespace of this test's own; gives what it prints."""

    async def run(*arguments: str, stdin: str = "") -> str:
        process = await start_kubectl(*arguments)
        output, _ = await process.communicate(stdin.encode())
        assert process.returncode == 0, output.decode()
        return output.decode()

    return run


@pytest.fixture
def view(cluster: Cluster) -> View:
    """The namespace `default` of the cluster."""
    return View(cluster.api)
