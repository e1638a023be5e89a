"""Claims on a node: the resources that they use there, and why it can't use some in this cycle.

Claims use resources of nodes by kube-scheduler's rules (KEP-5517). A claim that was allocated in
this cycle can only be used on the nodes of its allocation, and one that loses its devices on none.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kai_py.api.records.resource import AllocationResult
from kai_py.dra.identity import DeviceID
from kai_py.dra.node_resources import NodeResources
from kai_py.plan.plan import NodeClaim
from kai_py.plan.state.claim_users import ClaimUsers
from kai_py.snapshot.accounting import total
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.requests import beyond_pod_level
from kai_py.snapshot.shape import Shape


class TakenOfNode(NamedTuple):
    """What each claim takes, and what all take on top of the pod's requests, in row units."""

    claims: tuple[NodeClaim, ...] = ()
    amounts: Mapping[str, float] = {}


def taken_of_node(
    member: Member, resources: Iterable[NodeResources], users: ClaimUsers
) -> TakenOfNode | str:
    """What the claims of a pod take of its node, or why they can't.

    ``resources``: of the allocation of each of the pod's claims.
    """
    found: list[NodeClaim] = []
    amounts: list[Mapping[str, float]] = []
    for use, ref, taken in zip(member.shape.claims, member.claims, resources, strict=False):
        if not taken:
            continue
        if taken.mapped and users.has_others(ref, member):
            return (
                f"node allocatable resource claim {use.name} has a mapped device and cannot be "
                "shared across pods"
            )
        if not use.containers:
            return f"claim {use.name} takes resources of the node, but no container refers to it"
        found.append(NodeClaim(use.name, taken.status(ref.name)))
        amounts.append(taken.of_pod(use.containers))
    taken_in_all, unused = total(amounts), member.shape.unused_pod_level
    for name, left in unused.items():
        if taken_in_all.get(name, 0.0) > left:
            return (
                f"pod level request for {name} is insufficient to cover the aggregated "
                "container and node-allocatable DRA requests"
            )
    return TakenOfNode(tuple(found), beyond_pod_level(taken_in_all, unused))


def unreachable_reason(
    shape: Shape,
    allocations: Mapping[str, AllocationResult],
    is_reassigned: Callable[[str], bool],
) -> str:
    """What keeps nodes from the first such claim of ``shape``.

    ``allocations``: of this cycle, by uid of the claim. ``is_reassigned``: whether a claim, by its
    uid, loses its devices to others.
    """
    for meta in (use.claim.metadata for use in shape.claims if use.claim is not None):
        name = f"claim {meta.namespace}/{meta.name}"
        if is_reassigned(meta.uid):
            devices = "its devices were allocated to other claims"
            return f"cannot use {name}: it is being deallocated and {devices}"
        allocation = allocations.get(meta.uid)
        if allocation is not None and allocation.node_selector is not None:
            first = allocation.devices.results[0]
            device = DeviceID(first.driver, first.pool, first.device)
            return f"cannot access {device}, which {name} has for other pods"
    return "cannot access the devices of all claims"
