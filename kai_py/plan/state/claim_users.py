"""Users of resource claims, and what claims take of nodes and why some can't be used there.

Devices are free once the last user of their claim has left. Users are the consumers in
``status.reservedFor`` and the pods placed with the claim in this cycle; a PodGroup counts as those
of its pods that have a node. Once none has, the claim is deallocated
(``kai_py.commit.claims.recovery``). ``status.reservedFor`` has at most 256 entries, so the users
of a claim are counted when pods are placed: those listed, those whose entry is being written, those
placed in this cycle. A PodGroup is one entry.

Claims use resources of nodes by kube-scheduler's rules (KEP-5517). A claim that was allocated in
this cycle can only be used on the nodes of its allocation, and one that loses its devices on none.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from kai_py.api.records.resource import MAX_RESERVED_FOR, AllocationResult, ResourceClaim
from kai_py.api.references import ClaimRef
from kai_py.dra.identity import DeviceID
from kai_py.dra.node_resources import NodeResources
from kai_py.plan.plan import NodeClaim
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.undo import Undo
from kai_py.snapshot.accounting import total
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.pod_claims import POD_GROUPS
from kai_py.snapshot.requests import beyond_pod_level
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot

NO_CONSUMERS: Set[str] = frozenset()


@dataclass(eq=False)
class ClaimUsers:
    """Users by claim uid; every change returns its undo, to be called in reverse order."""

    snapshot: Snapshot
    _joined: dict[str, dict[str, None]] = field(default_factory=dict)
    _left: dict[str, dict[str, None]] = field(default_factory=dict)
    _consumers: dict[str, dict[str, None]] = field(default_factory=dict)

    def join(self, claim_uid: str, pod_uid: str) -> Undo:
        """Count a placed pod as a user; returns the undo."""
        return _add_user(self._joined.setdefault(claim_uid, {}), pod_uid)

    def leave(self, claim_uid: str, pod_uid: str) -> Undo | None:
        """Count a pod as gone; None if it was already."""
        left = self._left.setdefault(claim_uid, {})
        return None if pod_uid in left else _add_user(left, pod_uid)

    def is_in_use(self, claim: ResourceClaim) -> bool:
        """Whether the claim still has a user."""
        uid = claim.metadata.uid
        left, joined = self._left.get(uid, {}), self._joined.get(uid, {})
        return any(pod not in left for pod in chain(joined, self.listed(claim)))

    def is_left_over(self, ref: ClaimRef) -> bool:
        """Whether only pods that wait have the allocated claim, which makes commit release it.

        Until then those pods fit only where its devices are.
        """
        claim = self.snapshot.devices.claim(ref)
        if claim is None or claim.status.allocation is None or ref.uid in self._underway:
            return False
        left = self._left.get(ref.uid, {}).keys()
        return not self._joined.get(ref.uid) and self.listed(claim) <= self._waiting | left

    def left_over_claim(self, gang: Gang) -> str:
        """The name of a claim that is left over and pins a pending pod of a gang; else ""."""
        for member in gang.pending:
            for use, ref in zip(member.shape.claims, member.claims, strict=False):
                if use.is_allocated and self.is_left_over(ref):
                    return ref.name
        return ""

    def has_others(self, ref: ClaimRef, member: Member) -> bool:
        """Whether other pods than ``member`` and its group use a claim, or were placed with it."""
        claim = self.snapshot.devices.claim(ref)
        listed = self.listed(claim) if claim is not None else set()
        group = member.group_reservation
        own = {member.pod.uid} | ({group.group.uid} if group is not None else set())
        users = listed | self._joined.get(ref.uid, {}).keys()
        return not users <= self._left.get(ref.uid, {}).keys() | own

    def crowded(self, members: Sequence[Member], capacity: Capacity) -> str:
        """The first claim that has too many users with ``members``, as a sentence; else ""."""
        added: dict[ClaimRef, set[str]] = {}
        for member in members:
            for use, ref in zip(member.shape.claims, member.claims, strict=False):
                if use.claim is not None:
                    added.setdefault(ref, set()).add(consumer_of(member, ref))
        for ref, consumers in added.items():
            claim = self.snapshot.devices.claim(ref)
            if claim is None:
                continue
            present = self._consumers_of(claim, released=capacity is Capacity.FUTURE_IDLE)
            if len(present | consumers) > MAX_RESERVED_FOR:
                return (
                    f'resourceclaim "{ref.name}" would be reserved for {len(present | consumers)} '
                    f"pods, {MAX_RESERVED_FOR} are allowed"
                )
        return ""

    def _consumers_of(self, claim: ResourceClaim, *, released: bool) -> set[str]:
        """Uids that ``reservedFor`` will have; ``released``: without the pods that were evicted."""
        uid = claim.metadata.uid
        present = {each.uid for each in claim.status.reserved_for}
        present |= self._underway.get(uid, NO_CONSUMERS)
        present |= self._consumers.get(uid, {}).keys()
        return present - self._left.get(uid, {}).keys() if released else present

    def reserve(self, claim_uid: str, consumer: str) -> Undo | None:
        """Count a consumer that ``reservedFor`` gets; None if it was counted already."""
        counted = self._consumers.setdefault(claim_uid, {})
        return None if consumer in counted else _add_user(counted, consumer)

    def listed(self, claim: ResourceClaim) -> Set[str]:
        """Uids of the pods that a claim is reserved for; of a group, of those on nodes."""
        found: set[str] = set()
        for consumer in claim.status.reserved_for:
            of_group = consumer.resource == POD_GROUPS
            known = self._group_pods.get(claim.metadata.uid) if of_group else None
            found |= {consumer.uid} if known is None else known
        return found

    @cached_property
    def _group_pods(self) -> Mapping[str, Set[str]]:
        """Pods that use the claim of their group; a group that is absent counts as one user."""
        return {ref.uid: pods for ref, pods in self.snapshot.group_claim_users.items()}

    @cached_property
    def _waiting(self) -> Set[str]:
        """Uids of the pods without a node; O(pods) once."""
        gangs = self.snapshot.gangs.values()
        return {each.pod.uid for gang in gangs for each in gang.members if not each.node}

    @cached_property
    def _underway(self) -> Mapping[str, Set[str]]:
        """Consumers by claim of the pods on nodes, listed in the claim or not; O(pods) once."""
        found: dict[str, set[str]] = {}
        for gang in self.snapshot.gangs.values():
            for member in gang.members:
                for ref in member.claims if member.node else ():
                    found.setdefault(ref.uid, set()).add(consumer_of(member, ref))
        return found


def consumer_of(member: Member, ref: ClaimRef) -> str:
    """The uid under which the claim is reserved: the pod's, or that of its group."""
    group = member.group_reservation
    return group.group.uid if group is not None and ref in group.claims else member.pod.uid


def _add_user(users: dict[str, None], uid: str) -> Undo:
    users[uid] = None

    def undo() -> None:
        del users[uid]

    return undo


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
