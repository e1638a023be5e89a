"""What is written to the API server: nodes of the peer's scale tests, pods for GPUs, a gang."""

from tests.support.cluster.api import Document

KUBE_SCHEDULER, KAI_PY = "default-scheduler", "kai-scheduler"
QUEUE = "fill"
DRIVER = "gpu.nvidia.com"
QUEUE_LABEL = {"scheduling.kai.io/queue-name": QUEUE}


def node(i: int) -> Document:
    """A node with 8 GPUs, 32 cores, 256 GiB and capacity for 110 pods."""
    amounts = {"cpu": "32", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
    name = f"node-{i:04d}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def queue(gpus: int) -> Document:
    """The one queue, which deserves everything."""
    return {
        "apiVersion": "scheduling.kai.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": QUEUE},
        "spec": {"deservedGPUs": gpus},
    }


def pod(i: int, scheduler: str) -> Document:
    """A pod of one GPU."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{i:05d}", "labels": QUEUE_LABEL},
        "spec": pod_spec(scheduler, gpus=1),
    }


def claiming_pod(i: int, scheduler: str) -> Document:
    """A pod with a claim for one device, made from ``one_gpu``."""
    spec = pod_spec(scheduler, gpus=0)
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    spec["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    return {**pod(i, scheduler), "spec": spec}


def one_gpu() -> tuple[Document, Document]:
    """The class of all devices, and the template of a claim for one of them."""
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
    api = {"apiVersion": "resource.k8s.io/v1"}
    return (
        {
            **api,
            "kind": "DeviceClass",
            "metadata": {"name": DRIVER},
            "spec": {"selectors": [selector]},
        },
        {
            **api,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "one-gpu", "namespace": "default"},
            "spec": {"spec": {"devices": {"requests": [request]}}},
        },
    )


def gpu_slice(i: int) -> Document:
    """Eight devices of a node."""
    name = f"node-{i:04d}"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-gpus"},
        "spec": {
            "driver": DRIVER,
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{number}"} for number in range(8)],
        },
    }


def gang(pods: int, gpus: int) -> Document:
    """A Job whose pods start together."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "gang", "annotations": QUEUE_LABEL},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "template": {"spec": pod_spec(KAI_PY, gpus=gpus)},
        },
    }


def pod_spec(scheduler: str, *, gpus: int) -> Document:
    """One container with GPUs."""
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    requests = {"cpu": "1", "memory": "1Gi"}
    return {
        "schedulerName": scheduler,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {
                "name": "main",
                "image": "registry.example.com/main",
                "resources": {"limits": limits, "requests": requests},
            }
        ],
    }
