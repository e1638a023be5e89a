"""Objects as people write them in files, and plans of them.

Devices, and claims as people write them in files.

What a NUMA exporter reports of a node.
"""

import msgspec

from kai_py.config import Configuration
from kai_py.simulate.files.object_files import ObjectsInFiles, read_object_files
from kai_py.simulate.offline_plan import plan_objects
from tests.support.cluster.api import Document

QUEUE = {
    "apiVersion": "scheduling.kai.io/v1alpha1",
    "kind": "Queue",
    "metadata": {"name": "team"},
    "spec": {"deservedGPUs": 8},
}


def node(name, gpus=4, **status):
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": allocatable, **status},
    }


def pod(name, gpus=1, node="", **spec):
    amounts = {"nvidia.com/gpu": str(gpus)}
    container = {"name": "main", "resources": {"requests": amounts, "limits": amounts}}
    placed = {"nodeName": node} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"scheduling.kai.io/queue-name": "team"}},
        "spec": {"schedulerName": "kai-scheduler", "containers": [container], **placed, **spec},
    }


def job(name, pods):
    template = pod("unused")["spec"] | {"restartPolicy": "Never"}
    template["containers"][0]["image"] = "i"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"scheduling.kai.io/queue-name": "team"}},
        "spec": {"parallelism": pods, "completions": pods, "template": {"spec": template}},
    }


def plan(*documents, configuration=None, **options):
    configuration = configuration or Configuration()
    found = plan_objects(ObjectsInFiles(list(documents)), configuration, **options)
    return msgspec.to_builtins(found)


def read(tmp_path, **files):
    for name, content in files.items():
        path = tmp_path / name.replace("_", ".")
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_object_files([tmp_path])


def names(found):
    return [each["metadata"]["name"] for each in found.documents]


def placed_on(found):
    return {each["pod"]: each["node"] for each in found["placements"]}


def resource(kind, name, spec, version="v1", **fields):
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
        **fields,
    }


ANY_DEVICE = resource("DeviceClass", "any", {})


def gpus_of(node, *devices):
    """A slice of the node's devices, by default one."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    found = [{"name": name} for name in devices or ("gpu-0",)]
    spec = {"driver": "gpu.nvidia.com", "nodeName": node, "pool": pool, "devices": found}
    return resource("ResourceSlice", f"{node}-gpus", spec)


def exactly(name="gpu", **fields):
    return {"name": name, "exactly": {"deviceClassName": "any", **fields}}


def claim(name, *requests, **fields):
    return resource("ResourceClaim", name, {"devices": {"requests": [*requests]}}, **fields)


def allocated(name, node, *users):
    """A claim for a node's only device, reserved for pods of which only the names are known."""
    result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": node, "device": "gpu-0"}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    allocation = {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [term]},
    }
    reserved = [{"resource": "pods", "name": user, "uid": f"uid-{user}"} for user in users]
    status = {"allocation": allocation, "reservedFor": reserved}
    return claim(name, exactly(), status=status)


def two_zones(node: str, *, cpu: str, gpus: str) -> Document:
    """A report of a node with two equal zones, all of whose capacity is available."""
    zones = [
        {
            "name": f"node-{index}",
            "type": "Node",
            "resources": [
                {"name": name, "capacity": most, "allocatable": most, "available": most}
                for name, most in (("cpu", cpu), ("nvidia.com/gpu", gpus))
            ],
        }
        for index in range(2)
    ]
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": node},
        "topologyPolicies": ["SingleNUMANodeContainerLevel"],
        "zones": zones,
    }
