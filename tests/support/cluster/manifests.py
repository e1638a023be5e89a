"""What do users submit? Small documents of queues, workloads and claims in today's spelling."""

from collections.abc import Mapping
from typing import Any

from tests.cluster.fake_kubelet.nodes import GPU_DRIVER
from tests.support.cluster.api import Document

QUEUE_KEY = "scheduling.kai.io/queue-name"
POD_GROUP_KEY = "scheduling.kai.io/pod-group"
MIN_AVAILABLE_KEY = "scheduling.kai.io/min-available"
PREEMPTIBILITY_KEY = "scheduling.kai.io/preemptibility"
SCHEDULER = "kai-scheduler"
TEMPLATE = "one-gpu"

IN_TEAM_A = {QUEUE_KEY: "team-a"}


def queue(name: str = "team-a", **spec: Any) -> Document:
    return {
        "apiVersion": "scheduling.kai.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"deservedGPUs": 8, "maxGPUs": 16} | spec,
    }


def priority_class(name: str, value: int) -> Document:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def gpu_request(name: str = "gpu", **exactly: Any) -> Document:
    return {"name": name, "exactly": {"deviceClassName": GPU_DRIVER} | exactly}


def claim(name: str, *requests: Document, namespace: str = "default") -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"devices": {"requests": list(requests) or [gpu_request()]}},
    }


def claim_template(
    name: str = TEMPLATE, *requests: Document, namespace: str = "default"
) -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"spec": {"devices": {"requests": list(requests) or [gpu_request()]}}},
    }


def container(*, gpus: int = 0, claims: tuple[str, ...] = ()) -> Document:
    resources: Document = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    if claims:
        resources["claims"] = [{"name": name} for name in claims]
    return {"name": "main", "image": "none", "resources": resources}


def pod_spec(
    *, template: str = "", claim: str = "", gpus: int = 0, scheduler: str = SCHEDULER, **spec: Any
) -> Document:
    """A pod with a claim from a template or by name, or with GPUs of the device plugin."""
    source = {"resourceClaimTemplateName": template} if template else {"resourceClaimName": claim}
    named = ("gpu",) if template or claim else ()
    return {
        "schedulerName": scheduler,
        "restartPolicy": "Never",
        "containers": [container(gpus=gpus, claims=named)],
        "resourceClaims": [{"name": "gpu", **source}] if named else [],
    } | spec


def pod(
    name: str,
    spec: Document | None = None,
    *,
    namespace: str = "default",
    annotations: Mapping[str, str] = IN_TEAM_A,
    labels: Mapping[str, str] | None = None,
) -> Document:
    meta = {"name": name, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta | {"annotations": dict(annotations), "labels": dict(labels or {})},
        "spec": spec or pod_spec(template=TEMPLATE),
    }


def job(
    name: str,
    size: int,
    spec: Document | None = None,
    *,
    namespace: str = "default",
    annotations: Mapping[str, str] = IN_TEAM_A,
    pod_annotations: Mapping[str, str] | None = None,
) -> Document:
    """A Job of `size` pods at a time that names queue team-a."""
    template = {
        "metadata": {"annotations": dict(pod_annotations or {})},
        "spec": spec or pod_spec(template=TEMPLATE),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "annotations": dict(annotations)},
        "spec": {"parallelism": size, "completions": size, "template": template},
    }


def replicated(kind: str, name: str, replicas: int, spec: Document | None = None) -> Document:
    """A Deployment, ReplicaSet or StatefulSet whose pods name queue team-a."""
    labels = {"app": name}
    pods = pod_spec(template=TEMPLATE) if spec is None else spec
    extra = {"serviceName": name} if kind == "StatefulSet" else {}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": dict(IN_TEAM_A)},
                "spec": pods | {"restartPolicy": "Always"},
            },
            **extra,
        },
    }
