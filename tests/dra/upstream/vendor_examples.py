"""Published examples of AMD's and Intel's drivers."""

from typing import Any

from tests.dra.upstream.objects import Json, device_class, of_class, selecting
from tests.dra.upstream.published import (
    AMD,
    GAUDI,
    IN,
    INTEL,
    NET,
    QAT,
    ROCM,
    ROOT,
    SEVERAL,
    TWO_CONTAINERS,
    add,
    cel,
    classes,
    container,
    containers,
    dev,
    nic_of,
    publish,
)


def amd(name: str, kind: str, profile: str, parent: str, **fields: Any) -> Json:
    at = {"type": kind, "productName": "AMD_Instinct_MI300X", "partitionProfile": profile}
    at |= {"deviceID": parent, "numaNode": 0}
    size = {"memory": "24Gi", "computeUnits": "38", "simdUnits": "152"}
    return dev(name, fields.pop("capacity", size), at=at, **fields)


def amd_parts(*parents: str) -> list[Json]:
    """Two partitions of each of two cards."""
    made = [
        amd(f"gpu-{card}-{128 + i}", "amdgpu-partition", "cpx_nps4", parent)
        for card, parent in enumerate(parents)
        for i in (0, 1)
    ]
    return [*classes(AMD), *publish(AMD, *made)]


cards = [amd(f"gpu-{i}-{128 + i}", "amdgpu", "spx_nps1", f"parent-{i}") for i in (0, 1)]
mi300 = [*classes(AMD), *publish(AMD, *cards)]
AMD_ONE = [of_class(AMD, "gpu")]
add(f"{ROCM}/example.yaml", {"p": "1", "q": "1", "r": "!"}, mi300, AMD_ONE)
shared = {"requests": {"c": AMD_ONE}, "pods": {"p": ["c"], "q": ["c"]}}
same = {"p": "1 on 1", "q": "1 on 1"}
add(f"{ROCM}/example-multiple-pod-share.yaml", same, mi300, **shared)
source = f"{ROCM}/example-same-pod-multiple-containers-share.yaml"
add(source, {"p": "1"}, mi300, AMD_ONE, pod_fields=TWO_CONTAINERS)
partition = cel(AMD, "type", "amdgpu-partition")
two = [of_class(AMD, name, count=1, selectors=partition) for name in ("p0", "p1")]
by_card = {"requests": ["p0", "p1"]}
parent = f"{AMD}/deviceID"
source = f"{ROCM}/example-partitions-same-parent.yaml"
together = [by_card | {"matchAttribute": parent}]
add(source, {"p": "2 on 1", "q": "2 on 1", "r": "!"}, amd_parts("1", "2"), two,
    constraints=together)  # fmt: skip
apart = [by_card | {"distinctAttribute": parent}]
source = f"{ROCM}/example-partitions-distinct-parents.yaml"
add(source, {"p": "2 on 2", "q": "2 on 2", "r": "!"}, amd_parts("1", "2"), two, constraints=apart)
add(f"{source} (deviceID of the model)", {"p": "!"}, amd_parts("0x74a1", "0x74a1"), two,
    because="deviceID became the PCI id of the model, alike on all cards",
    constraints=apart)  # fmt: skip
PARTITIONS = {"spx_nps1": "1", "cpx_nps4": "8"}


def mode(profile: str) -> Json:
    compute, _, memory = profile.partition("_")
    at = {"type": "amdgpu", "computePartition": compute, "memoryPartition": memory}
    policy = {"default": "1", "validRange": {"min": "1", "step": "1"}}
    parts = {"partitions": {"value": PARTITIONS[profile], "requestPolicy": policy}}
    used = ("gpu-0", {"partition-mode": "1"})
    return dev(f"gpu-0-{compute}", parts, at=at, draws=used, **SEVERAL)


modes = publish(AMD, *map(mode, PARTITIONS), sets={"gpu-0": {"partition-mode": "1"}})
asked = {}
for profile in PARTITIONS:
    compute, _, memory = profile.partition("_")
    text = f"device.attributes['{AMD}'].computePartition == '{compute}'"
    text += f" && device.attributes['{AMD}'].memoryPartition == '{memory}'"
    partition = {"requests": {"partitions": "1"}}
    asked[profile[:3]] = [of_class(AMD, "gpu", selectors=selecting(text), capacity=partition)]
spx, cpx = (
    {"=t": asked[one], "=u": asked[other]} for one, other in (("spx", "cpx"), ("cpx", "spx"))
)
pods = {"p": ["=t"], "q": ["=u"], "r": ["=t"]}
add(f"{ROCM}/auto-partition-spx.yaml", {"p": "a: gpu-0-spx", "q": "!", "r": "!"},
    [*classes(AMD), *modes], requests=spx, pods=pods)  # fmt: skip
expected = {"p": "a: gpu-0-cpx", "q": "!", "r": "a: gpu-0-cpx"}
source = f"{ROCM}/auto-partition-cpx-nps4.yaml"
add(source, expected, [*classes(AMD), *modes], requests=cpx, pods=pods)

# Intel


def intel(name: str, family: str = "Flex", kind: str = "gpu", **fields: Any) -> Json:
    at = {"model": "Flex 170", "family": family, "driver": "i915", "sriov": kind == "gpu"}
    at |= {"type": kind, "health": "Healthy", ROOT: "pci0000:01", "pciAddress": "0000:03:00.0"}
    return dev(name, {"memory": "16Gi", "millicores": "1k"}, at=at, **fields)


