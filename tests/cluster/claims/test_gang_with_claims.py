"""A Job whose pods claim devices: bound all or none on every kind of cluster, whoever dies."""

import asyncio
import contextlib
import itertools
from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry

from kai_py.config import Configuration, LeaderElectionConfig
from kai_py.observe.metrics import Metrics
from kai_py.scheduler import Scheduler
from kai_py.watch.client import Client
from kai_py.watch.credentials import Kubeconfig
from kai_py.watch.http_transport import connect
from tests.cluster.fake_kubelet.nodes import gpu_nodes
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.scheduling import install_definitions
from tests.support.dying import run_until_killed
from tests.support.patience import patience

NUMBERS = itertools.count()
SIZE = 8


@dataclass(frozen=True)
class Place:
    """A namespace with a template for one GPU, a queue, and one node of eight."""

    cluster: Cluster
    namespace: str

    def path(self, plural, group_version=""):
        root = f"/apis/{group_version}" if group_version else "/api/v1"
        return f"{root}/namespaces/{self.namespace}/{plural}"

    async def pods(self, job):
        selector = f"job-name={job}"
        return await self.cluster.api.items(self.path("pods"), labelSelector=selector)

    async def bound(self, job):
        return sum(bool(pod["spec"].get("nodeName")) for pod in await self.pods(job))

    async def devices(self):
        """Devices held, in order, and the names of the pods they are held for."""
        claims = await self.cluster.api.items(self.path("resourceclaims", "resource.k8s.io/v1"))
        held = [claim for claim in claims if claim.get("status", {}).get("allocation")]
        devices = [
            result["device"]
            for claim in held
            for result in claim["status"]["allocation"]["devices"]["results"]
        ]
        users = {user["name"] for claim in held for user in claim["status"].get("reservedFor", ())}
        return sorted(devices), users

    async def submit(self, job, size):
        claim = {"name": "gpu", "resourceClaimTemplateName": "one-gpu"}
        container = {
            "name": "main",
            "image": "trainer:1",
            "resources": {"claims": [{"name": "gpu"}]},
        }
        pod = {
            "schedulerName": "kai-scheduler",
            "restartPolicy": "Never",
            "resourceClaims": [claim],
            "containers": [container],
        }
        await self.cluster.api.create(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {
                    "name": job,
                    "namespace": self.namespace,
                    "annotations": {"scheduling.kai.io/queue-name": self.namespace},
                },
                "spec": {
                    "parallelism": size,
                    "completions": size,
                    "template": {"spec": pod},
                },
            }
        )


@pytest.fixture
async def place(cluster: Cluster):
    namespace = f"gang-{next(NUMBERS)}"
    await cluster.create_namespace(namespace)
    await install_definitions(cluster.api)
    queue = {
        "apiVersion": "scheduling.kai.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": namespace},
        "spec": {"deservedGPUs": SIZE},
    }
    await cluster.api.create(queue)
    selector = {"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}
    await cluster.api.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "gpu.nvidia.com"},
            "spec": {"selectors": [selector]},
        }
    )
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    await cluster.api.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "one-gpu", "namespace": namespace},
            "spec": {"spec": {"devices": {"requests": [request]}}},
        }
    )
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=SIZE)):
        yield Place(cluster, namespace)


@contextlib.asynccontextmanager
async def scheduling(cluster: Cluster):
    async with connect(Kubeconfig(str(cluster.kubeconfig))) as client:
        scheduler = make_scheduler(client)
        running = asyncio.create_task(scheduler.run())
        try:
            yield
        finally:
            scheduler.stop()
            await asyncio.wait_for(running, patience(30))


def make_scheduler(client: Client) -> Scheduler:
    configuration = Configuration(leader_election=LeaderElectionConfig(enabled=False))
    return Scheduler(client, configuration, Metrics(CollectorRegistry()), identity="test")


async def test_eight_pods_get_eight_devices_or_none(place: Place):
    async with scheduling(place.cluster):
        await place.submit("single", 1)
        await eventually(lambda: place.bound("single"), what="the single pod")
        await place.submit("train", SIZE)

        async def says_why():
            said = [
                condition
                for pod in await place.pods("train")
                for condition in pod["status"].get("conditions", ())
                if condition["type"] == "PodScheduled" and condition["status"] == "False"
            ]
            return [condition["reason"] for condition in said] == ["Unschedulable"] * SIZE

        await eventually(says_why, what="a reason")
        assert await place.bound("train") == 0
        assert len((await place.devices())[0]) == 1
        background = {"propagationPolicy": "Background"}
        await place.cluster.api.delete(place.path("jobs/single", "batch/v1"), background)

        async def started():
            return await place.bound("train") == SIZE

        await eventually(started, what="the gang", within=45.0)
    devices, users = await place.devices()
    assert devices == [f"gpu-{index}" for index in range(SIZE)]
    assert users == {pod["metadata"]["name"] for pod in await place.pods("train")}


@pytest.mark.parametrize("writes", [3, 8, 13, 16, 19])
async def test_the_next_leader_after_a_killed_scheduler_completes_the_gang(
    place: Place, writes: int
):
    await place.submit("train", SIZE)
    async with connect(Kubeconfig(str(place.cluster.kubeconfig))) as client:
        await run_until_killed(client, make_scheduler, writes)
    assert await place.bound("train") < SIZE

    async def started():
        return await place.bound("train") == SIZE

    async with scheduling(place.cluster):
        await eventually(started, what="the gang", within=30.0)
    assert (await place.devices())[0] == [f"gpu-{index}" for index in range(SIZE)]
