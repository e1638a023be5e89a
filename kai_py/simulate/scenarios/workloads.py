"""Manifests of a scenario's nodes and Jobs."""

from collections.abc import Iterator
from typing import Any

from kai_py.api.gpu_share import GPU_FRACTION, GPU_RESOURCE
from kai_py.api.quantity import NANO, Quantity, QuantityFormat
from kai_py.api.queue import QUEUE_NAME_KEY
from kai_py.api.records.node import HOSTNAME_LABEL
from kai_py.api.references import PodRef
from kai_py.api.times import format_duration
from kai_py.embedded.in_process import InProcessCluster
from kai_py.embedded.kubelet import RUN_SECONDS
from kai_py.embedded.resources import PODS
from kai_py.grouping.annotations import (
    CHECKPOINT_INTERVAL_KEY,
    EXPECTED_RUNTIME_KEY,
    MIN_AVAILABLE_KEY,
    ON_DEPARTURE_KEY,
    SPOT_KEY,
)
from kai_py.simulate.scenarios.scenario import Arrival, NodeGroup, ScenarioJob

NAMESPACE = "default"
SPOT_LABELS = {"karpenter.sh/capacity-type": "spot"}

Manifest = dict[str, Any]


def node_manifests(kind: NodeGroup) -> Iterator[Manifest]:
    """The nodes of a group; their GPUs are those of a device plugin."""
    amounts = {
        "cpu": f"{kind.cpu:g}",
        "memory": _memory(kind.memory_gib),
        "pods": "1000",
        GPU_RESOURCE: str(kind.gpus),
    }
    labels = {**(SPOT_LABELS if kind.spot else {}), **kind.labels}
    for number in range(kind.count):
        name = f"{kind.name}-{number}"
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {HOSTNAME_LABEL: name, **labels}},
            "spec": {},
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }


def priority_class(value: int) -> Manifest:
    """The PriorityClass for pods of this priority."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": priority_class_name(value)},
        "value": value,
    }


def priority_class_name(value: int) -> str:
    """Its name; a name cannot start with a minus sign."""
    return f"priority-{'below-' if value < 0 else ''}{abs(value)}"


def job_manifest(arrival: Arrival, start_up_seconds: float = 0.0) -> Manifest:
    """The Job that a user would create; disruptions don't count as its failures."""
    job = arrival.job
    annotations = {QUEUE_NAME_KEY: job.queue}
    if job.min_available is not None:
        annotations[MIN_AVAILABLE_KEY] = str(job.min_available)
    if job.expected_minutes is not None:
        annotations[EXPECTED_RUNTIME_KEY] = format_duration(job.expected_minutes * 60)
    if job.checkpoint_minutes is not None:
        annotations[CHECKPOINT_INTERVAL_KEY] = format_duration(job.checkpoint_minutes * 60)
    if job.spot is not None:
        annotations[SPOT_KEY] = job.spot
    if job.on_node_departure is not None:
        annotations[ON_DEPARTURE_KEY] = job.on_node_departure
    disrupted = {"type": "DisruptionTarget", "status": "True"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": arrival.name, "annotations": annotations},
        "spec": {
            "parallelism": job.pods,
            "completions": job.pods,
            "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [disrupted]}]},
            "template": {
                "metadata": {"annotations": _pod_marks(job, start_up_seconds)},
                "spec": _pod_spec(job),
            },
        },
    }


def _memory(gibibytes: float) -> str:
    amount = max(round(gibibytes * 2**30), 1)
    return str(Quantity(amount * NANO, QuantityFormat.BINARY_SI))


def _fraction(gpus: float) -> str:
    """A part of a GPU with the digits that the annotation may have."""
    least = 1e-9
    return f"{min(max(gpus, least), 1 - least):.9f}".rstrip("0")


def _pod_marks(job: ScenarioJob, start_up_seconds: float) -> dict[str, str]:
    annotations = {RUN_SECONDS: f"{start_up_seconds + job.minutes * 60:g}"}
    if 0 < job.gpus_per_pod < 1:
        annotations[GPU_FRACTION] = _fraction(job.gpus_per_pod)
    return annotations


def _pod_spec(job: ScenarioJob) -> Manifest:
    amounts = {"cpu": f"{job.cpu_per_pod:g}", "memory": _memory(job.memory_gib_per_pod)}
    if job.gpus_per_pod >= 1:
        amounts[GPU_RESOURCE] = f"{job.gpus_per_pod:g}"
    spec: Manifest = {
        "schedulerName": "kai-scheduler",
        "restartPolicy": "Never",
        "priorityClassName": priority_class_name(job.priority),
        "containers": [{"name": "main", "image": "simulated", "resources": {"limits": amounts}}],
    }
    single = {key: values[0] for key, values in job.node_selector.items() if len(values) == 1}
    multiple = [
        {"key": key, "operator": "In", "values": list(values)}
        for key, values in job.node_selector.items()
        if len(values) > 1
    ]
    if single:
        spec["nodeSelector"] = single
    if multiple:
        terms = {"nodeSelectorTerms": [{"matchExpressions": multiple}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        spec["affinity"] = {"nodeAffinity": required}
    return spec


def set_run_seconds(cluster: InProcessCluster, pod: PodRef, seconds: float) -> None:
    """Let a pod that has not begun to run end after ``seconds``."""

    def shortened(present: Manifest) -> Manifest:
        meta = present["metadata"]
        annotations = {**meta["annotations"], RUN_SECONDS: f"{seconds:g}"}
        return {**present, "metadata": {**meta, "annotations": annotations}}

    cluster.api.edit(PODS, pod.name, pod.namespace, shortened)
