"""What do a node, its lease and its GPUs look like in the API?

Nodes are as a kubelet registers them, ResourceSlices as NVIDIA's DRA driver publishes full GPUs:
one pool per node, one slice, devices `gpu-0`, `gpu-1`, ...
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Document = dict[str, Any]

GPU_DRIVER = "gpu.nvidia.com"
LEASE_NAMESPACE = "kube-node-lease"
H100 = "NVIDIA H100 80GB HBM3"


@dataclass(frozen=True, kw_only=True)
class FakeNode:
    """A node to register.

    `published_gpus` are devices of its ResourceSlice; GPUs of a device plugin are written into
    `allocatable` as `nvidia.com/gpu`.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    allocatable: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    published_gpus: int = 0
    device_taints: Sequence[Mapping[str, str]] = ()
    """Of all published GPUs."""
    product: str = H100
    unschedulable: bool = False
    gpu_memory: str = "81559Mi"
    shareable: bool = False
    """Whether several claims may have parts of a published GPU's memory."""

    @property
    def resources(self) -> dict[str, str]:
        """Everything allocatable, with capacity for many pods where nothing is said."""
        roomy = {"cpu": "128", "memory": "1Ti", "ephemeral-storage": "1Ti", "pods": "250"}
        return roomy | dict(self.allocatable)


def gpu_nodes(
    count: int,
    *,
    prefix: str = "node",
    published_gpus: int = 0,
    plugin_gpus: int = 0,
    shareable: bool = False,
    labels: Mapping[str, str] | None = None,
) -> list[FakeNode]:
    """Return `count` alike nodes named PREFIX-0, PREFIX-1, ..."""
    allocatable = {"nvidia.com/gpu": str(plugin_gpus)} if plugin_gpus else {}
    return [
        FakeNode(
            name=f"{prefix}-{i}",
            labels=dict(labels or {}),
            allocatable=allocatable,
            published_gpus=published_gpus,
            shareable=shareable,
        )
        for i in range(count)
    ]


def node_document(node: FakeNode, now: str) -> Document:
    """Return the Node as its kubelet would register it, Ready."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "labels": {
                "kubernetes.io/hostname": node.name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                **node.labels,
            },
        },
        "spec": {
            "taints": [dict(taint) for taint in node.taints],
            **({"unschedulable": True} if node.unschedulable else {}),
        },
        "status": {
            "capacity": node.resources,
            "allocatable": node.resources,
            "conditions": [
                _condition("Ready", "True", "KubeletReady", now),
                _condition("MemoryPressure", "False", "KubeletHasSufficientMemory", now),
                _condition("DiskPressure", "False", "KubeletHasNoDiskPressure", now),
                _condition("PIDPressure", "False", "KubeletHasSufficientPID", now),
            ],
            "addresses": [{"type": "Hostname", "address": node.name}],
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "kubeletVersion": "v1.36.3",
                "kubeProxyVersion": "",
                "containerRuntimeVersion": "fake://1",
                "osImage": "fake",
                "kernelVersion": "0",
                "machineID": node.name,
                "systemUUID": node.name,
                "bootID": node.name,
            },
        },
    }


def lease_document(node: FakeNode, uid: str, now: str) -> Document:
    """Return the Lease whose renewal tells the control plane that the node lives."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": node.name,
            "namespace": LEASE_NAMESPACE,
            "ownerReferences": [_owned_by(node, uid)],
        },
        "spec": {"holderIdentity": node.name, "leaseDurationSeconds": 40, "renewTime": now},
    }


def slice_document(node: FakeNode, uid: str) -> Document:
    """Return the ResourceSlice that publishes the node's GPUs."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {
            "name": f"{node.name}-{GPU_DRIVER}",
            "ownerReferences": [_owned_by(node, uid) | {"controller": True}],
        },
        "spec": {
            "driver": GPU_DRIVER,
            "nodeName": node.name,
            "pool": {"name": node.name, "generation": 1, "resourceSliceCount": 1},
            "devices": [_gpu(node, index) for index in range(node.published_gpus)],
        },
    }


def gpu_class_document() -> Document:
    """Return the DeviceClass of full GPUs, which also serves requests for `nvidia.com/gpu`."""
    full_gpu = f"device.driver == '{GPU_DRIVER}' && device.attributes['{GPU_DRIVER}'].type == 'gpu'"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": GPU_DRIVER},
        "spec": {
            "selectors": [{"cel": {"expression": full_gpu}}],
            "extendedResourceName": "nvidia.com/gpu",
        },
    }


def _gpu(node: FakeNode, index: int) -> Document:
    bus = 0x1A + 0x10 * index
    return {
        "name": f"gpu-{index}",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{node.name}/{index}')}"},
            "productName": {"string": node.product},
            "brand": {"string": "Nvidia"},
            "architecture": {"string": "Hopper"},
            "cudaComputeCapability": {"version": "9.0.0"},
            "driverVersion": {"version": "580.65.6"},
            "cudaDriverVersion": {"version": "13.0.0"},
            "addressingMode": {"string": "HMM"},
            "gpuModuleID": {"int": index + 1},
            "resource.kubernetes.io/pciBusID": {"string": f"0000:{bus + 1:02x}:00.0"},
            "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{bus:02x}"},
            "resource.kubernetes.io/numaNode": {"int": index * 2 // max(node.published_gpus, 1)},
        },
        "capacity": {"memory": {"value": node.gpu_memory}},
        **({"allowMultipleAllocations": True} if node.shareable else {}),
        **({"taints": [dict(taint) for taint in node.device_taints]} if node.device_taints else {}),
    }


def _owned_by(node: FakeNode, uid: str) -> Document:
    return {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": uid}


def _condition(kind: str, status: str, reason: str, now: str) -> Document:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
