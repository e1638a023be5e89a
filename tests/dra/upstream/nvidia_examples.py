"""Published examples of NVIDIA's drivers."""

from typing import Any

from kai_py.dra.compute_domains import DRIVER as DOMAIN
from tests.dra.upstream.objects import Json, device_class, of_class, selecting
from tests.dra.upstream.published import (
    BUS,
    NV,
    NVIDIA,
    OLD,
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


def nv_gpu(i: int, **fields: Any) -> Json:
    at = {"type": "gpu", "uuid": f"GPU-{i}", "index": i, "productName": "NVIDIA A100-SXM4-40GB"}
    at |= {"brand": "Nvidia", "architecture": "Ampere", BUS: f"0008:0{6 + i}:00.0"}
    return dev(f"gpu-{i}", fields.pop("capacity", {"memory": "40Gi"}), at=at, **fields)


def mig(card: int, profile: str, number: int, **fields: Any) -> Json:
    at = {"type": "mig", "profile": profile, "uuid": f"M{card}{number}"}
    name = f"gpu-{card}-mig-{profile.replace('.', '')}-{number}"
    return dev(name, {"memory": "5Gi"}, at=at | {"parentUUID": f"GPU-{card}"}, **fields)


def slots(start: int, size: int, processors: int) -> dict[str, str]:
    made = {f"memory-slice-{i}": "1" for i in range(start, start + size)}
    return made | {"multiprocessors": str(processors)}


def parted(card: int) -> list[Json]:
    """Every place of every profile of an A100, of which only those that fit can be had."""
    places = {
        "1g.5gb": (1, 14, range(7)),
        "2g.10gb": (2, 28, (0, 2, 4)),
        "3g.20gb": (4, 42, (0, 4)),
    }
    counter_set = f"gpu-{card}-counter-set"
    made = [nv_gpu(card, draws=(counter_set, slots(0, 8, 98)))]
    for profile, (size, processors, starts) in places.items():
        for start in starts:
            taken = slots(start, size, processors)
            made.append(mig(card, profile, start, draws=(counter_set, taken)))
    return made


PROFILES = ("1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb")
FOUR_MIGS = [
    of_class("mig.nvidia.com", f"m{i}", selectors=cel(NVIDIA, "profile", profile))
    for i, profile in enumerate(PROFILES)
]
STATIC = [mig(card, each, i) for card in range(4) for i, each in enumerate(PROFILES)]
SETS = {f"gpu-{card}-counter-set": slots(0, 8, 98) for card in range(2)}
SAME_CARD = [{"requests": [], "matchAttribute": f"{NVIDIA}/parentUUID"}]
NV_TWO = [*classes(NVIDIA), *publish(NVIDIA, nv_gpu(0), nv_gpu(1))]
MIGS = classes("mig.nvidia.com", NVIDIA)
ONE = [of_class(NVIDIA, "gpu")]
MPS = {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 50}}
A100 = "device.attributes['gpu.nvidia.com'].productName.lowerAscii().matches('^.*a100.*$') && ("
A100 += " || ".join(f"device.attributes['gpu.nvidia.com'].index == {i}" for i in (0, 2, 4, 6)) + ")"

