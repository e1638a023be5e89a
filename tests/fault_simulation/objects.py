"""The objects of a simulated cluster: nodes, queues, and the Jobs that are submitted."""

from collections.abc import Iterator
from typing import Any

from kai_py.api.crd import crds
from kai_py.embedded.kubelet import RUN_SECONDS
from kai_py.embedded.nodes import h100_node, h100_slices, nvidia_device_classes
from tests.fault_simulation.schedule import QUEUES, Settings, Work

Document = dict[str, Any]
NAMESPACE = "team"
QUEUE_KEY = "scheduling.kai.io/queue-name"
MIN_AVAILABLE_KEY = "scheduling.kai.io/min-available"
PRIORITIES = (0, 100)


def cluster_objects(settings: Settings) -> Iterator[Document]:
    """What is there before the first scheduler starts."""
    yield from crds().values()
    yield from nvidia_device_classes()
    for value in PRIORITIES:
        yield {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": f"priority-{value}"},
            "value": value,
        }
    for number in range(settings.nodes):
        yield h100_node(f"node-{number}", gpus=settings.gpus)
        yield from h100_slices(f"node-{number}", gpus=settings.gpus)
    for name, most in queue_limits(settings).items():
        deserved = int(QUEUES[name][0] * settings.nodes * settings.gpus)
        yield {
            "apiVersion": "scheduling.kai.io/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {"deservedGPUs": deserved, "maxGPUs": most},
        }


def queue_limits(settings: Settings) -> dict[str, int]:
    """The most GPUs that each queue may have."""
    capacity = settings.nodes * settings.gpus
    return {name: int(most * capacity) for name, (_, most) in QUEUES.items()}


def work_objects(work: Work) -> Iterator[Document]:
    """A Job, after the claim or the template that it names."""
    if work.claim:
        exactly = {"deviceClassName": "gpu.nvidia.com", "count": work.gpus}
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
        kind = "ResourceClaimTemplate" if work.claim == "own" else "ResourceClaim"
        yield {
            "apiVersion": "resource.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": work.name, "namespace": NAMESPACE},
            "spec": {"spec": spec} if work.claim == "own" else spec,
        }
    yield _job(work)


def _job(work: Work) -> Document:
    annotations = {QUEUE_KEY: work.queue}
    if work.min_available:
        annotations[MIN_AVAILABLE_KEY] = str(work.min_available)
    disrupted = {"type": "DisruptionTarget", "status": "True"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": work.name, "namespace": NAMESPACE, "annotations": annotations},
        "spec": {
            "parallelism": work.pods,
            "completions": work.pods,
            "backoffLimit": 1000,
            "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [disrupted]}]},
            "template": {
                "metadata": {"annotations": {RUN_SECONDS: f"{work.seconds:g}"}},
                "spec": _pod_spec(work),
            },
        },
    }


def _pod_spec(work: Work) -> Document:
    resources: Document = {"limits": {"nvidia.com/gpu": str(work.gpus)}}
    claims = []
    if work.claim:
        name = f"resourceClaim{'Template' if work.claim == 'own' else ''}Name"
        claims = [{"name": "gpu", name: work.name}]
        resources = {"claims": [{"name": "gpu"}]}
    return {
        "schedulerName": "kai-scheduler",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "priorityClassName": f"priority-{work.priority}",
        "containers": [{"name": "main", "image": "simulated", "resources": resources}],
        "resourceClaims": claims,
    }
