"""Published examples of the example driver of Kubernetes."""

from typing import Any

from tests.dra.upstream.objects import Json, device_class, first, of_class, selecting
from tests.dra.upstream.published import (
    DEMO,
    DEMO_CPU,
    DEMO_NET,
    EXAMPLE,
    SEVERAL,
    TWO_CONTAINERS,
    add,
    cel,
    classes,
    container,
    containers,
    dev,
    limit,
    opaque,
    publish,
    slicing,
)


def demo(i: int, **fields: Any) -> Json:
    at = {"index": i, "uuid": f"gpu-{i}", "model": "LATEST-GPU-MODEL"}
    return dev(f"gpu-{i}", fields.pop("capacity", {"memory": "80Gi"}), at=at, **fields)


def demos(count: int, **fields: Any) -> list[Json]:
    return [*classes(DEMO), *publish(DEMO, *(demo(i, **fields) for i in range(count)))]


A_GPU = [of_class(DEMO, "gpu")]
add(f"{EXAMPLE}/basic-resourceclaimtemplate", {"p": "1", "q": "1"}, demos(2), A_GPU)
both = [of_class(DEMO, "gpu-1"), of_class(DEMO, "gpu-2")]
add(f"{EXAMPLE}/basic-multiple-requests", {"p": "2"}, demos(2), both)
ts_sp = [of_class(DEMO, "ts"), of_class(DEMO, "sp")]
space = {"strategy": "SpacePartitioning", "spacePartitioningConfig": {"partitionCount": 10}}
demo_config = [slicing(DEMO, "Long", "ts"), opaque(DEMO, "GpuConfig", "sp", sharing=space)]
source = f"{EXAMPLE}/basic-resourceclaim-opaque-config"
add(source, {"p": "2"}, demos(2), ts_sp, config=demo_config)
source = f"{EXAMPLE}/basic-shared-claim-across-containers"
add(source, {"p": "1"}, demos(1), A_GPU, pod_fields=TWO_CONTAINERS)
shared = {"requests": {"c": A_GPU}, "pods": {"p": ["c"], "q": ["c"]}}
source = f"{EXAMPLE}/basic-shared-claim-across-pods"
add(source, {"p": "a: gpu-0", "q": "a: gpu-0"}, demos(1), **shared)
started = containers(container("c0", "t"), initContainers=[container("init0", "t")])
add(f"{EXAMPLE}/initcontainer-shared-gpu", {"p": "1"}, demos(1), A_GPU, pod_fields=started)
admin = [of_class(DEMO, "admin-gpu", allocationMode="All", adminAccess=True)]
held = {"requests": {"=t": A_GPU, "=all": admin}, "pods": {"q": ["=t"], "p": ["=all"]}}
add(f"{EXAMPLE}/admin-access", {"q": "1", "p": "2"}, demos(2), admin=True, **held)
for bound, outcome in (("4Gi", "1"), ("1Ti", "!")):
    size = f"device.capacity['{DEMO}'].memory.compareTo(quantity('{bound}')) >= 0"
    chosen = [*cel(DEMO, "model", "LATEST-GPU-MODEL"), *selecting(size)]
    asked = [of_class(DEMO, "gpu", selectors=chosen)]
    add(f"{EXAMPLE}/cel-selector ({bound})", {"p": outcome}, demos(1), asked)
for name in (f"deviceclass.resource.kubernetes.io/{DEMO}", "example.com/gpu"):
    objects = [device_class(DEMO, f"device.driver == '{DEMO}'", extended="example.com/gpu")]
    source = f"{EXAMPLE}/extended-resource-request ({name})"
    add(source, {"p": "a: gpu-0"}, [*objects, *publish(DEMO, demo(0))],
        pods={"p": []}, pod_fields=limit(name))  # fmt: skip
LATEST = {"name": "latest", "deviceClassName": DEMO}
LATEST |= {"selectors": cel(DEMO, "model", "LATEST-GPU-MODEL")}
OLDER = {"name": "older", "deviceClassName": DEMO}
HUGE = {"name": "huge", "deviceClassName": DEMO}
HUGE |= {
    "selectors": selecting(f"device.capacity['{DEMO}'].memory.compareTo(quantity('1Ti')) >= 0")
}
NONE = LATEST | {"name": "bleeding", "selectors": cel(DEMO, "model", "BLEEDING-EDGE-GPU")}
lists = {"=t": [first(NONE, HUGE, OLDER, name="gpu")], "=u": [first(LATEST, OLDER, name="gpu")]}
add(f"{EXAMPLE}/prioritized-alternatives", {"p": "1", "q": "1"}, demos(2),
    requests=lists, pods={"p": ["=t"], "q": ["=u"]})  # fmt: skip
