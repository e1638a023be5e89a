"""Objects of KAI's users: queues, PodGroups, and Jobs with their pods."""

from tests.dialects.feeding import pod

KAI = "kai.scheduler/queue"


def kai_queue(name, **gpu):
    open_ended = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = {"cpu": open_ended, "memory": open_ended, "gpu": gpu}
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"resources": resources},
    }


def native_queue(name, **spec):
    return {
        "apiVersion": "scheduling.kai.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"deservedGPUs": 8, **spec},
    }


def in_kai_queue(name, queue, **parts):
    return pod(name, labels={"kai.scheduler/queue": queue}, **parts)


def pod_group(name, status=None, **spec):
    return {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, **spec.pop("metadata", {})},
        "spec": {"queue": "q", **spec},
        "status": status or {},
    }


def member(name, group, leaf="", gpus=1, **parts):
    labels = parts.pop("labels", {}) | ({"kai.scheduler/subgroup-name": leaf} if leaf else {})
    return pod(name, gpus, labels=labels, annotations={"pod-group-name": group}, **parts)


def members(group, count, leaf="", **parts):
    return [member(f"{group}-{leaf}{i}", group, leaf, **parts) for i in range(count)]


def priority_class(name, value, *, default=False):
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "globalDefault": default,
    }


def job(name, pods, labels=None, annotations=None):
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
        "spec": {"parallelism": pods, "completions": pods},
    }


def with_pods(owner, count, **parts):
    name = owner["metadata"]["name"]
    return [owner, *(pod(f"{name}-{i}", owner=owner, **parts) for i in range(count))]


QUEUE = kai_queue("q", quota=8, limit=-1, overQuotaWeight=1)
