"""Objects as people write them in files, and plans of them."""

import msgspec

from kai_py.config import Configuration
from kai_py.simulate.object_files import ObjectsInFiles, read_object_files
from kai_py.simulate.offline_plan import plan_objects

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


def plan(*documents, **options):
    found = plan_objects(ObjectsInFiles(list(documents)), Configuration(), **options)
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