extra = of_class(DEMO, "extra")
scopes = [slicing(DEMO, "Short", "gpu/latest"), slicing(DEMO, "Medium", "gpu/older")]
scoped = [first(LATEST, OLDER, name="gpu"), extra]
add(f"{EXAMPLE}/subrequest-config-scoping", {"p": "2"}, demos(2), scoped, config=scopes)
QUARTER = {"memory": "20Gi", "compute": "25"}
FULL = {"memory": "80Gi", "compute": "100"}
quarters = [
    dev(f"gpu-0-partition-{i}", QUARTER, at={"index": 0}, draws=("gpu-0", QUARTER))
    for i in range(4)
]
parts = [*classes(DEMO), *publish(DEMO, *quarters, sets={"gpu-0": FULL})]
pair = [of_class(DEMO, "gpu-partition", count=2)]
add(f"{EXAMPLE}/partitionable-devices", {"p": "2 on 1", "q": "2 on 1", "r": "!"}, parts, pair)


def part_of(memory: str, compute: str) -> list[Json]:
    return [of_class(DEMO, "gpu", capacity={"requests": {"memory": memory, "compute": compute}})]


shared_card = demos(1, capacity=FULL, **SEVERAL)
five = dict.fromkeys("pqrst", "a: gpu-0")
source = f"{EXAMPLE}/gpu-allow-multiple-allocations"
add(source, five | {"u": "!"}, shared_card, part_of("16Gi", "20"))
shared_parts = [each | SEVERAL for each in quarters[:1]]
objects = [*classes(DEMO), *publish(DEMO, *shared_parts, sets={"gpu-0": FULL})]
source = f"{EXAMPLE}/gpu-allow-multiple-allocations-partitionable"
add(source, {"p": "1", "q": "1", "r": "!"}, objects, part_of("8Gi", "10"))
rate = {"default": "1Gi", "validRange": {"min": "100Mi", "max": "100Gi", "step": "1Mi"}}
rates = {key: {"value": "100Gi", "requestPolicy": rate} for key in ("ingress", "egress")}
nic = dev("nic-0", rates, at={"index": 0}, **SEVERAL)
bandwidths = {
    f"={name}": [of_class(DEMO_NET, "nic", capacity={"requests": {"ingress": i, "egress": "5G"}})]
    for name, i in (("t", "10G"), ("u", "5G"), ("v", "99G"))
}
add(
    f"{EXAMPLE}/net-consumable-capacity",
    {"p": "a: nic-0", "q": "a: nic-0", "r": "!"},
    [*classes(DEMO_NET), *publish(DEMO_NET, nic)],
    requests=bandwidths,
    pods={"p": ["=t"], "q": ["=u"], "r": ["=v"]},
)
KEY = f"{DEMO_CPU}/cpu"
mapped = {"nodeAllocatableResourceMappings": {"cpu": {"capacityKey": KEY}}}
numa = dev("numa-0", {KEY: "4"}, at={"numaNodeID": 0}, **SEVERAL, **mapped)
cpus = [of_class(DEMO_CPU, f"cpu{i}", capacity={"requests": {KEY: "1"}}) for i in (0, 1)]
source = f"{EXAMPLE}/native-resource-request"
expected = {"p": "a: numa-0 numa-0", "q": "!"}
add(source, expected, [*classes(DEMO_CPU), *publish(DEMO_CPU, numa)], cpus, cpu="3")
unhealthy = {"key": f"{DEMO}/unhealthy", "value": "true"}
for effect in ("NoSchedule", "NoExecute"):
    rule = {"kind": "DeviceTaintRule", "metadata": {"name": "example"}}
    rule["spec"] = {"deviceSelector": {"driver": DEMO}, "taint": unhealthy | {"effect": effect}}
    allowed = [of_class(DEMO, "gpu", tolerations=[unhealthy | {"operator": "Equal"}])]
    source = f"{EXAMPLE}/device-taints-tolerations ({effect})"
    add(source, {"p": "!", "q": "1"}, [*demos(1), rule],
        requests={"=t": A_GPU, "=u": allowed}, pods={"p": ["=t"], "q": ["=u"]})  # fmt: skip
