"""NVIDIA's ComputeDomain with its controller played: an nvbandwidth MPIJob, and two Jobs of one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.cluster.fake_kubelet import FakeNode
from tests.support.cluster.api import Api, Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import IN_TEAM_A, QUEUE_KEY, job, pod, pod_spec, queue
from tests.support.cluster.scheduling import DEFINITIONS, define
from tests.support.cluster.view import View

pytestmark = pytest.mark.usefixtures("scheduler")

DRIVER, CLIQUE = "compute-domain.nvidia.com", "nvidia.com/gpu.clique"
CHANNELS = f"compute-domain-default-channel.{DRIVER}"
DOMAINS = "/apis/resource.nvidia.com/v1beta1/namespaces/default/computedomains"
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
IN_PAIRS = {QUEUE_KEY: "pairs"}
CONTROL_PLANE = {"node-role.kubernetes.io/control-plane": ""}
NODES = [
    *(FakeNode(name=f"b{i}", labels={CLIQUE: "cluster.b"}) for i in range(4)),
    *(FakeNode(name=f"a{i}", labels={CLIQUE: "cluster.a"}) for i in range(2)),
    FakeNode(name="control", labels=CONTROL_PLANE),
]


def definition(group: str, kind: str, version: str) -> Document:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"kind": kind, "plural": f"{kind.lower()}s", "singular": kind.lower()}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
    }


KINDS = (
    definition("resource.nvidia.com", "ComputeDomain", "v1beta1"),
    definition("kubeflow.org", "MPIJob", "v2beta1"),
)


def domain(name: str) -> Document:
    channel = {"resourceClaimTemplate": {"name": f"{name}-channel"}, "allocationMode": "Single"}
    return {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomain",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"numNodes": 0, "channel": channel},
    }


async def play_controller(api: Api) -> None:
    """Make the template of each ComputeDomain, some time after the pods that name it."""
    made: set[str] = set()
    while True:
        for each in await api.items(DOMAINS):
            uid = each["metadata"]["uid"]
            if uid not in made:
                await asyncio.sleep(0.5)
                await api.post(TEMPLATES, template_of(each))
                made.add(uid)
        await asyncio.sleep(0.1)


def template_of(found: Document) -> Document:
    parameters = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomainChannelConfig",
        "domainID": found["metadata"]["uid"],
        "allocationMode": "Single",
    }
    devices = {
        "requests": [{"name": "channel", "exactly": {"deviceClassName": CHANNELS}}],
        "config": [
            {"requests": ["channel"], "opaque": {"driver": DRIVER, "parameters": parameters}}
        ],
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": found["spec"]["channel"]["resourceClaimTemplate"]["name"]},
        "spec": {"spec": {"devices": devices}},
    }


def published() -> list[Document]:
    """The class of channels, and one channel and daemon on each node of a clique."""
    cel = (
        f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].type == "channel"'
        f' && device.attributes["{DRIVER}"].id == 0'
    )
    found: list[Document] = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": CHANNELS},
            "spec": {"selectors": [{"cel": {"expression": cel}}]},
        }
    ]
    for each in NODES:
        devices = [
            {"name": f"{kind}-0", "attributes": {"type": {"string": kind}, "id": {"int": 0}}}
            for kind in ("channel", "daemon")
        ]
        spec = {
            "driver": DRIVER,
            "nodeName": each.name,
            "pool": {"name": each.name, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        }
        found.append(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": f"{each.name}-{DRIVER}"},
                "spec": spec,
            }
        )
    return found


@asynccontextmanager
async def driver(cluster: Cluster) -> AsyncIterator[None]:
    """The driver's kinds, slices and controller, without nodes, for the duration of the block."""
    for kind in KINDS:
        await define(cluster.api, kind)
    await cluster.submit(queue(), *published())
    controller = asyncio.create_task(play_controller(cluster.api))
    try:
        yield
    finally:
        controller.cancel()
        for kind in KINDS:
            await cluster.api.delete(f"{DEFINITIONS}/{kind['metadata']['name']}")


def mpi_pod(name: str, role: str, owner: Document, spec: Document) -> Document:
    made = pod(name, spec, labels={"training.kubeflow.org/job-role": role})
    reference = {key: owner[key] for key in ("apiVersion", "kind")}
    reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
    made["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    return made


def cliques(bound: dict[str, str]) -> set[str]:
    return {node[0] for node in bound.values()}


async def test_nvbandwidth_starts_with_its_launcher_on_the_control_plane(
    cluster: Cluster, view: View
):
    replicas: dict[str, Any] = {"Launcher": {"replicas": 1}, "Worker": {"replicas": 3}}
    mpi_job = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "nvb", "namespace": "default", "annotations": dict(IN_TEAM_A)},
        "spec": {"mpiReplicaSpecs": replicas},
    }
    async with driver(cluster), cluster.run_nodes(NODES):
        owner = await cluster.api.create(mpi_job)
        worker = pod_spec(template="nvb-channel")
        workers = [mpi_pod(f"nvb-worker-{i}", "worker", owner, worker) for i in range(3)]
        launcher = mpi_pod("nvb-launcher", "launcher", owner, pod_spec(nodeSelector=CONTROL_PLANE))
        await cluster.submit(domain("nvb"), *workers, launcher)
        bound = await view.wait_bound("nvb", 4, within=30.0)
        assert bound.pop("nvb-launcher") == "control"
        assert cliques(bound) == {"b"}


async def test_two_jobs_of_one_domain_share_a_clique(cluster: Cluster, view: View):
    spec = pod_spec(template="pair-channel")
    jobs = [job(f"pair-{number}", 2, spec, annotations=IN_PAIRS) for number in ("one", "two")]
    async with driver(cluster):
        await cluster.submit(*jobs, domain("pair"))
        await eventually(lambda: claims_made(view, 4), what="a claim for each pod")
        async with cluster.run_nodes(NODES):
            # Nodes join one by one: only with all of them the first Job can choose for both.
            await cluster.submit(queue("pairs"))
            bound = await view.wait_bound("pair", 4, within=30.0)
            assert cliques(bound) == {"b"}
            await cluster.submit(job("pair-late", 1, spec, annotations=IN_PAIRS))
            message = await view.wait_pending("pair-late", 1, reason="Unschedulable")
            assert "must be in the NVLink clique of its other pods" in message
            assert "cluster.b has capacity for 0 and lacks 1" in message


async def claims_made(view: View, count: int) -> bool:
    return len(await view.claims()) == count
