"""A scheduler for tests: every unbound pod to one node, its claims to the next free device."""

from kai_py.api.records.resource import DELETE_PROTECTION_FINALIZER
from kai_py.embedded.resources import CLAIMS, PODS
from kai_py.embedded.subresources import bind
from tests.embedded.manifests import allocation, consumer


def bind_all(cluster, node="n"):
    for pod in cluster.api.list(PODS):
        if not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]:
            bind(cluster.api, pod["metadata"]["name"], "default", {"target": {"name": node}})


def allocate(cluster, name, pods, device):
    """Give a claim a device and reserve it for pods, as a scheduler does."""

    def protect(claim):
        return {
            **claim,
            "metadata": {**claim["metadata"], "finalizers": [DELETE_PROTECTION_FINALIZER]},
        }

    claim = cluster.api.edit(CLAIMS, name, "default", protect)
    status = {"allocation": allocation(device), "reservedFor": [consumer(pod) for pod in pods]}
    return cluster.api.patch_status(CLAIMS, claim, status)


def names(cluster, resource):
    return [document["metadata"]["name"] for document in cluster.api.list(resource)]


def phases(cluster):
    return [pod["status"]["phase"] for pod in cluster.api.list(PODS)]