FLEX, MAX, VF = intel("0000-03"), intel("0000-0f", "Max"), intel("0000-03-1", kind="vf")
INTEL_CLASSES = classes(INTEL, "gpu-vfio.intel.com")
arc = [*INTEL_CLASSES, *publish(INTEL, FLEX, MAX)]
add(f"{IN}/gpu/examples/pod-inline-gpu.yaml", {"p": "1", "q": "1"}, arc, [of_class(INTEL, "gpu")])
memory = f"device.capacity['{INTEL}'].memory.compareTo(quantity('4Gi')) >= 0"
four_g = [of_class(INTEL, "gpu", selectors=selecting(memory))]
add(f"{IN}/gpu/examples/deployment-inline.yaml", {"p": "1"}, arc, four_g)
flex = {"c": [of_class(INTEL, "gpu", selectors=cel(INTEL, "family", "Flex"))]}
source = f"{IN}/gpu/examples/claim-external-gpu.yaml"
add(source, {"p": "a: 0000-03"}, arc, requests=flex, pods={"p": ["c"]})
anything = [{"effect": "NoExecute"}, {"effect": "NoSchedule"}]
anything = [each | {"operator": "Exists"} for each in anything]
watching = {"allocationMode": "All", "adminAccess": True, "tolerations": anything}
broken = {"key": "intel.com/unhealthy", "effect": "NoExecute"}
GAUDIS = [dev(f"g-{i}", at={"model": "Gaudi3", "healthy": True}) for i in range(4)]
for driver, folder, made in ((INTEL, "gpu", [FLEX, MAX]), (GAUDI, "gaudi", GAUDIS)):
    ill_one = [made[0] | {"taints": [broken]}, *made[1:]]
    expected = {"q": str(len(made) - 1), "p": str(len(made))}
    held = [of_class(driver, "gpu", count=len(made) - 1)]
    add(f"{IN}/{folder}/examples/monitor-pod-inline.yaml", expected,
        [*classes(driver), *publish(driver, *ill_one)], admin=True, pods={"q": ["=t"], "p": ["=m"]},
        requests={"=t": held, "=m": [of_class(driver, "gpu", **watching)]})  # fmt: skip
for kind, outcome in (("gpu", "a: 0000-03"), ("vf", "a: 0000-03-1")):
    asked = [of_class("gpu-vfio.intel.com", "pgpu", selectors=cel(INTEL, "type", kind))]
    source = f"{IN}/gpu/examples/kubevirt-vmi-inline-gpu.yaml ({kind})"
    add(source, {"p": outcome}, [*INTEL_CLASSES, *publish(INTEL, VF, FLEX)], asked)


aligned = [of_class("rdma-net", "nic"), of_class(INTEL, "gpu")]
nics = publish(NET, nic_of(0, "pci0000:99"), nic_of(1))
for key, outcome, why in (
    ("'dra.rdma'].bool", "!", "the attribute is dra.net/rdma"),
    ("'dra.net'].rdma", "a: 0000-03 nic-1", ""),
):
    rdma = device_class(
        "rdma-net", f"device.driver == 'dra.net' && device.attributes[{key} == true"
    )
    source = f"{IN}/gpu/examples/pod-inline-gpu-dranet.yaml ({key})"
    objects = [*INTEL_CLASSES, rdma, *publish(INTEL, FLEX), *nics]
    add(source, {"p": outcome}, objects, aligned, why, constraints=[{"matchAttribute": ROOT}])
gaudis = [*classes(GAUDI, INTEL), *publish(GAUDI, *GAUDIS), *publish(INTEL, FLEX)]
one_gaudi = {"requests": {"c": [of_class(GAUDI, "gaudi")]}, "pods": {"p": ["c"]}}
add(f"{IN}/gaudi/examples/pod-inline.yaml", {"p": "1"}, gaudis, **one_gaudi)
for name, outcome, why in ((INTEL, "!", "the class is that of GPUs"), (GAUDI, "2", "")):
    asked = [of_class(name, "gaudi", count=2, selectors=cel(GAUDI, "model", "Gaudi3"))]
    add(f"{IN}/gaudi/examples/deployment-inline.yaml ({name})", {"p": outcome}, gaudis, asked, why)
qats = [dev(f"qat-{i}", at={"services": each}) for i, each in enumerate(("sym;asym", "dc", "dc"))]
services = {
    f"={name}": [of_class(QAT, f"qat-request-{name}", selectors=selecting(text))]
    for name, text in (
        (each, f"device.driver == '{QAT}' && device.attributes['{QAT}'].services.matches('{each}')")
        for each in ("sym;asym", "dc")
    )
}
services = {"=sym": services["=sym;asym"], "=dc": services["=dc"]}
qat = [*classes(QAT), *publish(QAT, *qats)]
add(f"{IN}/qat/examples/deployment-inline.yaml", {"p": "a: qat-0 qat-1", "q": "!"}, qat,
    requests=services, pods={"p": ["=sym", "=dc"], "q": ["=sym"]})  # fmt: skip
pinned = {"cpu": "3", "memory": "128Mi"}
perf = containers(container("perf", "sym", requests=pinned, limits=pinned))
add(f"{IN}/qat/examples/qat-dpdk-test/crypto-perf.yaml", {"p": "a: qat-0"}, qat,
    requests=services, pods={"p": ["=sym"]}, pod_fields=perf)  # fmt: skip
