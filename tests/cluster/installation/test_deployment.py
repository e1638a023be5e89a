"""What `kai-py install` prints is accepted, and its permissions are what the scheduler needs.

Only on the real API server: it alone has RBAC and the admission of pods.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from kai_py.cli.connection import cluster_client
from kai_py.cli.reading import read_now
from kai_py.config import CommitConfig, Configuration, LeaderElectionConfig
from kai_py.deploy.objects import NAME
from kai_py.observe.metrics import Metrics
from kai_py.scheduler import Scheduler
from tests.cluster.fake_kubelet import gpu_nodes
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.installation import SPACES, as_account, install
from tests.support.cluster.manifests import claim_template, job, pod_spec, priority_class, queue
from tests.support.cluster.scheduling import scheduling
from tests.support.cluster.view import View


def configured(space: str) -> Configuration:
    return Configuration(
        cycle_period=0.02,
        leader_election=LeaderElectionConfig(namespace=space),
        commit=CommitConfig(queue_status_interval=0.2),
    )


@pytest.fixture
async def space(real: Cluster) -> str:
    """A namespace with everything in it but the CRDs, which are there."""
    space = next(SPACES)
    await install(real, space, configured(space))
    return space


async def test_pods_of_the_deployment_are_admitted_to_its_restricted_namespace(
    real: Cluster, space: str
) -> None:
    async def two_pods() -> bool:
        return len(await real.api.items(f"/api/v1/namespaces/{space}/pods")) == 2

    await eventually(two_pods, what="two pods of the scheduler")


async def test_the_permissions_suffice_to_bind_to_preempt_and_to_tell(
    real: Cluster, space: str, tmp_path: Path
) -> None:
    view = View(real.api)
    its = await as_account(real, space, NAME, tmp_path / "kubeconfig")
    high = pod_spec(template="one-gpu", priorityClassName="high")
    async with (
        real.run_nodes(gpu_nodes(1, published_gpus=4)),
        scheduling(its, configured(space)) as running,
    ):
        await real.submit(queue(), priority_class("high", 1000), claim_template(), job("low", 4))
        await view.wait_bound("low", 4)
        await real.submit(job("urgent", 4, high))
        await view.wait_bound("urgent", 4)

        async def told() -> bool:
            stored = await real.api.get("/apis/scheduling.kai.io/v1alpha1/queues/team-a")
            assert stored["status"]["allocated"] == {"gpus": "4"}
            assert await view.events(kind="Job", name="low", reason="Preempted")
            return True

        await eventually(told, what="status of the queue and events")
        calls = running.metrics.registry.collect()
        refused = [
            sample.labels
            for metric in calls
            for sample in metric.samples
            if sample.labels.get("code") in {"401", "403"}
        ]
        assert refused == []


@asynccontextmanager
async def without_reading(real: Cluster, *plurals: str) -> AsyncIterator[None]:
    """The role of the scheduler without the permission to read these kinds."""
    path = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{NAME}"
    rules = (await real.api.get(path))["rules"]
    left = [_without(rule, plurals) if "list" in rule["verbs"] else rule for rule in rules]
    await real.api.patch(path, {"rules": [rule for rule in left if rule["resources"]]})
    try:
        yield
    finally:
        await real.api.patch(path, {"rules": rules})


def _without(rule: Document, plurals: tuple[str, ...]) -> Document:
    return {**rule, "resources": [each for each in rule["resources"] if each not in plurals]}


async def test_kinds_that_it_may_not_read_are_done_without(
    real: Cluster, space: str, tmp_path: Path
) -> None:
    view = View(real.api)
    its = await as_account(real, space, NAME, tmp_path / "kubeconfig")
    async with (
        without_reading(real, "poddisruptionbudgets", "persistentvolumes", "deployments"),
        real.run_nodes(gpu_nodes(1, published_gpus=4)),
        scheduling(its, configured(space)) as running,
    ):
        await real.submit(queue(), claim_template(), job("trains", 4))
        await view.wait_bound("trains", 4)
        assert running.scheduler.unreadable() == [
            f"{kind}: not read: the permission to list and watch {resource} is missing"
            for kind, resource in (
                ("PersistentVolume", "persistentvolumes"),
                ("PodDisruptionBudget", "poddisruptionbudgets.policy"),
                ("Deployment", "deployments.apps"),
            )
        ]
        assert running.count("kai_py_kind_refused", kind="deployments.apps") == 1


async def test_a_snapshot_is_saved_without_kinds_that_may_not_be_read(
    real: Cluster, space: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    its = await as_account(real, space, NAME, tmp_path / "kubeconfig")
    await real.submit(queue())

    async def told() -> bool:
        saved = await read_now(str(its.kubeconfig), "")
        assert "team-a" in {each["metadata"]["name"] for each in saved}
        said = "poddisruptionbudgets.policy are ignored: the permission to list them is missing"
        return said in capsys.readouterr().err

    async with without_reading(real, "poddisruptionbudgets"):
        await eventually(told, what="a snapshot without disruption budgets")


async def test_without_nodes_it_is_not_ready_and_names_the_permission(
    real: Cluster, space: str, tmp_path: Path
) -> None:
    its = await as_account(real, space, NAME, tmp_path / "kubeconfig")
    wanted = "Node: not read yet: the permission to list and watch nodes is missing"
    async with (
        without_reading(real, "nodes"),
        cluster_client(str(its.kubeconfig), "") as client,
    ):
        metrics = Metrics(CollectorRegistry())
        scheduler = Scheduler(client, configured(space), metrics, identity="refused")
        running = asyncio.create_task(scheduler.run())
        try:
            await eventually(lambda: _says(scheduler, wanted), within=20.0)
            assert scheduler.unhealthy() == []
        finally:
            scheduler.stop()
            await running


async def _says(scheduler: Scheduler, sentence: str) -> bool:
    return sentence in scheduler.unready()
