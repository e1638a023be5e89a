"""Short forms of drivers' published examples, and the list of all."""

from typing import Any

from kai_py.dra.compute_domains import DRIVER as DOMAIN
from tests.dra.upstream.objects import Json, device_class, resource_slice, selecting
from tests.dra.upstream.play import Scenario, scenario

NVIDIA, AMD, INTEL = "gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com"
GAUDI, QAT, CPU, NET = "gaudi.intel.com", "qat.intel.com", "dra.cpu", "dra.net"
DEMO, DEMO_CPU, DEMO_NET = "gpu.example.com", "cpu.example.com", "net.example.com"
ROOT, BUS = "resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/pciBusID"
KINDS = {bool: "bool", int: "int", str: "string"}
NV = "kubernetes-sigs/dra-driver-nvidia-gpu/demo/specs"
OLD = "NVIDIA/k8s-dra-driver/demo/specs/quickstart"
EXAMPLE = "kubernetes-sigs/dra-example-driver/demo/examples"
ROCM = "ROCm/k8s-gpu-dra-driver/example"
IN = "intel/intel-resource-drivers-for-kubernetes/deployments"
CPUS = "kubernetes-sigs/dra-driver-cpu/hack/examples"
DRANET = "kubernetes-sigs/dranet"
PUBLISHED: list[Scenario] = []
BECAUSE: dict[str, str] = {}


def dev(name: str, capacity: Json | None = None, **fields: Any) -> Json:
    """``draws``: of the counter set named first; ``at``: attributes; others as in a device."""
    made: Json = {"name": name}
    given = fields.pop("at", {})
    made["attributes"] = {key: {KINDS[type(value)]: value} for key, value in given.items()}
    made["capacity"] = {
        key: value if isinstance(value, dict) else {"value": value}
        for key, value in (capacity or {}).items()
    }
    if draws := fields.pop("draws", None):
        made["consumesCounters"] = [{"counterSet": draws[0], "counters": amounts(draws[1])}]
    return made | fields


def amounts(values: dict[str, str]) -> Json:
    return {key: {"value": value} for key, value in values.items()}


def publish(driver: str, *devices: Json, sets: Json | None = None, node: str = "a") -> list[Json]:
    """The slices of a driver on a node; ``sets``: counter sets to their counters."""
    pool = {"name": f"{driver}-{node}", "resourceSliceCount": 2 if sets else 1}
    where = {"nodeName": node} if node else {"allNodes": True}
    made = [resource_slice(f"{driver}-{node}", *devices, pool=pool, driver=driver, **where)]
    if sets:
        shared = [{"name": name, "counters": amounts(values)} for name, values in sets.items()]
        spec = {"driver": driver, "sharedCounters": shared, **where}
        counters = resource_slice(f"{driver}-{node}-sets", pool=pool, **spec)
        del counters["spec"]["devices"]
        made.append(counters)
    return made


def classes(*names: str) -> list[Json]:
    """Classes that select by driver, and NVIDIA's and Intel's further ones."""
    kinds = {
        NVIDIA: (NVIDIA, "gpu"),
        "mig.nvidia.com": (NVIDIA, "mig"),
        "vfiopci.nvidia.com": (NVIDIA, "vfio"),
        "imex.nvidia.com": (NVIDIA, "imex-channel"),
        f"compute-domain-default-channel.{DOMAIN}": (DOMAIN, "channel"),
    }
    made = []
    for name in names:
        driver, kind = kinds.get(name, ({"gpu-vfio.intel.com": INTEL}.get(name, name), ""))
        text = f"device.driver == '{driver}'"
        made.append(
            device_class(
                name, text + (f" && device.attributes['{driver}'].type == '{kind}'" if kind else "")
            )
        )
    return made


def container(name: str, *claims: str, **resources: Json) -> Json:
    """``claims``: "claim" or "claim/request"."""
    parts = [each.split("/") for each in claims]
    named = [{"name": p[0], **({"request": p[1]} if p[1:] else {})} for p in parts]
    return {"name": name, "image": "none", "resources": {"claims": named, **resources}}


def containers(*each: Json, **fields: Any) -> Json:
    return {"p": {"containers": list(each), **fields}}


def limit(name: str, count: int = 1) -> Json:
    return containers(container("main", limits={name: str(count)}, requests={name: str(count)}))


def add(
    source: str, expect: Json, objects: list[Json], asked: Any = None, because: str = "", **more
):
    """``asked``: the requests of a template that every pod of ``expect`` has one claim of."""
    if asked is not None:
        more = {"requests": {"=t": asked}, "pods": {name: ["=t"] for name in expect}} | more
    nodes = {o["spec"].get("nodeName") for o in objects if o["kind"] == "ResourceSlice"}
    devices = {name: [] for name in ("a", "b") if name == "a" or name in nodes}
    PUBLISHED.append(scenario(source, expect, objects=objects, devices=devices, **more))
    if because:
        BECAUSE[source] = because


def cel(driver: str, name: str, text: str) -> list[Json]:
    return selecting(f"device.attributes['{driver}'].{name} == '{text}'")


def opaque(driver: str, kind: str, *requests: str, **parameters: Any) -> Json:
    body = {"apiVersion": f"{driver}/v1alpha1", "kind": kind, **parameters}
    return {"requests": list(requests), "opaque": {"driver": driver, "parameters": body}}


def slicing(driver: str, interval: str, *requests: str) -> Json:
    config = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}}
    return opaque(driver, "GpuConfig", *requests, sharing=config)


def nic_of(number: int, root: str = "pci0000:01", **at: Any) -> Json:
    at = {"rdma": True, "ifName": f"rdma{number}", "rdmaDevice": f"mlx5_{number}"} | at
    made = {f"{NET}/{key}": value for key, value in at.items()} | {ROOT: root}
    return dev(f"nic-{number}", at=made)


TWO_CONTAINERS = containers(container("c0", "t"), container("c1", "t"))
SEVERAL = {"allowMultipleAllocations": True}
