"""Objects as kubectl prints them, for audits of small clusters."""

from datetime import UTC, datetime

NOW = 1_800_000_000.0
LONG_AGO = NOW - 3600.0
QUEUE = "scheduling.kai.io/queue-name"
DRIVER = "gpu.nvidia.com"


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(
    name,
    *,
    node="node-a",
    bound=LONG_AGO,
    created=LONG_AGO,
    phase="Running",
    scheduler="kai-scheduler",
    claims=(),
    requests=None,
    owner=None,
    leaving=False,
    annotations=None,
    labels=None,
    conditions=(),
    volumes=(),
    ports=(),
    **status,
):
    """``claims``: names; a name after "=" is that of a template, its claim POD-ENTRY.

    ``volumes``: names of PersistentVolumeClaims; ``ports``: ports of the container.
    """
    entries, statuses = [], []
    for position, claim in enumerate(claims):
        entry = f"entry-{position}"
        if claim.startswith("="):
            entries.append({"name": entry, "resourceClaimTemplateName": claim[1:]})
            statuses.append({"name": entry, "resourceClaimName": f"{name}-{entry}"})
        else:
            entries.append({"name": entry, "resourceClaimName": claim})
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "creationTimestamp": stamp(created),
        "annotations": annotations or {},
        "labels": labels or {},
    }
    if leaving:
        metadata["deletionTimestamp"] = stamp(NOW)
    if owner:
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": f"uid-{owner}"}
        metadata["ownerReferences"] = [{**reference, "controller": True}]
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(bound)}
    container = {"name": "main", "resources": {"requests": requests or {"cpu": "1"}}}
    container["ports"] = list(ports)
    mounted = [{"name": v, "persistentVolumeClaim": {"claimName": v}} for v in volumes]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "schedulerName": scheduler,
            "containers": [container],
            "volumes": mounted,
            **({"nodeName": node} if node else {}),
            **({"resourceClaims": entries} if entries else {}),
        },
        "status": {
            "phase": phase if node else "Pending",
            "conditions": [*([scheduled] if node else []), *conditions],
            **({"resourceClaimStatuses": statuses} if statuses else {}),
            **status,
        },
    }


def result(device, pool="node-a", **fields):
    return {"request": "gpu", "driver": DRIVER, "pool": pool, "device": device, **fields}


def claim(name, *results, users=(), since=LONG_AGO, groups=(), **metadata):
    """``users``: pods, ``groups``: PodGroups, for which it is reserved."""
    reserved = [{"resource": "pods", "name": each, "uid": f"uid-{each}"} for each in users]
    reserved += [
        {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": g, "uid": f"uid-{g}"}
        for g in groups
    ]
    status = {"reservedFor": reserved} if reserved else {}
    if results:
        devices = {"results": list(results)}
        status["allocation"] = {"devices": devices, "allocationTimestamp": stamp(since)}
    exactly = {"deviceClassName": DRIVER}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", **metadata},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        "status": status,
    }


def device_slice(*devices, pool="node-a", counters=(), slices=1, generation=1, name=""):
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name or f"slice-{pool}"},
        "spec": {
            "driver": DRIVER,
            "nodeName": pool,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": slices},
            "devices": list(devices),
            **({"sharedCounters": list(counters)} if counters else {}),
        },
    }


def node(name="node-a", *, ready_since=LONG_AGO, labels=None, capacity=None, **allocatable):
    amounts = {"cpu": "8", "memory": "64Gi", "pods": "110"}
    amounts |= {key.replace("__", "/").replace("_", "."): v for key, v in allocatable.items()}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": stamp(ready_since)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels or {}},
        "status": {
            "allocatable": amounts,
            "capacity": {**amounts, **(capacity or {})},
            "conditions": [ready],
        },
    }


def volume_claim(name, mode="ReadWriteOncePod", namespace="default"):
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"},
        "spec": {"accessModes": [mode], "volumeName": f"pv-{name}"},
    }


def job(name, pods, queue=""):
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "annotations": {QUEUE: queue} if queue else {},
        },
        "spec": {"parallelism": pods, "completions": pods},
    }


def pod_group(name):
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {},
    }


def queue(name, maximum=None, parent=""):
    spec = {"deservedGPUs": 0, **({"maxGPUs": maximum} if maximum is not None else {})}
    if parent:
        spec["parent"] = parent
    return {
        "apiVersion": "scheduling.kai.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": spec,
    }


def gpus(count):
    return {"cpu": "1", "nvidia.com/gpu": str(count)}
