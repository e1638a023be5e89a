"""Which nodes serve a pod's extended resources by claim, and what does that claim look like?

A node whose device plugin reports a resource serves it as ever; where none does, a claim is made
for the pod (KEP-5004). Nodes that lack the same resources get the same claim. It is written by the
name it has here, so that a repeated attempt finds what an earlier one made.

Who uses which claim in a cycle: devices are free once the last user has left.

Users are those the claim is reserved for and the pods placed with it in this cycle; for a PodGroup
stand those of its pods that have a node. Once none has, the claim is given back
(``kai_py.commit.claims.recovery``).

Where may the pods of a ComputeDomain be? Within one NVLink clique.

A channel of NVIDIA's ComputeDomain driver lets a pod reach the memory of GPUs on other nodes, as
far as NVLink goes: the clique that a node's label names. A gang of pods that claim channels, and
that names no topology itself, stays in one clique. Each node has one channel; a gang that wants
more channels than any clique has nodes only prefers a clique.

Complexity: O(waiting gangs) where a DeviceClass selects channels, nothing elsewhere.
Source: NVIDIA's driver for ComputeDomains, resource.nvidia.com/v1beta1.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

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
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.grouping.gang import TopologyConstraint, has_topology_constraint
from kai_py.plan.plan import ClaimToCreate
from kai_py.plan.state.device_api import Undo
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.claims import POD_GROUPS

UNNAMED_CLAIM = "<extended-resources>"
MAX_BASE_LENGTH = 53
"""Names stay short enough for a label."""

NodeClaims = tuple[tuple[ResourceClaim, ...], Ints]
"""The claim that has to be made, if any, and the rows of the nodes where it has to."""


def extended_claims_by_node(shape: Shape, snapshot: Snapshot, rows: Ints) -> Iterator[NodeClaims]:
    """Split ``rows`` by what their nodes need a claim for; O(rows x extended resources)."""
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
        yield _claim_template(shape, names), rows[missing == code]


def extended_claims_of_pod(
    member: Member, snapshot: Snapshot, row: int
) -> tuple[ResourceClaim, ...]:
    """The claim that one pod needs on a node, if any, with an identity of its own."""
    [(made, _)] = extended_claims_by_node(member.shape, snapshot, np.array([row]))
    return tuple(
        msgspec.structs.replace(claim, metadata=ObjectMeta(name=UNNAMED_CLAIM, uid=member.pod.uid))
        for claim in made
    )


def claim_to_create(
    member: Member, template: ResourceClaim, allocation: AllocationResult
) -> ClaimToCreate:
    """The claim for a pod, allocated and reserved for it."""
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
    asked = {request.name for request in spec.devices.requests}
    uses = tuple(use for use in member.shape.extended.container_uses if use.request_name in asked)
    return ClaimToCreate(claim, uses)


def _claim_template(shape: Shape, missing: Sequence[str]) -> tuple[ResourceClaim, ...]:
    if not missing:
        return ()
    spec = shape.extended.claim_spec(missing)
    return (ResourceClaim(metadata=ObjectMeta(name=UNNAMED_CLAIM), spec=spec),)


def _name_suffix(*parts: object) -> str:
    return hashlib.sha256(msgspec.msgpack.encode(parts)).hexdigest()[:10]


@dataclass(slots=True, eq=False)
class ClaimUsers:
    """Users by the uid of the claim; everything can be undone in reverse order."""

    group_pods: Mapping[str, Set[str]] = field(default_factory=dict)
    """Pods that use the claim of their group; other groups keep theirs."""
    _joined: dict[str, dict[str, None]] = field(default_factory=dict)
    _left: dict[str, dict[str, None]] = field(default_factory=dict)

    def join(self, claim_uid: str, pod_uid: str) -> Undo:
        """Count a pod that is placed as a user."""
        return _add_user(self._joined.setdefault(claim_uid, {}), pod_uid)

    def leave(self, claim_uid: str, pod_uid: str) -> Undo | None:
        """Count a pod as gone; None when it was already."""
        gone = self._left.setdefault(claim_uid, {})
        return None if pod_uid in gone else _add_user(gone, pod_uid)

    def is_in_use(self, claim: ResourceClaim) -> bool:
        """Tell whether anybody still uses the claim."""
        users = {
            uid
            for consumer in claim.status.reserved_for
            for uid in self._pods_of_consumer(consumer, claim.metadata.uid)
        }
        users |= self._joined.get(claim.metadata.uid, {}).keys()
        return not users <= self._left.get(claim.metadata.uid, {}).keys()

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


CLIQUE = "nvidia.com/gpu.clique"
DRIVER = "compute-domain.nvidia.com"


def constrain_to_cliques(snapshot: Snapshot, devices: ClusterDevices) -> Snapshot:
    """The snapshot, with every waiting gang that claims channels kept in a clique."""
    classes = devices.classes_of(DRIVER)
    cliques = snapshot.nodes.label(CLIQUE).codes
    if not classes or not cliques.any():
        return snapshot
    largest = int(np.bincount(cliques)[1:].max())
    kept = {
        key: _constrained_to_clique(snapshot.gangs[key], classes, largest)
        for key in snapshot.pending
        if not has_topology_constraint(snapshot.gangs[key].tree)
    }
    return replace(snapshot, gangs={**snapshot.gangs, **kept})


def _constrained_to_clique(gang: Gang, classes: Set[str], largest: int) -> Gang:
    """The gang in one clique if any of its pods claims a channel."""
    channels = {
        claim
        for member in gang.members
        for use, claim in zip(member.shape.claims, member.claims, strict=False)
        if _requests_channel(use.spec, classes)
    }
    if not channels:
        return gang
    topology = TopologyConstraint(required_level=CLIQUE)
    if len(channels) > largest:
        topology = TopologyConstraint(preferred_level=CLIQUE)
    return replace(gang, tree=replace(gang.tree, topology=topology))


def _requests_channel(spec: ResourceClaimSpec, classes: Set[str]) -> bool:
    return any(
        asked.device_class_name in classes
        for request in spec.devices.requests
        for asked in (
            (request.exactly,) if request.exactly is not None else request.first_available
        )
    )
