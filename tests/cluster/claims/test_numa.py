"""Nodes that align to NUMA zones: what their reports say decides, from the first report on."""

from tests.cluster.fake_kubelet.nodes import FakeNode
from tests.support.cluster.api import MERGE_PATCH, Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.kai_definitions import KEPT, definition
from tests.support.cluster.manifests import pod, pod_spec, queue
from tests.support.cluster.scheduling import install, scheduling
from tests.support.cluster.view import View

GROUP, VERSION = "topology.node.k8s.io", "v1alpha2"
REPORTS = f"/apis/{GROUP}/{VERSION}/noderesourcetopologies"


async def install_reports(cluster: Cluster) -> None:
    wanted = definition(GROUP, VERSION, "NodeResourceTopology", "noderesourcetopologies", "Cluster")
    listed = {"type": "array", "items": KEPT}
    schema = wanted["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"] = {"zones": listed, "attributes": listed}
    wanted["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, for a test"}
    await install(cluster.api, wanted)


def zones(*available: int) -> list[Document]:
    def cpus(free: int) -> Document:
        return {"name": "cpu", "capacity": "5", "allocatable": "4", "available": str(free)}

    return [
        {"name": f"node-{number}", "type": "Node", "resources": [cpus(free)]}
        for number, free in enumerate(available)
    ]


def report(node: str, *available: int) -> Document:
    attributes = {"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "pod"}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "NodeResourceTopology",
        "metadata": {"name": node},
        "attributes": [{"name": name, "value": value} for name, value in attributes.items()],
        "zones": zones(*available),
    }


def guaranteed(name: str, cpus: int) -> Document:
    resources = {"limits": {"cpu": str(cpus), "memory": "1Gi"}}
    return pod(name, pod_spec() | {"containers": [container(resources)]})


def container(resources: Document) -> Document:
    return {"name": "main", "image": "none", "resources": resources}


async def test_pods_start_where_their_zones_are(
    cluster: Cluster, definitions: None, view: View
) -> None:
    await install_reports(cluster)
    await cluster.submit(queue(), report("aligned", 4, 4))
    async with scheduling(cluster), cluster.run_nodes([FakeNode(name="aligned")]):
        await cluster.submit(guaranteed("wide", 6))
        message = await view.wait_pending("wide", 1, reason="Unschedulable")
        assert "couldn't align the pod's resources to NUMA zones" in message
        await cluster.submit(*(guaranteed(f"pod-{number}", 3) for number in range(3)))
        await view.wait_bound("pod", 2)
        await view.wait_pending("pod", 1, reason="Unschedulable")
        await cluster.api.patch(
            f"{REPORTS}/aligned", {"zones": zones(1, 4)}, content_type=MERGE_PATCH
        )
        await view.wait_bound("pod", 3)
