"""Short forms of the objects of scenarios; CASE stands for the name of the case."""

from typing import Any

Json = dict[str, Any]
DRIVER = "CASE.example.com"


def exactly(name: str = "one", **fields: object) -> Json:
    return {"name": name, "exactly": {"deviceClassName": "CASE", **fields}}


def of_class(class_name: str, name: str = "one", **fields: object) -> Json:
    return {"name": name, "exactly": {"deviceClassName": class_name, **fields}}


def sub(name: str, **fields: object) -> Json:
    return {"name": name, "deviceClassName": "CASE", **fields}


def first(*alternatives: Json, name: str = "any") -> Json:
    return {"name": name, "firstAvailable": list(alternatives)}


def selecting(expression: str) -> list[Json]:
    return [{"cel": {"expression": expression}}]


def attribute(name: str, value: str) -> list[Json]:
    return selecting(f"device.attributes['{DRIVER}'].{name} == '{value}'")


def device(name: str, *, taints: list[Json] | None = None, **attributes: str) -> Json:
    made: Json = {"name": name}
    if attributes:
        made["attributes"] = {key: {"string": value} for key, value in attributes.items()}
    return made | ({"taints": taints} if taints else {})


def shareable(name: str, amount: str = "80Gi", **policy: object) -> Json:
    capacity: Json = {"value": amount}
    if policy:
        capacity["requestPolicy"] = policy
    return {
        "name": name,
        "allowMultipleAllocations": True,
        "capacity": {"memory": capacity},
    }


def memory(amount: str, name: str = "one", **fields: object) -> Json:
    return exactly(name, capacity={"requests": {"memory": amount}}, **fields)


def partition(name: str, slices: int, **fields: object) -> Json:
    draw = {"counterSet": "gpu", "counters": {"slices": {"value": str(slices)}}}
    return {"name": name, "consumesCounters": [draw], **fields}


def counters(slices: int = 7) -> list[Json]:
    return [{"name": "gpu", "counters": {"slices": {"value": str(slices)}}}]


def taint(effect: str = "NoSchedule", key: str = "example.com/ill") -> Json:
    return {"key": key, "value": "yes", "effect": effect}


def taint_rule(effect: str = "NoSchedule", **selector: str) -> Json:
    return {
        "kind": "DeviceTaintRule",
        "metadata": {"name": "rule"},
        "spec": {"deviceSelector": selector, "taint": taint(effect)},
    }


def device_class(name: str, expression: str = "true", extended: str = "") -> Json:
    spec: Json = {"selectors": selecting(expression)}
    if extended:
        spec["extendedResourceName"] = extended
    return {"kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def resource_slice(name: str, *devices: Json, pool: Json | None = None, **spec: object) -> Json:
    described = {"name": name, "generation": 1, "resourceSliceCount": 1} | (pool or {})
    where = {} if "allNodes" in spec or "nodeSelector" in spec else {"nodeName": "a"}
    return {
        "kind": "ResourceSlice",
        "metadata": {"name": f"slice-{name}"},
        "spec": {"driver": DRIVER, "pool": described, "devices": list(devices), **where, **spec},
    }


def on(node: str, *names: str) -> Json:
    return {node: [device(name) for name in names]}


def container(name: str, claims: tuple[str, ...] = (), **limits: str) -> Json:
    resources = {"claims": [{"name": each} for each in claims], "limits": limits}
    return {"name": name, "image": "none", "resources": resources}


ONE = {"=t": [exactly()]}
SHARED = {"c": [exactly()]}
P = {"p": ["=t"]}
PQ = {"p": ["=t"], "q": ["=t"]}
A1 = on("a", "d0")
A2 = on("a", "d0", "d1")
