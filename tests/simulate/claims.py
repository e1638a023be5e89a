"""Devices, and claims as people write them in files."""


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
