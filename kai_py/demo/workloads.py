"""Manifests of the demo's queues, priorities, claim templates and Jobs.

A Job of a workload is what a user would write: a queue name, a ResourceClaimTemplate or a limit of
``nvidia.com/gpu``, and a podFailurePolicy that does not count disruptions as failures.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any

from msgspec import Struct

from kai_py.api.queue import API_VERSION, QUEUE_NAME_KEY
from kai_py.grouping.annotations import MIN_AVAILABLE_KEY

NAMESPACE = "default"
PLUGIN_RESOURCE = "nvidia.com/gpu"
PLUGIN_NODES = {"nvidia.com/gpu.deploy.device-plugin": "true"}
"""Labels of nodes with a device plugin; elsewhere a claim would serve the resource."""
GPU_CLASS = "gpu.nvidia.com"

Manifest = dict[str, Any]


class GpuSource(StrEnum):
    """How a workload requests its GPUs."""

    CLAIM = "resource claim"
    PLUGIN = "device plugin"


class QueueSetup(Struct, frozen=True):
    """A queue, and its deserved and maximum GPUs."""

    name: str
    deserved: int
    maximum: int


class DemoWorkload(Struct, frozen=True):
    """A Job of ``pods`` pods with ``gpus`` GPUs each; ``min_available`` of them start together."""

    name: str
    queue: str
    pods: int
    gpus: int
    min_available: int
    priority_class: str = ""
    source: GpuSource = GpuSource.CLAIM


def setup_manifests(
    queues: Iterable[QueueSetup], priorities: dict[str, int], workloads: Iterable[DemoWorkload]
) -> Iterator[Manifest]:
    """The objects that must exist before the first Job."""
    for queue in queues:
        yield {
            "apiVersion": API_VERSION,
            "kind": "Queue",
            "metadata": {"name": queue.name},
            "spec": {"deservedGPUs": queue.deserved, "maxGPUs": queue.maximum},
        }
    for name, value in priorities.items():
        yield {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
    for gpus in sorted({each.gpus for each in workloads if each.source is GpuSource.CLAIM}):
        yield _claim_template(gpus)


def job_manifest(workload: DemoWorkload) -> Manifest:
    """The Job of a workload."""
    labels = {QUEUE_NAME_KEY: workload.queue}
    annotations = (
        {}
        if workload.min_available == workload.pods
        else {MIN_AVAILABLE_KEY: str(workload.min_available)}
    )
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": workload.name,
            "namespace": NAMESPACE,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {
            "parallelism": workload.pods,
            "completions": workload.pods,
            "completionMode": "Indexed",
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "Ignore",
                        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                    }
                ]
            },
            "template": {"metadata": {"labels": labels}, "spec": _pod_spec(workload)},
        },
    }


def _pod_spec(workload: DemoWorkload) -> Manifest:
    container: Manifest = {"name": "main", "image": f"registry.example/{workload.name}"}
    spec: Manifest = {
        "schedulerName": "kai-scheduler",
        "restartPolicy": "Never",
        "containers": [container],
    }
    if workload.priority_class:
        spec["priorityClassName"] = workload.priority_class
    if workload.source is GpuSource.PLUGIN:
        container["resources"] = {"limits": {PLUGIN_RESOURCE: str(workload.gpus)}}
        spec["nodeSelector"] = PLUGIN_NODES
        return spec
    container["resources"] = {"claims": [{"name": "gpus"}]}
    template = _template_name(workload.gpus)
    spec["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": template}]
    return spec


def _template_name(gpus: int) -> str:
    return f"h100-x{gpus}"


def _claim_template(gpus: int) -> Manifest:
    request = {"name": "gpus", "exactly": {"deviceClassName": GPU_CLASS, "count": gpus}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": _template_name(gpus), "namespace": NAMESPACE},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
