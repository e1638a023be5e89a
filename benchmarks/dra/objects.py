"""Nodes with devices in NVIDIA's shape, and claims for them."""

from typing import Any

from kai_py.api.records.core import Condition, ObjectMeta
from kai_py.api.records.node import Node, NodeStatus
from kai_py.api.records.record import convert_record
from kai_py.api.records.resource import DeviceClass, ResourceClaim, ResourceSlice

DRIVER = "gpu.nvidia.com"
ATTRIBUTES = f'device.attributes["{DRIVER}"]'
PRODUCTS = ("NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA A100-SXM4-80GB")
MEMORY_SLICES = 8
COMPUTE_SLICES = 7
PLACEMENTS = {
    "1g.10gb": (1, 1, range(7)),
    "1g.20gb": (1, 2, range(0, 8, 2)),
    "2g.20gb": (2, 2, range(0, 6, 2)),
    "3g.40gb": (3, 4, range(0, 8, 4)),
    "4g.40gb": (4, 4, range(1)),
    "7g.80gb": (7, 8, range(1)),
}
"""Profile to compute slices, memory slices and where it may start."""


def nodes(count: int) -> tuple[Node, ...]:
    """``count`` nodes whose GPUs are known by their slices alone."""
    status = NodeStatus(
        allocatable={"cpu": "64", "memory": "512Gi", "pods": "110"},
        conditions=(Condition(type="Ready", status="True"),),
    )
    return tuple(
        Node(metadata=ObjectMeta(name=f"node-{i:05}", uid=f"node-{i}"), status=status)
        for i in range(count)
    )


def gpu_class(kind: str = "gpu") -> DeviceClass:
    expression = f'device.driver == "{DRIVER}" && {ATTRIBUTES}.type == "{kind}"'
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    return convert_record({"metadata": {"name": DRIVER}, "spec": spec}, DeviceClass)


def gpu_slice(node: str, gpus: int, product: str = PRODUCTS[0]) -> ResourceSlice:
    """One pool of whole GPUs, 4 to a PCIe root."""
    devices = [
        {
            "name": f"gpu-{i}",
            "attributes": {
                "type": {"string": "gpu"},
                "uuid": {"string": f"GPU-{node}-{i}"},
                "productName": {"string": product},
                "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{i // 4}"},
            },
            "capacity": {"memory": {"value": "81559Mi"}},
        }
        for i in range(gpus)
    ]
    return _slice(node, "gpus", 1, {"devices": devices})


def shared_slice(node: str, gpus: int) -> ResourceSlice:
    """GPUs of 80 GiB that claims share by memory, as NVIDIA's driver publishes them."""
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}
    devices = [
        {
            "name": f"gpu-{i}",
            "allowMultipleAllocations": True,
            "attributes": {"type": {"string": "gpu"}, "uuid": {"string": f"GPU-{node}-{i}"}},
            "capacity": {"memory": {"value": "80Gi", "requestPolicy": policy}},
        }
        for i in range(gpus)
    ]
    return _slice(node, "shared", 1, {"devices": devices})


def share(name: str, memory: str) -> ResourceClaim:
    """A claim for so much memory of one GPU."""
    exactly = {"deviceClassName": DRIVER, "capacity": {"requests": {"memory": memory}}}
    document = {
        "metadata": {"name": name, "namespace": "default", "uid": f"claim-{name}"},
        "spec": {"devices": {"requests": [{"name": "share", "exactly": exactly}]}},
    }
    return convert_record(document, ResourceClaim)


def mig_slices(node: str, gpus: int) -> list[ResourceSlice]:
    """GPUs that can be cut: the whole one and 18 placements of partitions each."""
    sets = [_counters(f"gpu-{i}", COMPUTE_SLICES, range(MEMORY_SLICES)) for i in range(gpus)]
    counters = [{"name": each["counterSet"], "counters": each["counters"]} for each in sets]
    return [
        _slice(node, "counters", gpus + 1, {"sharedCounters": counters}),
        *(_slice(node, str(i), gpus + 1, {"devices": _parts(node, i)}) for i in range(gpus)),
    ]


def claim(name: str, count: int, *selectors: str, owner: str = "") -> ResourceClaim:
    """A claim; with ``owner``, the uid of a pod, one from a template."""
    texts = [{"cel": {"expression": each}} for each in selectors]
    exactly = {"deviceClassName": DRIVER, "count": count, "selectors": texts}
    metadata: dict[str, Any] = {"name": name, "namespace": "default", "uid": f"claim-{name}"}
    if owner:
        reference = {"kind": "Pod", "name": owner, "uid": f"pod-{owner}", "controller": True}
        metadata["ownerReferences"] = [reference]
    requests = [{"name": "gpus", "exactly": exactly}]
    document = {"metadata": metadata, "spec": {"devices": {"requests": requests}}}
    return convert_record(document, ResourceClaim)


def _parts(node: str, gpu: int) -> list[dict[str, Any]]:
    name = f"gpu-{gpu}"
    whole = {
        "name": name,
        "attributes": {"type": {"string": "gpu"}, "uuid": {"string": f"GPU-{node}-{gpu}"}},
        "capacity": {"memory": {"value": "80Gi"}},
        "consumesCounters": [_counters(name, COMPUTE_SLICES, range(MEMORY_SLICES))],
    }
    parts = [
        {
            "name": f"{name}-mig-{profile.replace('.', '')}-{start}",
            "attributes": {
                "type": {"string": "mig"},
                "profile": {"string": profile},
                "parentUUID": {"string": f"GPU-{node}-{gpu}"},
            },
            "capacity": {"memory": {"value": f"{10 * memory}Gi"}},
            "consumesCounters": [_counters(name, compute, range(start, start + memory))],
        }
        for profile, (compute, memory, starts) in PLACEMENTS.items()
        for start in starts
    ]
    return [whole, *parts]


def _counters(counter_set: str, compute: int, slices: range) -> dict[str, Any]:
    counters = {"multiprocessors": {"value": str(compute)}}
    counters |= {f"memory-slice-{i}": {"value": "1"} for i in slices}
    return {"counterSet": counter_set, "counters": counters}


def _slice(node: str, name: str, count: int, content: dict[str, Any]) -> ResourceSlice:
    pool = {"name": node, "generation": 1, "resourceSliceCount": count}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": node} | content
    return convert_record({"metadata": {"name": f"{node}-{name}"}, "spec": spec}, ResourceSlice)
