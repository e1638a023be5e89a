"""What the API sends for a big cluster, as bytes: nodes, and Jobs of eight training pods.

A pod has about 7 KB, a third of it managedFields, as training pods have; what differs between two
objects is filled into a template.
"""

import json
from collections.abc import Callable
from typing import Any

Document = dict[str, Any]
Template = Callable[[int], bytes]

PODS_PER_JOB = 8
CREATED = "2026-01-01T00:00:00Z"
CHANGED = "2026-01-01TTIMEZ"
QUEUE = {"scheduling.kai.io/queue-name": "queue-0"}


def pods(node_count: int) -> Template:
    """Running pods, eight of a Job on one node."""
    text = json.dumps(_pod())

    def render(i: int) -> bytes:
        job = i // PODS_PER_JOB
        time = f"{job // 3600 % 24:02d}:{job // 60 % 60:02d}:{i % 60:02d}"
        filled = text.replace("POD", f"{i:06d}").replace("JOB", f"{job:06d}").replace("TIME", time)
        return filled.replace("ROW", f"{job % node_count:05d}").encode()

    return render


def jobs() -> Template:
    """The Jobs of these pods."""
    meta = _meta("job-JOB", "uid-job-JOB") | {"annotations": QUEUE}
    spec = {"parallelism": PODS_PER_JOB, "completions": PODS_PER_JOB}
    text = json.dumps({"metadata": meta, "spec": spec})
    return lambda i: text.replace("JOB", f"{i:06d}").encode()


def nodes() -> Template:
    """Nodes of eight GPUs, with what a kubelet writes."""
    text = json.dumps(_node())
    return lambda i: text.replace("ROW", f"{i:05d}").encode()


def namespaces() -> Template:
    """The one namespace."""
    text = json.dumps({"metadata": {"name": "training", "uid": "uid-training"}})
    return lambda _: text.encode()


def queues() -> Template:
    """The one queue."""
    meta = {"name": "queue-0", "uid": "uid-queue-0", "creationTimestamp": CREATED}
    text = json.dumps({"metadata": meta, "spec": {"deservedGPUs": 80_000}})
    return lambda _: text.encode()


def _meta(name: str, uid: str) -> Document:
    return {
        "name": name,
        "namespace": "training",
        "uid": uid,
        "resourceVersion": "1000",
        "creationTimestamp": CREATED,
    }


def _pod() -> Document:
    environment = [{"name": f"NCCL_SETTING_{i}", "value": f"setting-{i}"} for i in range(24)]
    container = {
        "name": "trainer",
        "image": "registry.example.com/research/trainer:2026.1",
        "command": ["torchrun", "--nnodes=1", "--nproc-per-node=1", "train.py"],
        "env": environment,
        "resources": {
            "requests": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"},
            "limits": {"memory": "64Gi", "nvidia.com/gpu": "1"},
        },
        "volumeMounts": [
            {"name": name, "mountPath": f"/{name}"} for name in ("data", "checkpoints", "shm")
        ],
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
    }
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "job-JOB",
        "uid": "uid-job-JOB",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    meta = _meta("job-JOB-POD", "uid-pod-POD") | {
        "generateName": "job-JOB-",
        "labels": {
            "batch.kubernetes.io/job-name": "job-JOB",
            "batch.kubernetes.io/controller-uid": "uid-job-JOB",
            "app": "trainer",
            "team": "research",
        },
        "annotations": QUEUE | {"prometheus.io/scrape": "true", "prometheus.io/port": "9400"},
        "ownerReferences": [owner],
        "managedFields": [_managed(container), _managed(container)],
    }
    return {
        "metadata": meta,
        "spec": {
            "schedulerName": "kai-scheduler",
            "nodeName": "node-ROW",
            "restartPolicy": "Never",
            "serviceAccountName": "default",
            "containers": [container],
            "volumes": [
                {"name": "shm", "emptyDir": {"medium": "Memory"}},
                {"name": "data", "hostPath": {"path": "/mnt/data"}},
                {"name": "checkpoints", "hostPath": {"path": "/mnt/checkpoints"}},
            ],
            "tolerations": [
                {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute"}
                for state in ("not-ready", "unreachable")
            ],
            "priority": 0,
            "enableServiceLinks": True,
        },
        "status": _pod_status(),
    }


def _managed(container: Document) -> Document:
    names = (entry["name"] for entry in container["env"])
    fields: Document = {f'k:{{"name":"{name}"}}': {".": {}, "f:name": {}} for name in names}
    return {
        "manager": "kube-controller-manager",
        "operation": "Update",
        "apiVersion": "v1",
        "time": CREATED,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:containers": {"f:env": fields}}},
    }


def _pod_status() -> Document:
    return {
        "phase": "Running",
        "hostIP": "10.0.0.1",
        "podIP": "10.1.0.1",
        "startTime": CHANGED,
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": CHANGED}
            for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ],
        "containerStatuses": [
            {
                "name": "trainer",
                "ready": True,
                "restartCount": 0,
                "image": "registry.example.com/research/trainer:2026.1",
                "imageID": "registry.example.com/research/trainer@sha256:" + "0" * 64,
                "containerID": "containerd://" + "0" * 64,
                "state": {"running": {"startedAt": CREATED}},
            }
        ],
        "qosClass": "Burstable",
    }


def _node() -> Document:
    amounts = {"cpu": "192", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": "8"}
    images = [
        {"names": [f"registry.example.com/image-{i}@sha256:{'0' * 64}"], "sizeBytes": 1 << 30}
        for i in range(20)
    ]
    return {
        "metadata": {
            "name": "node-ROW",
            "uid": "uid-node-ROW",
            "resourceVersion": "1000",
            "creationTimestamp": CREATED,
            "labels": {
                "kubernetes.io/hostname": "node-ROW",
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": "gpu-8",
                "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
                **{f"feature.node.kubernetes.io/cpu-{i}": "true" for i in range(30)},
            },
        },
        "spec": {"podCIDR": "10.1.0.0/24"},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [
                {"type": kind, "status": status, "lastTransitionTime": CREATED}
                for kind, status in (
                    ("Ready", "True"),
                    ("MemoryPressure", "False"),
                    ("DiskPressure", "False"),
                    ("PIDPressure", "False"),
                )
            ],
            "images": images,
        },
    }
