"""Reservation pods: each keeps one GPU of a device plugin for the pods that share it.

The device plugin chooses GPUs by itself. A pod that requests one whole GPU keeps it from all other
pods, and learns which one it got: its UUID is handed to the containers that share the GPU. Names
are KAI-Scheduler's, so that each scheduler understands the reservations of the other:

    namespace kai-resource-reservation, label app: kai-resource-reservation
    label runai-gpu-group: GROUP                    the group of pods for which the GPU is kept
    annotation run.ai/reserve_for_gpu_index: UUID   written by the reservation pod itself

The pods that share it carry, beside what ``kai_py.api.gpu_share`` describes, two annotations:

    scheduling.kai.io/gpu-container: NAME           by the webhook: this container has an
                                                    environment entry for its GPUs
    scheduling.kai.io/visible-gpus: UUID,UUID       before binding, the value of that entry
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from kai_py.api.gpu_share import (
    CONTAINER_NAME,
    GPU_GROUP,
    GPU_RESOURCE,
    RESERVATION,
    SHARE_RESOURCE,
    is_reservation_pod,
    shared_gpus,
)
from kai_py.api.numbers import shortened
from kai_py.api.pod_phases import is_finished
from kai_py.api.queue import GROUP
from kai_py.api.records.core import Pod

RESERVED_GPU = "run.ai/reserve_for_gpu_index"
GPU_CONTAINER = f"{GROUP}/gpu-container"
VISIBLE_GPUS = f"{GROUP}/visible-gpus"
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
"""The environment variable by which NVIDIA's container runtime gives a container its GPUs."""
NO_DEVICES = "void"
"""The value of it with which a container gets none, whatever its image says."""

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "kai-py"
RESERVE_COMMAND = "reserve-gpu"
RESERVATION_ACCOUNT = "kai-py-gpu-reservation"
"""Service account of the reservation pods of this scheduler."""


class GpuGroup(Struct, frozen=True, order=True):
    """The pods that share one GPU of ``node``, by the name of their group."""

    node: str
    group: str

    @property
    def reservation(self) -> str:
        """Name of the reservation pod of this scheduler."""
        digest = hashlib.sha256(f"{self.node}/{self.group}".encode()).hexdigest()
        return f"gpu-reservation-{digest[:16]}"

    def __str__(self) -> str:
        return f"GPU {self.group} of node {self.node}"


class ReservationTemplate(Struct, frozen=True, kw_only=True):
    """The parts of reservation pods that are configured; the entry point of ``image`` is kai-py."""

    image: str
    service_account: str = RESERVATION_ACCOUNT
    runtime_class: str = ""


def reservation_pod(gpu: GpuGroup, template: ReservationTemplate) -> dict[str, Any]:
    """The pod that reserves a GPU of the node for ``gpu``.

    It tolerates every taint: it stays until the pods that share the GPU have gone, and goes then.
    """
    container = {
        "name": "reservation",
        "image": template.image,
        "args": [RESERVE_COMMAND],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {
                "name": "POD_NAMESPACE",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}},
            },
        ],
        "resources": {
            # No CPU: the pods of a plan may request all that the node has, and the kubelet would
            # reject one of them. The memory keeps the pod from being evicted first.
            "requests": {"memory": "64Mi", GPU_RESOURCE: "1"},
            "limits": {GPU_RESOURCE: "1"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    spec: dict[str, Any] = {
        "nodeName": gpu.node,
        "serviceAccountName": template.service_account,
        "tolerations": [{"operator": "Exists"}],
        "restartPolicy": "Always",
        # Not 0: the pod must be listed until the kubelet has given the GPU back.
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    if template.runtime_class:
        spec["runtimeClassName"] = template.runtime_class
    labels = {"app": RESERVATION, GPU_GROUP: gpu.group, MANAGED_BY: MANAGER}
    annotations = {"karpenter.sh/do-not-disrupt": "true"}
    metadata = {"name": gpu.reservation, "labels": labels, "annotations": annotations}
    return {"metadata": metadata, "spec": spec}


def reserved_group(pod: Pod) -> GpuGroup | None:
    """The GPU for which ``pod`` is a reservation pod on a node, of either scheduler."""
    if not is_reservation_pod(pod) or not pod.spec.node_name:
        return None
    gpus = shared_gpus(pod)
    return GpuGroup(pod.spec.node_name, gpus[0].group) if len(gpus) == 1 else None


def is_live(pod: Pod) -> bool:
    """Whether a reservation pod keeps its GPU, and goes on to."""
    return pod.metadata.deletion_timestamp is None and not is_finished(pod)


def gpu_container(pod: Pod) -> str:
    """The container that uses the shared GPUs: the one that is named, else the first."""
    named = pod.metadata.annotations.get(CONTAINER_NAME)
    return named or next((each.name for each in pod.spec.containers), "")


def unmarked_container(pod: Pod) -> str:
    """Why no shared GPU can be given to ``pod``; "" if the webhook has prepared its container."""
    container = gpu_container(pod)
    if pod.metadata.annotations.get(GPU_CONTAINER) == container:
        return ""
    return (
        f"container {shortened(container)} can't be given its GPU: the pod was created while no "
        "admission webhook of kai-py was running to add the environment entry (kai-py install "
        "--webhook); create the pod again once one is running"
    )


def gpu_environment(pod: Mapping[str, Any], container: str) -> dict[str, Any]:
    """The lists of containers of a pod's manifest with an environment entry for GPUs each.

    ``container`` sees the GPUs that are chosen when the pod is bound, the others see none; images
    that ask for all GPUs are common. It also requests ``SHARE_RESOURCE``.
    """
    return {
        kind: list(_with_entries(containers, container))
        for kind in ("initContainers", "containers")
        if (containers := pod["spec"].get(kind))
    }


def _with_entries(containers: list[dict[str, Any]], chosen: str) -> Iterator[dict[str, Any]]:
    path = f"metadata.annotations['{VISIBLE_GPUS}']"
    visible = {"name": VISIBLE_DEVICES, "valueFrom": {"fieldRef": {"fieldPath": path}}}
    none = {"name": VISIBLE_DEVICES, "value": NO_DEVICES}
    for each in containers:
        others = [entry for entry in each.get("env") or () if entry.get("name") != VISIBLE_DEVICES]
        if each.get("name") != chosen:
            yield {**each, "env": [*others, none]}
            continue
        yield {**each, "env": [*others, visible], "resources": _with_share(each.get("resources"))}


def _with_share(resources: Mapping[str, Any] | None) -> dict[str, Any]:
    """The resources of a container with a request for a share, which needs an equal limit."""
    present, share = dict(resources or {}), {SHARE_RESOURCE: "1"}
    both = {kind: {**(present.get(kind) or {}), **share} for kind in ("requests", "limits")}
    return present | both