add(f"{OLD}/gpu-test1.yaml", {"p": "1", "q": "1", "r": "!"}, NV_TWO, ONE)
add(f"{OLD}/gpu-test2.yaml", {"p": "1"}, NV_TWO, ONE, pod_fields=TWO_CONTAINERS)
shared = {"requests": {"c": ONE}, "pods": {"p": ["c"], "q": ["c"]}}
one_card = [*classes(NVIDIA), *publish(NVIDIA, nv_gpu(0))]
add(f"{OLD}/gpu-test3.yaml", {"p": "a: gpu-0", "q": "a: gpu-0"}, one_card, **shared)
four = dict.fromkeys("pqrs", "4 on 1")
static = [*MIGS, *publish(NVIDIA, *STATIC)]
add(f"{OLD}/gpu-test4.yaml", four | {"t": "!"}, static, FOUR_MIGS, constraints=SAME_CARD)
partitions = [*MIGS, *publish(NVIDIA, *parted(0), *parted(1), sets=SETS)]
parts = {"p": "4 on 1", "q": "4 on 1", "r": "!"}
name = f"{OLD}/gpu-test4.yaml (DynamicMIG)"
add(name, parts, partitions, FOUR_MIGS, constraints=SAME_CARD)
sharing = [slicing(NVIDIA, "Long", "ts"), opaque(NVIDIA, "GpuConfig", "mps", sharing=MPS)]
ts_mps = [of_class(NVIDIA, "ts"), of_class(NVIDIA, "mps")]
by_request = containers(*(container(f"c{r}{i}", f"t/{r}") for r in ("ts", "mps") for i in (0, 1)))
add(f"{OLD}/gpu-test5.yaml", {"p": "2"}, NV_TWO, ts_mps, config=sharing, pod_fields=by_request)
eight = [*classes(NVIDIA), *publish(NVIDIA, *map(nv_gpu, range(8)))]
even = [of_class(NVIDIA, "gpu", selectors=selecting(A100))]
evens = dict.fromkeys("pqrs", "1") | {"t": "!"}
add(f"{OLD}/gpu-test6.yaml", evens, eight, even, config=[slicing(NVIDIA, "Long", "gpu")])
add("NVIDIA/k8s-dra-driver-gpu/demo/specs/quickstart/gpu-test7.yaml", {"p": "2"}, NV_TWO,
    requests={"=t": ONE, "=u": ONE}, pods={"p": ["=t", "=u"]})  # fmt: skip
add("NVIDIA/k8s-dra-driver-gpu/demo/specs/quickstart/gpu-test-count.yaml", {"p": "2", "q": "!"},
    NV_TWO, [of_class(NVIDIA, "gpu", count=2)])  # fmt: skip
mps_config = [opaque(NVIDIA, "GpuConfig", "gpu", sharing=MPS)]
add(f"{OLD}/gpu-test-mps.yaml", {"p": "1"}, NV_TWO, ONE, config=mps_config)
small = [of_class("mig.nvidia.com", "m", selectors=cel(NVIDIA, "profile", "1g.5gb"))]
smalls = dict.fromkeys("pqrs", "1")
add(f"{OLD}/gpu-test-mig.yaml", smalls, static, small, constraints=SAME_CARD)
vfio = dev("gpu-vfio-0", {"addressableMemory": "64Gi"}, at={"type": "vfio", "uuid": "V"})
passed = [*classes("vfiopci.nvidia.com"), *publish(NVIDIA, nv_gpu(0), vfio)]
asked = [of_class("vfiopci.nvidia.com", "gpu")]
add(f"{OLD}/gpu-test-vfiopci.yaml", {"p": "a: gpu-vfio-0"}, passed, asked)
channels = [dev(f"imex-channel-{i}", at={"type": "imex-channel", "channel": i}) for i in range(4)]
gpus = [nv_gpu(i) for i in range(4)]
add(
    f"{OLD}/imex-test1.yaml",
    {f"d{i}-{j}": "2" for i in range(4) for j in (0, 1)},
    [
        *classes(NVIDIA, "imex.nvidia.com"),
        *publish(NVIDIA, *gpus),
        *publish(NVIDIA, *gpus, node="b"),
        *publish(NVIDIA, *channels, node=""),
    ],
    requests={"=t": ONE} | {f"c{i}": [of_class("imex.nvidia.com", "channel")] for i in range(4)},
    pods={f"d{i}-{j}": ["=t", f"c{i}"] for i in range(4) for j in (0, 1)},
)
CHANNEL = f"compute-domain-default-channel.{DOMAIN}"
clique = {"key": "nvidia.com/gpu.clique", "operator": "Exists"}
required = {"nodeSelectorTerms": [{"matchExpressions": [clique]}]}
affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
for labels, outcome in (({"nvidia.com/gpu.clique": "c.1"}, "a: channel-0"), ({}, "!")):
    add(
        f"{NV}/imex/host-managed/smoke-channel-injection.yaml {sorted(labels)}",
        {"p": outcome},
        [*classes(CHANNEL), *publish(DOMAIN, dev("channel-0", at={"type": "channel", "id": 0}))],
        [of_class(CHANNEL, "channel")],
        config=[opaque(DOMAIN, "ComputeDomainChannelConfig", "channel", domainID="1234")],
        pod_fields={"p": {"affinity": affinity}},
        labels=labels,
    )
