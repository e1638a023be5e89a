"""Claims that are created for pods: extended resources, and parts of GPUs (KEP-5004).

A node whose device plugin reports a resource serves it as usual; on other nodes a claim is created
for the pod. Nodes that lack the same resources get the same claim. Parts of GPUs are claimed in the
same way, according to what the driver publishes about the GPUs there; a node with neither a device
plugin nor divisible GPUs serves none. The name of the claim is fixed here, so that a repeated
attempt finds the claim of an earlier one.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence

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
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot

UNNAMED_CLAIM = "<extended-resources>"
MAX_BASE_LENGTH = 53
"""Characters of a name before its suffix of 10, so that it fits into a label (63)."""

MAX_BITS = 63
"""Rows of a table whose columns are compared as numbers of int64, which is faster."""

FindDivisible = Callable[[str], Mapping[str, tuple[DivisibleGpu, ...]]]
"""The GPUs of a class of which parts can be claimed, by node."""

NodeClaims = tuple[tuple[ResourceClaim, ...], Ints]
"""The claim to create, if any, and the rows of the nodes that need it."""


def extended_claims_by_node(
    shape: Shape, snapshot: Snapshot, rows: Ints, divisible: FindDivisible
) -> Iterator[NodeClaims]:
    """Split ``rows``, (n,), by the claim that their nodes need; O(rows x extended resources).

    Nodes that can serve the pod neither way are left out.
    """
    resources = shape.extended.resources
    if not resources:
        yield (), rows
        return
    missing = np.ones((len(resources), len(rows)), dtype=np.bool_)
    for at, resource in enumerate(resources):
        position = snapshot.resources.positions.get(resource)
        if position is not None:
            missing[at] = snapshot.nodes.allocatable[position, rows] <= 0
    codes = _column_codes(missing)
    for code in np.unique(codes):
        alike = codes == code
        lacking = missing[:, alike.argmax()]
        names = tuple(name for name, lacks in zip(resources, lacking, strict=True) if lacks)
        for gpus, same in _by_gpus(shape, snapshot, names, rows[alike], divisible):
            yield _claim_template(shape, names, gpus), same


def _column_codes(columns: Bools) -> Ints:
    """(columns,) int64: the same number for equal columns of (rows, columns)."""
    if len(columns) < MAX_BITS:
        powers = 1 << np.arange(len(columns), dtype=np.int64)
        return np.asarray(powers @ columns, dtype=np.int64)
    codes = np.unique(columns, axis=1, return_inverse=True)[1]
    return np.asarray(codes, dtype=np.int64).reshape(-1)


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


def divides_gpus(shape: Shape, snapshot: Snapshot, divisible: FindDivisible) -> Bools:
    """(nodes,) bool: where parts of GPUs can be claimed for ``shape``, were they free."""
    found = np.zeros(len(snapshot.nodes), dtype=np.bool_)
    request = shape.extended.share
    if request is None or request.part is None:
        return found
    for node, gpus in divisible(request.device_class).items():
        row = snapshot.nodes.positions.get(node)
        if row is not None:
            found[row] = bool(serving(gpus, request.part))
    return found


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


def as_written(text: str, shape: Shape) -> str:
    """``text`` with the containers and resources that a pod names, in place of the claim's own."""
    if UNNAMED_CLAIM not in text:
        return text
    for use in sorted(shape.extended.container_uses, key=lambda each: -len(each.request_name)):
        place = f"claim {UNNAMED_CLAIM}, request {use.request_name}"
        text = text.replace(place, f"container {use.container_name}, {use.resource_name}")
    return text.replace(f"claim {UNNAMED_CLAIM}", "the claim for its extended resources")


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
