"""Pods that share a claim go where its devices can be accessed by all of them.

The first of these pods allocates the claim, and the others must be on the nodes of that allocation:
one node for devices of a node, many for devices of a fabric. So the devices that the first pod
would get are tried one after the other, those of nodes that hold all of these pods first.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from kai_py.plan.placement.affinity import affinity_domains
from kai_py.plan.placement.attempt import Attempt, NodeSet
from kai_py.plan.placement.pods import Parts, ShapePlacer
from kai_py.policy.fit import replicas_that_fit
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import Bools, Ints

MAX_REACHES_TO_TRY = 32
"""Combinations of allocations of its shared claims in which a gang is tried."""

MAX_ALLOCATIONS = 256
"""Allocations that are made, one claim at a time, to find these combinations."""

NodeSets = Sequence[NodeSet]
"""By part of a gang."""


def share_claims(parts: Parts) -> bool:
    """Whether several of the pods share a claim that is yet to be allocated."""
    return bool(_claims_of_several(parts))


def _claims_of_several(parts: Parts) -> frozenset[str]:
    """The uids of the claims, yet to be allocated, that more than one of the pods has."""
    users: Counter[str] = Counter()
    for part in parts:
        for uid in _unallocated(part):
            users[uid] += len(part)
    return frozenset(uid for uid, count in users.items() if count > 1)


def choices_for_parts(
    shapes: ShapePlacer, attempt: Attempt, parts: Parts, node_set: NodeSet
) -> Iterator[NodeSets]:
    """Where pods with rules between them, or with claims that they share, may be together.

    The last choice is anywhere in ``node_set``.
    """
    shared = _claims_of_several(parts)
    claims = [_unallocated(part) & shared for part in parts]
    query = _Query(shapes, attempt, parts, claims, iter(range(MAX_ALLOCATIONS)))
    for node_sets in affinity_domains(shapes, attempt, parts, node_set):
        if shared:
            yield from islice(_choices(query, node_sets, 0), MAX_REACHES_TO_TRY)
        yield node_sets


class _Query(NamedTuple):
    """The arguments that stay the same while choices are made."""

    shapes: ShapePlacer
    attempt: Attempt
    parts: Parts
    claims: Sequence[frozenset[str]]
    """By part, the uids of the claims to allocate that other pods of the gang have, too."""
    allocations: Iterator[int]
    """It ends once enough of them were made."""


def _choices(query: _Query, node_sets: NodeSets, at: int) -> Iterator[NodeSets]:
    """For one allocation after the other of the claims of the parts from position ``at`` on."""
    while at < len(query.parts) and not query.claims[at]:
        at += 1
    if at == len(query.parts):
        yield node_sets
        return
    for narrow in _allocations(query, node_sets, at):
        yield from _choices(query, narrow, at + 1)


def _allocations(query: _Query, node_sets: NodeSets, at: int) -> Iterator[NodeSets]:
    """For one allocation after the other that the first pod of part ``at`` would get."""
    parts = query.parts
    fitting = [
        _resource_replicas(query.attempt, part, each)
        for part, each in zip(parts, node_sets, strict=True)
    ]
    together = [fits >= len(part) for part, fits in zip(parts, fitting, strict=True)]
    sharing = [bool(query.claims[at] & claims) for claims in query.claims]
    holds_all = np.all([fits for fits, shares in zip(together, sharing, strict=True) if shares], 0)
    left = node_sets[at].of(parts[at][0].shape).mask
    for first in (holds_all, True):
        for _ in range(MAX_REACHES_TO_TRY):
            reaches = _reaches(query, node_sets[at], at, left & first)
            if not reaches:
                break
            left = left & ~reaches[at]
            if all(
                fits[reach].sum() >= len(part)
                for part, fits, reach in zip(parts, fitting, reaches, strict=True)
            ):
                yield [
                    each._replace(mask=each.mask & reach)
                    for each, reach in zip(node_sets, reaches, strict=True)
                ]


def _reaches(query: _Query, node_set: NodeSet, at: int, mask: Bools) -> list[Bools]:
    """(nodes,) by part, where its pods may go once the first of part ``at`` is in ``mask``.

    Empty if that pod fits nowhere, or too many allocations were made.
    """
    shapes, attempt, parts, _, allocations = query
    if not mask.any() or next(allocations, None) is None:
        return []
    inside = node_set._replace(mask=node_set.mask & mask)
    with attempt.statement.trial():
        if shapes.place(attempt._replace(explain=False), parts[at][:1], inside) is not None:
            return []
        devices, everywhere = attempt.statement.devices, np.ones_like(mask)
        return [devices.reachable(part[0].shape, everywhere) for part in parts]


def _resource_replicas(attempt: Attempt, part: Sequence[Member], node_set: NodeSet) -> Ints:
    """(nodes,) how many pods of a part fit by resources alone."""
    statement, shape = attempt.statement, part[0].shape
    resources, allocatable = statement.snapshot.resources, statement.snapshot.nodes.allocatable
    free, mask = statement.free(attempt.capacity), node_set.of(shape).mask
    return replicas_that_fit(shape, resources, free, mask, allocatable)


def _unallocated(part: Sequence[Member]) -> frozenset[str]:
    """The uids of the shared claims of a part that are yet to be allocated."""
    return frozenset(claim.metadata.uid for claim in part[0].shape.shared_claims)
