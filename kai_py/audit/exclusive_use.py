"""What only one pod may use, and several do: host ports of a node, and volume claims.

The kubelet refuses a pod whose host port another pod of its node uses. Addresses conflict as the
scheduler has it: if they are equal, or one of them means all. O(pods and their ports).

A PersistentVolumeClaim with the access mode ReadWriteOncePod is for one pod in the whole cluster. A
second pod on the same node does not start, and one on another node may write to the same volume.
Source: KEP-2485.

Terminating pods do not count: the pod that replaces one waits for it. Nor do pods bound a moment
ago: the kubelet may still refuse them.
"""

from kai_py.api.phrases import first_of
from kai_py.api.records.core import Pod
from kai_py.api.records.storage import READ_WRITE_ONCE_POD
from kai_py.audit.finding import (
    AuditedCluster,
    AuditFinding,
    FindingKind,
    Steps,
    bound_since,
    is_unfinished,
    name_of,
)
from kai_py.snapshot.pod_volumes import volume_claim_name
from kai_py.snapshot.shape import host_ports

_Users = dict[str, dict[str, None]]
"""The pods that use a port, by address; the empty one means all addresses."""


def host_ports_used_twice(cluster: AuditedCluster) -> Steps:
    """Ports of nodes that several bound pods use at the same address."""
    used: dict[tuple[str, str, int], _Users] = {}
    for pod in cluster.pods:
        ports = host_ports(pod)
        if ports and is_unfinished(pod) and cluster.is_settled(bound_since(pod)):
            name = name_of(pod.metadata.namespace, pod.metadata.name)
            for address, protocol, port in ports:
                users = used.setdefault((pod.spec.node_name, protocol, port), {})
                users.setdefault(address, {})[name] = None
        yield None
    for (node, protocol, port), users in sorted(used.items()):
        pods = _in_conflict(users)
        yield _port_finding(node, f"{port}/{protocol}", pods) if pods else None


def _in_conflict(users: _Users) -> list[str]:
    """The pods, sorted, that use the port at an address where another pod does."""
    everyone = {pod: None for pods in users.values() for pod in pods}
    if "" in users:
        return sorted(everyone) if len(everyone) > 1 else []
    shared = {pod: None for pods in users.values() if len(pods) > 1 for pod in pods}
    return sorted(shared)


def _port_finding(node: str, port: str, pods: list[str]) -> AuditFinding:
    return AuditFinding(
        FindingKind.NODE_OVER_CAPACITY,
        (f"Node {node}", f"Port {port}", *(f"Pod {pod}" for pod in pods)),
        f"host port {port} of node {node} is used by {len(pods)} pods: {first_of(pods)}",
    )


def volumes_used_twice(cluster: AuditedCluster) -> Steps:
    """ReadWriteOncePod claims that several bound pods use."""
    users: dict[tuple[str, str], dict[str, None]] = {}
    for claim in cluster.volume_claims:
        if READ_WRITE_ONCE_POD in claim.spec.access_modes:
            users[claim.metadata.namespace, claim.metadata.name] = {}
        yield None
    for pod in cluster.pods if users else ():
        if pod.spec.volumes and is_unfinished(pod) and cluster.is_settled(bound_since(pod)):
            _add(pod, users)
        yield None
    for (namespace, name), pods in sorted(users.items()):
        yield _claim_finding(name_of(namespace, name), sorted(pods)) if len(pods) > 1 else None


def _add(pod: Pod, users: dict[tuple[str, str], dict[str, None]]) -> None:
    namespace = pod.metadata.namespace
    for volume in pod.spec.volumes:
        pods = users.get((namespace, volume_claim_name(pod, volume)))
        if pods is not None:
            pods[name_of(namespace, pod.metadata.name)] = None


def _claim_finding(claim: str, pods: list[str]) -> AuditFinding:
    return AuditFinding(
        FindingKind.VOLUME_USED_TWICE,
        (f"PersistentVolumeClaim {claim}", *(f"Pod {pod}" for pod in pods)),
        f"volume claim {claim} is for one pod only (ReadWriteOncePod), but {len(pods)} pods use "
        f"it: {first_of(pods)}",
    )
