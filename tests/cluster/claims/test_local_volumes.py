"""Claims of a class without a provisioner: pods go where the volumes are, one claim each."""

from collections.abc import Iterator

from tests.cluster.fake_kubelet import gpu_nodes
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import pod, pod_spec, queue
from tests.support.cluster.scheduling import install_definitions, scheduling
from tests.support.cluster.view import View

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "local"},
    "provisioner": "kubernetes.io/no-provisioner",
    "volumeBindingMode": "WaitForFirstConsumer",
}


def volume(name: str, node: str) -> Document:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = [{"matchFields": [field]}]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        },
    }


def pods_with_claims(count: int) -> Iterator[Document]:
    for number in range(count):
        name = f"data-{number}"
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name},
            "spec": {
                "storageClassName": "local",
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        yield pod(f"user-{number}", pod_spec(volumes=volumes))


async def test_pods_go_where_volumes_are_and_their_claims_are_bound_to_those(
    real: Cluster,
):
    view = View(real.api)
    await install_definitions(real.api)
    async with scheduling(real), real.run_nodes(gpu_nodes(3)):
        await real.submit(queue(), CLASS, volume("disk-0", "node-1"), volume("disk-1", "node-2"))
        await real.submit(*pods_with_claims(3))
        bound = await view.wait_bound("user", 2)
        assert sorted(bound.values()) == ["node-1", "node-2"]
        message = await view.wait_pending("user", 1, reason="Unschedulable")
        assert "didn't find available persistent volumes to bind" in message

        async def claims_bound() -> bool:
            held = {
                claim["metadata"]["name"]: claim["spec"].get("volumeName")
                for claim in await real.api.items(CLAIMS)
            }
            disks = {"node-1": "disk-0", "node-2": "disk-1"}
            wanted = {name.replace("user", "data"): disks[at] for name, at in bound.items()}
            return {name: disk for name, disk in held.items() if disk} == wanted

        await eventually(claims_bound, what="claims bound to the volumes of their pods' nodes")