GPU_CLASS = [device_class(NVIDIA, f"device.driver == '{NVIDIA}'", extended="nvidia.com/gpu")]
EXTENDED = "NVIDIA/k8s-dra-driver-gpu/demo/specs/extended-resources"
add(f"{EXTENDED}/gpu-full.yaml", {"p": "a: gpu-0"}, [*GPU_CLASS, *publish(NVIDIA, nv_gpu(0))],
    pods={"p": []}, pod_fields=limit("nvidia.com/gpu"))  # fmt: skip
twelve = f"device.driver == '{NVIDIA}' && device.attributes['{NVIDIA}'].type == 'mig'"
twelve += f" && device.attributes['{NVIDIA}'].profile == '1g.12gb'"
mig_class = device_class("mig-1g-12gb.gpu.nvidia.com", twelve, extended="nvidia.com/gpu")
for profile, outcome, why in (
    ("1g.12gb", "a: gpu-0-mig-1g12gb-0", ""),
    ("1g.5gb", "!", "the profile is of another card"),
):
    objects = [mig_class, *publish(NVIDIA, nv_gpu(1), mig(0, profile, 0))]
    source = f"{EXTENDED}/mig-1g-12gb.yaml ({profile})"
    add(source, {"p": outcome}, objects, because=why, pods={"p": []},
        pod_fields=limit("nvidia.com/gpu"))  # fmt: skip


def consumable(default: str, **more: Json) -> list[Json]:
    policy = {"default": default, "validRange": {"min": "0", "step": "1Mi"}}
    memory = {"value": "40Gi", "requestPolicy": policy}
    card = nv_gpu(0, capacity={"memory": memory, **more}, allowMultipleAllocations=True)
    return [*classes(NVIDIA), *publish(NVIDIA, card)]


a_share = {"default": "1", "validRange": {"min": "1", "max": "4", "step": "1"}}
by_count = consumable("0", shares={"value": "4", "requestPolicy": a_share})
shares = dict.fromkeys("pqrs", "a: gpu-0")
add(f"{NV}/consumable-shares/integer-sharing.yaml", shares | {"t": "!"}, by_count, ONE)
add(f"{NV}/consumable-shares/unlimited-sharing.yaml", shares, consumable("0"), ONE)
four_gi = [of_class(NVIDIA, "gpu", capacity={"requests": {"memory": "4Gi"}})]
add(f"{NV}/consumable-shares/memory-sharing.yaml", shares, consumable("40Gi"), four_gi)
whole = {"p": "a: gpu-0", "q": "!"}
add(f"{NV}/consumable-shares/README.md (no amount)", whole, consumable("40Gi"), ONE)
overhead = {"cpu": {"overhead": {"perPod": "500m"}}}
add(
    f"{NV}/node-allocatable-overhead/gpu-overhead-pod.yaml",
    {"p": "1", "q": "!"},
    [
        *classes(NVIDIA),
        *publish(NVIDIA, *(nv_gpu(i, nodeAllocatableResources=overhead) for i in (0, 1))),
    ],
    ONE,
    cpu="900m",
)
ill = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}
tolerates = {"key": "gpu.nvidia.com/xid", "operator": "Exists", "effect": "NoSchedule"}
BATS = "kubernetes-sigs/nvidia-dra-driver-gpu/tests/bats/specs"
faulty = [*classes(NVIDIA), *publish(NVIDIA, nv_gpu(0, taints=[ill]))]
add(f"{BATS}/gpu-taint-untolerated.yaml", {"p": "!"}, faulty, ONE)
tolerant = [of_class(NVIDIA, "gpu", tolerations=[tolerates])]
add(f"{BATS}/gpu-taint-tolerated.yaml", {"p": "a: gpu-0"}, faulty, tolerant)
