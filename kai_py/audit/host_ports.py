"""Host ports of nodes that several pods use.

The kubelet refuses a pod whose host port another pod of its node uses. Addresses conflict as the
scheduler has it: if they are equal, or one of them means all. Terminating pods do not count, nor do
pods bound a moment ago: the kubelet may still refuse them. O(pods and their ports).
"""

from kai_py.api.phrases import first_of
from kai_py.audit.finding import (
    AuditedCluster,
    AuditFinding,
    FindingKind,
    Steps,
    bound_since,
    is_unfinished,
    name_of,
)
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
        yield _finding(node, f"{port}/{protocol}", pods) if pods else None


def _in_conflict(users: _Users) -> list[str]:
    """The pods, sorted, that use the port at an address where another pod does."""
    everyone = {pod: None for pods in users.values() for pod in pods}
    if "" in users:
        return sorted(everyone) if len(everyone) > 1 else []
    shared = {pod: None for pods in users.values() if len(pods) > 1 for pod in pods}
    return sorted(shared)


def _finding(node: str, port: str, pods: list[str]) -> AuditFinding:
    return AuditFinding(
        FindingKind.NODE_OVER_CAPACITY,
        (f"Node {node}", f"Port {port}", *(f"Pod {pod}" for pod in pods)),
        f"host port {port} of node {node} is used by {len(pods)} pods: {first_of(pods)}",
    )
