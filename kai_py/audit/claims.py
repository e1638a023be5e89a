"""Running pods without their claims, and reservations without pods that use them.

A scheduler allocates and reserves every claim of a pod before it binds the pod, so a bound pod
without is one that lost its devices. Pods of other schedulers count once they run: one that is
pinned to a node by hand waits there for its claims.

A pod names its claims in its spec and status, for good once it is bound. A claim that the pod owns
may be reserved before its status says so, while the pod is being bound. Where it is unknown which
claims a pod has, nothing is said of what is reserved for it, nor of finished and terminating pods:
their reservations go. Sources: KEP-4381, KEP-5004, KEP-5729.
"""

from collections.abc import Iterable, Iterator, Mapping, Set

from kai_py.api.pod_phases import is_finished
from kai_py.api.records.core import Pod, PodResourceClaim
from kai_py.api.records.resource import (
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from kai_py.api.selectors import requirement_matches
from kai_py.api.texts import first_of
from kai_py.audit.finding import (
    AuditedCluster,
    AuditFinding,
    FindingKind,
    Steps,
    bound_since,
    is_unfinished,
    name_of,
)
from kai_py.dra.identity import PoolID
from kai_py.dra.rows import ParsedSlice
from kai_py.snapshot.pod_claims import POD_GROUPS, GroupClaims, created_claims, pod_group_of

PODS = "pods"
ELSEWHERE = "has devices of another node"


def pods_without_claims(cluster: AuditedCluster) -> Steps:
    """Running pods with a claim that is missing, not allocated, not reserved, or elsewhere."""
    claims = {(each.metadata.namespace, each.metadata.name): each for each in cluster.claims}
    pools = _pools_of_nodes(cluster.slices)
    for pod in cluster.pods:
        if not _needs_claims(cluster, pod):
            yield None
            continue
        group = group_of(cluster, pod)
        faults: list[tuple[str, str]] = []
        for name, entry in claim_names(pod, group):
            claim = claims.get((pod.metadata.namespace, name)) if name else None
            fault = _fault(pod, claim, entry, pools)
            if fault:
                faults.append((name, fault))
        yield _pod_finding(pod, faults) if faults else None


def reservations_without_pods(cluster: AuditedCluster) -> Steps:
    """Claims that are reserved for pods or PodGroups that do not exist."""
    pods: set[str] = set()
    for pod in cluster.pods:
        pods.add(pod.metadata.uid)
        yield None
    known: dict[str, Set[str]] = {PODS: pods}
    if cluster.pod_groups is not None:
        known[POD_GROUPS] = {each.group.uid for each in cluster.pod_groups.values() if each.group}
    if any(not user.uid for claim in cluster.claims for user in claim.status.reserved_for):
        pods |= {name_of(pod.metadata.namespace, pod.metadata.name) for pod in cluster.pods}
    for claim in cluster.claims:
        missing = [each for each in claim.status.reserved_for if not _exists(claim, each, known)]
        if not missing or not reservation_settled(cluster, claim):
            yield None
            continue
        yield _reservation_finding(claim, missing)


def _exists(
    claim: ResourceClaim, user: ResourceClaimConsumerReference, known: Mapping[str, Set[str]]
) -> bool:
    """Whether the pod or group of a reservation exists, or may do; ``known``: uids and names."""
    if user.resource not in known:
        return True
    return (user.uid or f"{claim.metadata.namespace}/{user.name}") in known[user.resource]


def _needs_claims(cluster: AuditedCluster, pod: Pod) -> bool:
    if not (pod.spec.resource_claims or pod.status.extended_resource_claim_status):
        return False
    if not is_unfinished(pod) or not cluster.is_settled(bound_since(pod)):
        return False
    return pod.spec.scheduler_name in cluster.scheduler_names or pod.status.phase == "Running"


def group_of(cluster: AuditedCluster, pod: Pod) -> GroupClaims | None:
    """The PodGroup of a pod; None without one, or if it is not known."""
    named = pod_group_of(pod)
    if named is None or cluster.pod_groups is None:
        return None
    return cluster.pod_groups.get(named)


def claim_names(pod: Pod, group: GroupClaims | None) -> Iterator[tuple[str, str]]:
    """The name of each claim, "" where none was made, and what asks for it."""
    created = created_claims(pod)
    for entry in pod.spec.resource_claims:
        name = _claim_name(pod, entry, created, group)
        if name is not None:
            yield name, f'spec.resourceClaims["{entry.name}"]'
    extended = pod.status.extended_resource_claim_status
    if extended is not None:
        yield extended.resource_claim_name, "its extended resources"


def _claim_name(
    pod: Pod,
    entry: PodResourceClaim,
    created: Mapping[str, str | None],
    group: GroupClaims | None,
) -> str | None:
    """None where no claim is needed, or where it is unknown which."""
    if entry.resource_claim_name:
        return entry.resource_claim_name
    if entry.name in created:
        return created[entry.name]
    if group is not None and entry.name in group.claim_names:
        return group.claim_names[entry.name]
    # Where the group is unknown, so are its claims.
    return None if group is None and pod_group_of(pod) is not None else ""


def _fault(pod: Pod, claim: ResourceClaim | None, entry: str, pools: Mapping[PoolID, str]) -> str:
    if claim is None:
        return f"the claim for {entry} does not exist"
    text = f"claim {name_of(claim.metadata.namespace, claim.metadata.name)}"
    allocation = claim.status.allocation
    if allocation is None:
        return f"{text} is not allocated"
    if _is_elsewhere(pod, allocation, pools):
        return f"{text} {ELSEWHERE}"
    if any(_is_user(pod, each) for each in claim.status.reserved_for):
        return ""
    return f"{text} is not reserved for it"


def _pools_of_nodes(slices: Iterable[ParsedSlice]) -> Mapping[PoolID, str]:
    """The node of every pool whose slices are all of one node."""
    nodes: dict[PoolID, str] = {}
    for parsed in slices:
        node = parsed.slice.spec.node_name
        if nodes.setdefault(parsed.pool_id, node) != node:
            nodes[parsed.pool_id] = ""
    return {pool: node for pool, node in nodes.items() if node}


def _is_elsewhere(pod: Pod, allocation: AllocationResult, pools: Mapping[PoolID, str]) -> bool:
    """Whether a node's devices are those of another; labels of nodes may have changed since."""
    selector, node = allocation.node_selector, pod.spec.node_name
    terms = () if selector is None else selector.node_selector_terms
    if terms and not any(
        all(requirement_matches(each, node) for each in term.match_fields) for term in terms
    ):
        return True
    owners = (
        pools.get(PoolID(each.driver, each.pool), node) for each in allocation.devices.results
    )
    return any(owner != node for owner in owners)


def _is_user(pod: Pod, user: ResourceClaimConsumerReference) -> bool:
    """Whether a claim that is reserved for ``user`` is so for the pod."""
    if user.resource == POD_GROUPS:
        named = pod_group_of(pod)
        return named is not None and named[1] == user.name
    return user.uid == pod.metadata.uid or (not user.uid and user.name == pod.metadata.name)


def _pod_finding(pod: Pod, faults: list[tuple[str, str]]) -> AuditFinding:
    meta = pod.metadata
    claims = [f"ResourceClaim {name_of(meta.namespace, name)}" for name, _ in faults if name]
    texts = first_of([text for _, text in faults])
    is_elsewhere = all(text.endswith(ELSEWHERE) for _, text in faults)
    harm = "it cannot use them" if is_elsewhere else "its devices may be given to another pod"
    return AuditFinding(
        FindingKind.POD_WITHOUT_CLAIM,
        (f"Pod {name_of(meta.namespace, meta.name)}", *claims),
        f"pod {name_of(meta.namespace, meta.name)} is on node {pod.spec.node_name}, but {texts}: "
        f"{harm}",
    )


def reservation_settled(cluster: AuditedCluster, claim: ResourceClaim) -> bool:
    """Whether the claim is not in deletion and was not allocated a moment ago."""
    allocation = claim.status.allocation
    if claim.metadata.deletion_timestamp is not None:
        return False
    stamp = allocation.allocation_timestamp if allocation is not None else None
    return stamp is None or cluster.is_settled(stamp.timestamp())


def _reservation_finding(
    claim: ResourceClaim, missing: list[ResourceClaimConsumerReference]
) -> AuditFinding:
    name = name_of(claim.metadata.namespace, claim.metadata.name)
    users = [
        f"{_KINDS[each.resource]} {name_of(claim.metadata.namespace, each.name)}"
        for each in missing
    ]
    shown = first_of(users)
    return AuditFinding(
        FindingKind.RESERVATION_WITHOUT_POD,
        (f"ResourceClaim {name}", *users),
        f"claim {name} is reserved for {shown}, which does not exist: its devices are not "
        "given back",
    )


_KINDS = {PODS: "Pod", POD_GROUPS: "PodGroup"}


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
