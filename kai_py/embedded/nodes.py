"""Demo hardware: H100 nodes as NVIDIA's DRA driver and its device plugin report them.

Shapes: dra-driver-nvidia-gpu, one ResourceSlice per node for whole GPUs; with dynamic MIG one more
for all counter sets and one slice per GPU (KEP-4815, in the form of Kubernetes 1.35 and later).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kai_py.embedded.documents import Json

DRIVER = "gpu.nvidia.com"
RACK_LABEL = "topology.kubernetes.io/rack"
ZONE_LABEL = "topology.kubernetes.io/zone"
HOSTNAME_LABEL = "kubernetes.io/hostname"

GPU_MEMORY_MIB = 81559
GPU_MULTIPROCESSORS = 132
MEMORY_SLICES = 8

_MIG_PROFILES: Sequence[tuple[str, int, int, int, int, Sequence[int]]] = (
    # profile, id, memory MiB, multiprocessors, memory slices, placements
    ("1g.10gb", 19, 9856, 16, 1, (0, 1, 2, 3, 4, 5, 6)),
    ("1g.20gb", 15, 20096, 26, 2, (0, 2, 4, 6)),
    ("2g.20gb", 14, 20096, 32, 2, (0, 2, 4)),
    ("3g.40gb", 9, 40448, 60, 4, (0, 4)),
    ("4g.40gb", 5, 40448, 64, 4, (0,)),
    ("7g.80gb", 0, 81920, 132, 8, (0,)),
)


def h100_node(
    name: str,
    *,
    rack: str = "",
    zone: str = "",
    gpus: int = 8,
    device_plugin: bool = False,
    labels: dict[str, str] | None = None,
) -> Json:
    """Return a Node of H100s; with `device_plugin` it reports nvidia.com/gpu itself."""
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


def h100_slices(node: str, *, gpus: int = 8, mig: bool = False) -> Sequence[Json]:
    """Return the ResourceSlices that NVIDIA's driver publishes for a node."""
    if not mig:
        return [_slice(node, 0, 1, {"devices": [_gpu(node, index) for index in range(gpus)]})]
    counters = {"sharedCounters": [_counter_set(index) for index in range(gpus)]}
    slices = [_slice(node, 0, gpus + 1, counters)]
    for index in range(gpus):
        devices = [_partitionable_gpu(node, index), *_partitions(node, index)]
        slices.append(_slice(node, index + 1, gpus + 1, {"devices": devices}))
    return slices


def nvidia_device_classes() -> Sequence[Json]:
    """Return the DeviceClasses gpu.nvidia.com and mig.nvidia.com."""
    return [
        _device_class("gpu.nvidia.com", "gpu", {"extendedResourceName": "nvidia.com/gpu"}),
        _device_class("mig.nvidia.com", "mig", {}),
    ]


def _slice(node: str, index: int, count: int, content: Json) -> Json:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{DRIVER}-{index}"},
        "spec": {
            "driver": DRIVER,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": count},
            "nodeName": node,
            **content,
        },
    }


def _uuid(node: str, index: int) -> str:
    return f"GPU-{node}-{index}"


def _product() -> Json:
    return {
        "productName": {"string": "NVIDIA H100 80GB HBM3"},
        "brand": {"string": "Nvidia"},
        "architecture": {"string": "Hopper"},
        "cudaComputeCapability": {"version": "9.0.0"},
        "driverVersion": {"version": "580.65.6"},
        "cudaDriverVersion": {"version": "13.0.0"},
    }


def _gpu(node: str, index: int) -> Json:
    bus = 0x1B + index
    return {
        "name": f"gpu-{index}",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": _uuid(node, index)},
            **_product(),
            "addressingMode": {"string": "HMM"},
            "gpuModuleID": {"int": index + 1},
            "resource.kubernetes.io/pciBusID": {"string": f"0000:{bus:02x}:00.0"},
            "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{bus - 1:02x}"},
            "resource.kubernetes.io/numaNode": {"int": index // 4},
        },
        "capacity": {"memory": {"value": f"{GPU_MEMORY_MIB}Mi"}},
    }


def _whole_counters() -> Json:
    named = {
        "memory": "80Gi",
        "multiprocessors": str(GPU_MULTIPROCESSORS),
        "copy-engines": "8",
        "decoders": "7",
        "encoders": "0",
        "jpeg-engines": "7",
        "ofa-engines": "1",
        **{f"memory-slice-{index}": "1" for index in range(MEMORY_SLICES)},
    }
    return {name: {"value": value} for name, value in named.items()}


def _counter_set(index: int) -> Json:
    return {"name": f"gpu-{index}-counter-set", "counters": _whole_counters()}


def _partitionable_gpu(node: str, index: int) -> Json:
    consumed = {"counterSet": f"gpu-{index}-counter-set", "counters": _whole_counters()}
    return {**_gpu(node, index), "consumesCounters": [consumed]}


def _partitions(node: str, index: int) -> Sequence[Json]:
    return [
        _partition(node, index, profile, placement)
        for profile in _MIG_PROFILES
        for placement in profile[5]
    ]


def _partition(
    node: str, index: int, profile: tuple[str, int, int, int, int, Sequence[int]], placement: int
) -> Json:
    label, number, memory, multiprocessors, slices, _ = profile
    taken = range(placement, placement + slices)
    counters = {
        "memory": f"{memory}Mi",
        "multiprocessors": str(multiprocessors),
        **{f"memory-slice-{each}": "1" for each in taken},
    }
    return {
        "name": f"gpu-{index}-mig-{label.replace('.', '')}-{number}-{placement}",
        "attributes": {
            "type": {"string": "mig"},
            "parentUUID": {"string": _uuid(node, index)},
            "profile": {"string": label},
            **_product(),
        },
        "capacity": {
            "memory": {"value": f"{memory}Mi"},
            "multiprocessors": {"value": str(multiprocessors)},
        },
        "consumesCounters": [
            {
                "counterSet": f"gpu-{index}-counter-set",
                "counters": {name: {"value": value} for name, value in counters.items()},
            }
        ],
    }


def _device_class(name: str, kind: str, extra: Json) -> Json:
    expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == '{kind}'"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}], **extra},
    }
