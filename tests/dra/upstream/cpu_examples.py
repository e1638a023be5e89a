"""Published examples of the drivers of CPUs and networks."""

from typing import Any

from tests.dra.upstream.nvidia_examples import NV_TWO
from tests.dra.upstream.objects import Json, device_class, of_class, selecting
from tests.dra.upstream.published import (
    CPU,
    CPUS,
    DRANET,
    NET,
    NVIDIA,
    SEVERAL,
    add,
    classes,
    container,
    containers,
    dev,
    nic_of,
    opaque,
    publish,
)


def numa_node(i: int, **fields: Any) -> Json:
    at = {"dra.cpu/numCPUs": 16, "dra.cpu/smtEnabled": True, "dra.net/numaNode": i}
    return dev(f"cpudevnuma00{i}", {"dra.cpu/cpu": "16"}, at=at, **SEVERAL, **fields)


def cpu_claim(amount: int) -> list[Json]:
    return [of_class(CPU, "req", capacity={"requests": {"dra.cpu/cpu": str(amount)}})]


def needs(cpu: str) -> Json:
    amounts = {"cpu": cpu, "memory": "2Gi"}
    return containers(container("main", "c", requests=amounts, limits=amounts))["p"]


grouped = [*classes(CPU), *publish(CPU, numa_node(0), numa_node(1))]
ten = {"requests": {"c": cpu_claim(10)}, "pods": {"p": ["c"]}}
source = f"{CPUS}/pod_with_resource_claim_grouped_mode.yaml"
add(source, {"p": "1"}, grouped, **ten, pod_fields={"p": needs("10")})
single = [dev(f"cpudev{i:03}", at={"dra.cpu/cpuID": i}) for i in range(10)]
individual = [*classes(CPU), *publish(CPU, *single)]
source = f"{CPUS}/pod_with_resource_claim_individual_mode.yaml"
counts = {"c": [of_class(CPU, "r", count=4)], "d": [of_class(CPU, "r2", count=6)]}
add(source, {"p": "10"}, individual, requests=counts, pods={"p": ["c", "d"]})
add(f"{source} (slices of grouped mode)", {"p": "!"}, grouped, requests=counts,
    because="two devices are no ten", pods={"p": ["c", "d"]})  # fmt: skip
mapping = {"mapping": {"capacityKey": "dra.cpu/cpu", "capacityMultiplier": "1"}}
counted = {"nodeAllocatableResources": {"cpu": mapping}}
mapped_nodes = [*classes(CPU), *publish(CPU, numa_node(0, **counted), numa_node(1, **counted))]
two_claims = {"c": cpu_claim(10), "d": cpu_claim(4), "e": cpu_claim(4)}
add(f"{CPUS}/pod_with_resource_claim_node_allocatable.yaml", {"p": "1", "q": "1", "r": "!"},
    mapped_nodes, requests=two_claims, pods={"p": ["c"], "q": ["d"], "r": ["e"]}, cpu="16",
    pod_fields={"p": needs("1m")})  # fmt: skip
for cpu, outcome in (("6", "1"), ("5", "!")):
    add(f"{CPUS}/pod_mixed_mode.yaml ({cpu} CPUs)", {"p": outcome}, mapped_nodes, cpu=cpu,
        requests={"c": cpu_claim(4)}, pods={"p": ["c"]}, pod_fields={"p": needs("2")})  # fmt: skip
source = f"{CPUS}/sample_cpu_resource_claims_consumable_capacity.yaml"
add(source, dict.fromkeys("pqrs", "1"), grouped, cpu_claim(2))
near = [of_class(CPU, "cpu", capacity={"requests": {"dra.cpu/cpu": "10"}}), of_class(NET, "nic")]
objects = [*grouped, *classes(NET), *publish(NET, nic_of(0, numaNode=1))]
source = "kubernetes-sigs/dra-driver-cpu/pkg/device/attributes.go (numaNode)"
add(source, {"p": "a: cpudevnuma001 nic-0", "q": "!"}, objects, near,
    constraints=[{"matchAttribute": "dra.net/numaNode"}])  # fmt: skip
card = selecting("device.attributes['resource.kubernetes.io']['pciBusID'] == '0008:06:00.0'")
one_nic = selecting("device.attributes['dra.net']['rdmaDevice'] == 'mlx5_0'")
node_0 = "device.attributes['dra.net']['rdma'] == true"
node_0 = selecting(f"{node_0} && device.attributes['dra.net']['numaNode'] == 0")
rdma_nics = [nic_of(i, numaNode=i // 2) for i in range(4)]
dranet_class = device_class("dranet.net", "device.driver == 'dra.net'")
azure = [*NV_TWO, dranet_class, *publish(NET, *rdma_nics)]
for source, count, chosen, outcome in (
    ("1nic-aligned", 1, one_nic, "a: gpu-0 nic-0"),
    ("2nic-aligned", 2, node_0, "a: gpu-0 nic-0 nic-1"),
):
    asked = [
        of_class(NVIDIA, "gpu", selectors=card),
        of_class("dranet.net", "nic", count=count, selectors=chosen),
    ]
    add(f"{DRANET}/examples/aks-gb300-infiniband-dranet ({source})", {"p": outcome}, azure, asked)
dummy = "has(device.attributes['dra.net'].ifName) && device.attributes['dra.net'].ifName == 'rdma0'"
advanced = {"interface": {"name": "dranet0", "mtu": 4321}, "ethtool": {"features": {"gro": False}}}
dummies = [*classes(NET), *publish(NET, *rdma_nics)]
add(f"{DRANET}/tests/manifests/resourceclaim_advanced.yaml", {"p": "a: nic-0"}, dummies,
    requests={"c": [of_class(NET, "r", selectors=selecting(dummy))]}, pods={"p": ["c"]},
    config=[opaque(NET, "Interface", **advanced)])  # fmt: skip
