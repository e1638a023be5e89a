"""Small objects that tests of the embedded cluster create."""

from typing import Any

from kai_py.embedded.nodes import h100_node, h100_slices, nvidia_device_classes

Json = dict[str, Any]


def pod(name: str, *, namespace: str = "default", **spec: Any) -> Json:
    meta = {"name": name, "namespace": namespace}
    for field in ("labels", "annotations", "finalizers", "ownerReferences"):
        if field in spec:
            meta[field] = spec.pop(field)
    containers = spec.pop("containers", [{"name": "main", "image": "busybox:1"}])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": containers, **spec},
    }


def node(name: str, **allocatable: str) -> Json:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", **allocatable}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def job(name: str, *, annotations: Json | None = None, pod_spec: Json | None = None, **spec: Any):
    template = {
        "metadata": {"annotations": annotations or {}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "busybox:1"}],
            **(pod_spec or {}),
        },
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {**spec, "template": template},
    }


def config_map(name: str, namespace: str = "default", **meta: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, **meta},
        "data": {"key": "value"},
    }


def claim(name: str, **exactly: Any) -> Json:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": claim_spec(**exactly),
    }


def claim_spec(**exactly: Any) -> Json:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", **exactly}}
    return {"devices": {"requests": [request]}}


def claim_template(name: str) -> Json:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": claim_spec()},
    }


def allocation(*devices: str, pool: str = "n", request: str = "gpu") -> Json:
    return {
        "devices": {
            "results": [
                {"request": request, "driver": "gpu.nvidia.com", "pool": pool, "device": device}
                for device in devices
            ]
        }
    }


def consumer(pod: Json) -> Json:
    return {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}


def queue_definition() -> Json:
    spec = {
        "type": "object",
        "required": ["deservedGPUs"],
        "properties": {
            "deservedGPUs": {"type": "integer", "minimum": 0},
            "maxGPUs": {"type": "integer"},
            "priority": {"type": "integer", "default": 100},
            "mode": {"type": "string", "enum": ["soft", "hard"]},
        },
        "x-kubernetes-validations": [
            {
                "rule": "!has(self.maxGPUs) || self.maxGPUs >= self.deservedGPUs",
                "message": "maxGPUs must be at least deservedGPUs",
            },
            {
                "rule": "!has(oldSelf.mode) || self.mode == oldSelf.mode",
                "message": "mode cannot change",
            },
        ],
    }
    status = {"type": "object", "properties": {"allocated": {"type": "integer"}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "queues.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"plural": "queues", "kind": "Queue", "shortNames": ["q"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": "Deserved", "type": "integer", "jsonPath": ".spec.deservedGPUs"}
                    ],
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "required": ["spec"],
                            "properties": {"spec": spec, "status": status},
                        }
                    },
                }
            ],
        },
    }


def queue(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }


def h100_cluster(
    *, racks: int = 2, nodes_per_rack: int = 4, device_plugin: bool = False
) -> list[Json]:
    """The objects of a cluster of H100 nodes in racks: classes, nodes and their slices."""
    objects: list[Json] = [] if device_plugin else list(nvidia_device_classes())
    for number in range(racks * nodes_per_rack):
        name, rack = f"h100-{number}", f"rack-{number // nodes_per_rack}"
        objects.append(h100_node(name, rack=rack, zone="zone-a", device_plugin=device_plugin))
        objects += [] if device_plugin else h100_slices(name)
    return objects
