"""Claims that are reserved for pods which do not name them.

A pod names its claims in its spec and status, for good once it is bound. A claim that the pod owns
may be reserved before its status says so, while the pod is being bound. Where it is unknown which
claims a pod has, nothing is said, nor of finished and terminating pods: their reservations go.
"""

from collections.abc import Set

from kai_py.api.phrases import first_of
from kai_py.api.pod_phases import is_finished
from kai_py.api.records.core import Pod
from kai_py.api.records.resource import ResourceClaim
from kai_py.audit.claims import PODS, claim_names, group_of, reservation_settled
from kai_py.audit.finding import (
    AuditedCluster,
    AuditFinding,
    FindingKind,
    Steps,
    bound_since,
    name_of,
)
from kai_py.snapshot.tables.claims import pod_group_of


def reservations_without_use(cluster: AuditedCluster) -> Steps:
    """Claims that are reserved for existing pods which do not use them."""
    pods: dict[str, Pod] = {}
    for pod in cluster.pods:
        pods[pod.metadata.uid] = pod
        yield None
    names: dict[str, Set[str] | None] = {}
    for claim in cluster.claims:
        users = (each for each in claim.status.reserved_for if each.resource == PODS)
        found = [
            user.name
            for user in users
            if user.uid in pods and not _may_use(cluster, claim, pods[user.uid], names)
        ]
        is_fault = found and reservation_settled(cluster, claim)
        yield _finding(claim, sorted(found)) if is_fault else None


def _may_use(
    cluster: AuditedCluster, claim: ResourceClaim, pod: Pod, names: dict[str, Set[str] | None]
) -> bool:
    """``names``: the claims of each pod that was asked about, by uid."""
    if is_finished(pod) or pod.metadata.deletion_timestamp is not None:
        return True
    uid = pod.metadata.uid
    is_settled = bool(pod.spec.node_name) and cluster.is_settled(bound_since(pod))
    if not is_settled and any(owner.uid == uid for owner in claim.metadata.owner_references):
        return True
    if uid not in names:
        names[uid] = _names(cluster, pod)
    named = names[uid]
    return named is None or claim.metadata.name in named


def _names(cluster: AuditedCluster, pod: Pod) -> Set[str] | None:
    """The claims that the pod uses; None where not all of them are known."""
    group = group_of(cluster, pod)
    if group is None and pod_group_of(pod) is not None:
        return None
    names = {name for name, _ in claim_names(pod, group)}
    return None if "" in names else names


def _finding(claim: ResourceClaim, pods: list[str]) -> AuditFinding:
    namespace = claim.metadata.namespace
    name = name_of(namespace, claim.metadata.name)
    users = [f"Pod {name_of(namespace, pod)}" for pod in pods]
    return AuditFinding(
        FindingKind.RESERVATION_WITHOUT_POD,
        (f"ResourceClaim {name}", *users),
        f"claim {name} is reserved for {first_of(users)}, which does not use it: its devices are "
        "not given back while the pod exists",
    )
