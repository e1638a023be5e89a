"""Pods that share a claim go where its devices can be accessed by all of them.

The first of these pods allocates the claim, and the others must be on the nodes of that allocation:
one node for devices of a node, many for devices of a fabric. So the devices that the first pod
would get are tried one after the other, those of nodes that hold all of these pods first.
"""

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
    return sum(len(part) for part in parts if part[0].shape.shares_claims) > 1


def choices_for_parts(
    shapes: ShapePlacer, attempt: Attempt, parts: Parts, node_set: NodeSet
) -> Iterator[NodeSets]:
    """Where pods with rules between them, or with claims that they share, may be together.

    The last choice is anywhere in ``node_set``.
    """
    query = _Query(shapes, attempt, parts, iter(range(MAX_ALLOCATIONS)))
    for node_sets in affinity_domains(shapes, attempt, parts, node_set):
        if share_claims(parts):
            yield from islice(_choices(query, node_sets, 0), MAX_REACHES_TO_TRY)
        yield node_sets


class _Query(NamedTuple):
    """The arguments that stay the same while choices are made.

    ``allocations`` ends once enough of them were made.
    """

    shapes: ShapePlacer
    attempt: Attempt
    parts: Parts
    allocations: Iterator[int]


def _choices(query: _Query, node_sets: NodeSets, at: int) -> Iterator[NodeSets]:
    """For one allocation after the other of the claims of the parts from position ``at`` on."""
    parts = query.parts
    while at < len(parts) and not parts[at][0].shape.shares_claims:
        at += 1
    if at == len(parts):
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
    claims = _unallocated(parts[at])
    holds_all = np.all(
        [fits for part, fits in zip(parts, together, strict=True) if claims & _unallocated(part)],
        axis=0,
    )
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
    shapes, attempt, parts, allocations = query
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
