"""Demo hardware: H100 nodes as NVIDIA's DRA driver and its device plugin report them."""

from collections.abc import Sequence

from kai_py.api.records.node import HOSTNAME_LABEL
from kai_py.embedded.documents import Json

DRIVER = "gpu.nvidia.com"
RACK_LABEL = "topology.kubernetes.io/rack"
ZONE_LABEL = "topology.kubernetes.io/zone"

GPU_MEMORY_MIB = 81559


def h100_node(
    name: str,
    *,
    rack: str = "",
    zone: str = "",
    gpus: int = 8,
    device_plugin: bool = False,
    labels: dict[str, str] | None = None,
) -> Json:
    """A Node of H100s; with `device_plugin` it reports nvidia.com/gpu itself."""
    amounts = {"cpu": "192", "memory": "2048Gi", "pods": "110", "ephemeral-storage": "3500Gi"}
    if device_plugin:
        amounts["nvidia.com/gpu"] = str(gpus)
    placed = {RACK_LABEL: rack, ZONE_LABEL: zone}
    all_labels = {
        HOSTNAME_LABEL: name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        **{key: value for key, value in placed.items() if value},
        **(labels or {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": all_labels},
        "spec": {},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "addresses": [{"type": "Hostname", "address": name}],
            "nodeInfo": {"kubeletVersion": "v1.37.0-kai-py-embedded"},
        },
    }


def h100_slices(node: str, *, gpus: int = 8) -> Sequence[Json]:
    """The ResourceSlices that NVIDIA's driver publishes for whole GPUs: one for a node."""
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{node}-{DRIVER}-0"},
            "spec": {
                "driver": DRIVER,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "nodeName": node,
                "devices": [_gpu(node, index) for index in range(gpus)],
            },
        }
    ]


def nvidia_device_classes() -> Sequence[Json]:
    """The DeviceClasses gpu.nvidia.com and mig.nvidia.com."""
    return [
        _device_class("gpu.nvidia.com", "gpu", {"extendedResourceName": "nvidia.com/gpu"}),
        _device_class("mig.nvidia.com", "mig", {}),
    ]


def _gpu(node: str, index: int) -> Json:
    bus = 0x1B + index
    return {
        "name": f"gpu-{index}",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": f"GPU-{node}-{index}"},
            "productName": {"string": "NVIDIA H100 80GB HBM3"},
            "brand": {"string": "Nvidia"},
            "architecture": {"string": "Hopper"},
            "cudaComputeCapability": {"version": "9.0.0"},
            "driverVersion": {"version": "580.65.6"},
            "cudaDriverVersion": {"version": "13.0.0"},
            "addressingMode": {"string": "HMM"},
            "gpuModuleID": {"int": index + 1},
            "resource.kubernetes.io/pciBusID": {"string": f"0000:{bus:02x}:00.0"},
            "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{bus - 1:02x}"},
            "resource.kubernetes.io/numaNode": {"int": index // 4},
        },
        "capacity": {"memory": {"value": f"{GPU_MEMORY_MIB}Mi"}},
    }


def _device_class(name: str, kind: str, extra: Json) -> Json:
    expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == '{kind}'"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}], **extra},
    }
