"""Resource claims in a cycle: extended resources, and users of claims.

*Extended resources* (KEP-5004): a node whose device plugin reports a resource serves it as before;
on other nodes a claim is created for the pod. Nodes that lack the same resources get the same
claim. Parts of GPUs are claimed likewise, by what the driver publishes of the GPUs there; a node
with neither a device plugin nor GPUs that can be divided serves none. The name of the claim
is fixed here, so that a repeated attempt finds the claim of an earlier one.

*Users*: devices are free once the last user of their claim has left. Users are the consumers in
``status.reservedFor`` and the pods placed with the claim in this cycle; a PodGroup counts as those
of its pods that have a node. Once none has, the claim is deallocated
(``kai_py.commit.claims.recovery``). ``status.reservedFor`` has at most 256 entries, so the users
of a claim are counted when pods are placed: those listed, those whose entry is being written, those
placed in this cycle. A PodGroup is one entry.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

import msgspec
import numpy as np

from kai_py.api.records.core import ObjectMeta, OwnerReference
from kai_py.api.records.resource import (
    EXTENDED_RESOURCE_CLAIM_ANNOTATION,
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimSpec,
    ResourceClaimStatus,
)
from kai_py.dra.divisible_gpus import DivisibleGpu, serving, share_constraints, share_request
from kai_py.plan.plan import ClaimToCreate
from kai_py.plan.state.undo import Undo
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.claims import POD_GROUPS

UNNAMED_CLAIM = "<extended-resources>"
MAX_BASE_LENGTH = 53
"""Characters of a name before its suffix of 10, so that it fits into a label (63)."""

FindDivisible = Callable[[str], Mapping[str, tuple[DivisibleGpu, ...]]]
"""The GPUs of a class of which parts can be claimed, by node."""

NodeClaims = tuple[tuple[ResourceClaim, ...], Ints]
"""The claim to create, if any, and the rows of the nodes that need it."""


def extended_claims_by_node(
    shape: Shape, snapshot: Snapshot, rows: Ints, divisible: FindDivisible
) -> Iterator[NodeClaims]:
    """Split ``rows`` by the claim that their nodes need; O(rows x extended resources).

    Nodes that can serve the pod neither way are left out.
    """
    resources = shape.extended.resources
    if not resources:
        yield (), rows
        return
    missing = np.zeros(len(rows), dtype=np.int64)
    for bit, resource in enumerate(resources):
        position = snapshot.resources.positions.get(resource)
        if position is None:
            missing |= 1 << bit
        else:
            missing |= (snapshot.nodes.allocatable[position, rows] <= 0).astype(np.int64) << bit
    for code in np.unique(missing):
        names = tuple(name for bit, name in enumerate(resources) if code >> bit & 1)
        for gpus, same in _by_gpus(shape, snapshot, names, rows[missing == code], divisible):
            yield _claim_template(shape, names, gpus), same


def _by_gpus(
    shape: Shape, snapshot: Snapshot, missing: Sequence[str], rows: Ints, divisible: FindDivisible
) -> Iterator[tuple[tuple[DivisibleGpu, ...], Ints]]:
    """Split ``rows`` by the GPUs of which parts are claimed there."""
    share = shape.extended.share
    if share is None or share.part is None or share.resource not in missing:
        yield (), rows
        return
    by_node = divisible(share.device_class)
    groups: dict[tuple[DivisibleGpu, ...], list[int]] = {}
    for row in rows.tolist():
        groups.setdefault(by_node.get(snapshot.nodes.names[row], ()), []).append(row)
    for gpus, same in groups.items():
        if found := serving(gpus, share.part):
            yield found, np.array(same)


def extended_claims_of_pod(
    member: Member, snapshot: Snapshot, row: int, divisible: FindDivisible
) -> tuple[ResourceClaim, ...] | None:
    """The claim that a pod needs on a node, if any, under an identity of its own.

    None where the node cannot serve the pod.
    """
    meta = ObjectMeta(name=UNNAMED_CLAIM, uid=member.pod.uid)
    for templates, _ in extended_claims_by_node(member.shape, snapshot, np.array([row]), divisible):
        return tuple(msgspec.structs.replace(claim, metadata=meta) for claim in templates)
    return None


def claim_to_create(
    member: Member, template: ResourceClaim, allocation: AllocationResult
) -> ClaimToCreate:
    """The claim to create for a pod, allocated and reserved for it."""
    pod, spec = member.pod, template.spec
    base = f"{pod.name}-extended-resources-"
    owner = OwnerReference(
        api_version="v1", kind="Pod", name=pod.name, uid=pod.uid, controller=True
    )
    consumer = ResourceClaimConsumerReference(resource="pods", name=pod.name, uid=pod.uid)
    name = base[:MAX_BASE_LENGTH] + _name_suffix(pod.uid, spec.devices.requests)
    claim = ResourceClaim(
        metadata=ObjectMeta(
            name=name,
            namespace=pod.namespace,
            uid=f"{pod.uid}/{name}",
            annotations={EXTENDED_RESOURCE_CLAIM_ANNOTATION: "true"},
            owner_references=(owner,),
        ),
        spec=spec,
        status=ResourceClaimStatus(allocation=allocation, reserved_for=(consumer,)),
    )
    requested = {request.name for request in spec.devices.requests}
    uses = tuple(
        use for use in member.shape.extended.container_uses if use.request_name in requested
    )
    return ClaimToCreate(claim, uses)


def _claim_template(
    shape: Shape, missing: Sequence[str], gpus: Sequence[DivisibleGpu]
) -> tuple[ResourceClaim, ...]:
    if not missing:
        return ()
    spec = shape.extended.claim_spec(missing)
    share = shape.extended.share
    if share is not None and share.part is not None and gpus:
        request = share_request(share.name, share.device_class, share.part, gpus)
        devices = msgspec.structs.replace(
            spec.devices,
            requests=(*spec.devices.requests, request),
            constraints=share_constraints(share.name, share.part, gpus),
        )
        spec = ResourceClaimSpec(devices=devices)
    return (ResourceClaim(metadata=ObjectMeta(name=UNNAMED_CLAIM), spec=spec),)


def _name_suffix(*parts: object) -> str:
    return hashlib.sha256(msgspec.msgpack.encode(parts)).hexdigest()[:10]


@dataclass(slots=True, eq=False)
class ClaimUsers:
    """Users by claim uid; every change returns its undo, to be called in reverse order."""

    group_pods: Mapping[str, Set[str]] = field(default_factory=dict)
    """Pods that use the claim of their group; a group that is absent counts as one user."""
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
        users = {
            uid
            for consumer in claim.status.reserved_for
            for uid in self._pods_of_consumer(consumer, claim.metadata.uid)
        }
        users |= self._joined.get(claim.metadata.uid, {}).keys()
        return not users <= self._left.get(claim.metadata.uid, {}).keys()

    def has_others(
        self,
        claim_uid: str,
        listed: Sequence[ResourceClaimConsumerReference],
        own: Set[str],
    ) -> bool:
        """Whether pods beside ``own`` use a claim: of those ``listed`` in it, or placed with it."""
        users = {uid for each in listed for uid in self._pods_of_consumer(each, claim_uid)}
        users |= self._joined.get(claim_uid, {}).keys()
        return not users <= self._left.get(claim_uid, {}).keys() | own

    def consumers(self, claim: ResourceClaim, underway: Set[str], *, released: bool) -> set[str]:
        """Uids that ``reservedFor`` will have, with those ``underway``.

        ``released``: without the pods that were evicted.
        """
        uid = claim.metadata.uid
        present = {each.uid for each in claim.status.reserved_for}
        present |= underway
        present |= self._consumers.get(uid, {}).keys()
        return present - self._left.get(uid, {}).keys() if released else present

    def reserve(self, claim_uid: str, consumer: str) -> Undo | None:
        """Count a consumer that ``reservedFor`` gets; None if it was counted already."""
        counted = self._consumers.setdefault(claim_uid, {})
        return None if consumer in counted else _add_user(counted, consumer)

    def _pods_of_consumer(
        self, consumer: ResourceClaimConsumerReference, claim_uid: str
    ) -> Set[str]:
        if consumer.resource != POD_GROUPS:
            return {consumer.uid}
        return self.group_pods.get(claim_uid, {consumer.uid})


def _add_user(users: dict[str, None], uid: str) -> Undo:
    users[uid] = None

    def undo() -> None:
        del users[uid]

    return undo
