"""Which nodes serve a pod's extended resources by claim, and what does that claim look like?

A node whose device plugin reports a resource serves it as ever; where none does, a claim is made
for the pod (KEP-5004). Nodes that lack the same resources get the same claim. It is written by the
name it has here, so that a repeated attempt finds what an earlier one made.
"""

import hashlib
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from kai_py.api.records.core import ObjectMeta, OwnerReference
from kai_py.api.records.resource import (
    EXTENDED_RESOURCE_CLAIM_ANNOTATION,
    AllocationResult,
    ConsumerReference,
    ResourceClaim,
    ResourceClaimStatus,
)
from kai_py.plan.plan import ClaimToMake
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot

NO_NAME = "<extended-resources>"
LONGEST_BASE = 53
"""Names stay short enough for a label."""

Part = tuple[tuple[ResourceClaim, ...], Ints]
"""The claim that has to be made, if any, and the rows of the nodes where it has to."""


def claims_to_make(shape: Shape, snapshot: Snapshot, rows: Ints) -> Iterator[Part]:
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
        yield _unnamed(shape, names), rows[missing == code]


def claims_of_pod(member: Member, snapshot: Snapshot, row: int) -> tuple[ResourceClaim, ...]:
    """The claim that one pod needs on a node, if any, with an identity of its own."""
    [(made, _)] = claims_to_make(member.shape, snapshot, np.array([row]))
    return tuple(
        msgspec.structs.replace(claim, metadata=ObjectMeta(name=NO_NAME, uid=member.pod.uid))
        for claim in made
    )


def claim_to_make(
    member: Member, unnamed: ResourceClaim, allocation: AllocationResult
) -> ClaimToMake:
    """The claim for a pod, allocated and reserved for it."""
    pod, spec = member.pod, unnamed.spec
    base = f"{pod.name}-extended-resources-"
    owner = OwnerReference(
        api_version="v1", kind="Pod", name=pod.name, uid=pod.uid, controller=True
    )
    consumer = ConsumerReference(resource="pods", name=pod.name, uid=pod.uid)
    name = base[:LONGEST_BASE] + _suffix(pod.uid, spec.devices.requests)
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
    uses = tuple(use for use in member.shape.extended.uses if use.request_name in asked)
    return ClaimToMake(claim, uses)


def _unnamed(shape: Shape, missing: Sequence[str]) -> tuple[ResourceClaim, ...]:
    if not missing:
        return ()
    spec = shape.extended.claim_spec(missing)
    return (ResourceClaim(metadata=ObjectMeta(name=NO_NAME), spec=spec),)


def _suffix(*parts: object) -> str:
    return hashlib.sha256(msgspec.msgpack.encode(parts)).hexdigest()[:10]
