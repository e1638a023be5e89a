"""Small simulated clusters, built as users would: nodes with slices, queues, Jobs."""

from kai_py.config import Configuration
from kai_py.embedded.nodes import h100_node, h100_slices, nvidia_device_classes
from kai_py.simulate.cluster import SimulatedCluster

NOW = 1_800_000_000.0


def simulated(*documents, nodes=2, gpus=4):
    cluster = SimulatedCluster(Configuration(), start=NOW)
    cluster.embedded.create_all(nvidia_device_classes())
    for index in range(nodes):
        cluster.embedded.create(h100_node(f"node-{index}", gpus=gpus))
        cluster.embedded.create_all(h100_slices(f"node-{index}", gpus=gpus))
    cluster.embedded.create(template())
    cluster.embedded.create_all(documents)
    return cluster


def queue(name, deserved=0, maximum=None, **spec):
    most = {} if maximum is None else {"maxGPUs": maximum}
    return {
        "apiVersion": "scheduling.kai.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"deservedGPUs": deserved, **most, **spec},
    }


def template():
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one-gpu"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def priority_class(name, value):
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def job(name, pods, queue, priority="", seconds=None):
    annotations = {} if seconds is None else {"kai-py.demo/run-seconds": str(seconds)}
    spec = {
        "schedulerName": "kai-scheduler",
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
    }
    if priority:
        spec["priorityClassName"] = priority
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": {"scheduling.kai.io/queue-name": queue}},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 1000,
            "template": {"metadata": {"annotations": annotations}, "spec": spec},
        },
    }


def running(cluster):
    """Names of Jobs all of whose pods are on nodes."""
    pods = {}
    for pod in cluster.embedded.api.list(cluster.embedded.registry.named("pods")):
        owner = pod["metadata"]["ownerReferences"][0]["name"]
        pods.setdefault(owner, []).append(pod["spec"].get("nodeName"))
    return {name for name, nodes in pods.items() if all(nodes)}
