"""Required pod affinity inside a gang: the order of its pods, and the domains to try for them.

A pod whose required affinity selects another pod of its gang is placed after that one. As long as
no selected pod is placed, the affinity acts like a topology constraint: all pods that it ties
together must share a domain, and the domains are tried like those of such a constraint, the
tightest that holds the pods first.

Pods that share a claim go where its devices can be accessed by all of them.

The first of these pods allocates the claim, and the others must be on the nodes of that allocation:
one node for devices of a node, many for devices of a fabric. So the devices that the first pod
would get are tried one after the other, those of nodes that hold all of these pods first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from kai_py.plan.placement.attempt import Attempt, NodeSet
from kai_py.plan.placement.pods import Parts, ShapePlacer
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.statement import Statement
from kai_py.policy.fit import replicas_that_fit
from kai_py.policy.pod_rules import selects_itself
from kai_py.policy.topology import DomainCandidate, candidate_domains
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.pod_selection import DomainTerm, Selection, rules_of, selects
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape

Part = Sequence[Member]
"""Pods of one shape."""

MAX_DOMAINS_TO_TRY = 32
"""Domains that are tried for pods that required affinity ties together."""


@dataclass(frozen=True, slots=True)
class AffinityGroup:
    """Pods that must share a domain of the node label ``topology_key``.

    ``parts``: the positions of their parts in the list of all parts.
    """

    topology_key: str
    parts: frozenset[int]

    def domains(
        self, statement: Statement, replicas: Sequence[Ints], counts: Sequence[int]
    ) -> Iterator[DomainCandidate]:
        """The domains that could hold the pods; arguments as of ``candidate_domains``."""
        levels = statement.snapshot.nodes.levels((self.topology_key,))
        return candidate_domains(levels, replicas, counts, required=0, preferred=None)


def dependents_last(
    statement: Statement, parts: Sequence[Part], capacity: Capacity
) -> Sequence[Part]:
    """The parts, those that require pods of another part after that one."""
    waiting = [part for part in parts if _unmet_affinity(statement, part[0].shape, capacity)]
    if all(selects_itself(part[0].shape, statement.snapshot.namespaces) for part in waiting):
        return parts
    done = [part for part in parts if part not in waiting]
    while waiting:
        ready = next((part for part in waiting if _may_start(statement, part, done)), waiting[0])
        waiting.remove(ready)
        done.append(ready)
    return done


def affinity_group(
    statement: Statement, parts: Sequence[Part], capacity: Capacity
) -> AffinityGroup | None:
    """The parts that must share a domain; None if the required affinity of all is satisfied."""
    unmet = {
        at: _unmet_affinity(statement, part[0].shape, capacity) for at, part in enumerate(parts)
    }
    first = next((at for at, selection in unmet.items() if selection), None)
    if first is None:
        return None
    nodes = statement.snapshot.nodes
    keys = rules_of(parts[first][0].shape).affinity_keys
    finest = max(keys, key=lambda key: len(nodes.label(key).values))
    together = {first, *_selected_parts(statement, unmet[first], parts)}
    for at, selection in unmet.items():
        selected = _selected_parts(statement, selection, parts)
        if finest in rules_of(parts[at][0].shape).affinity_keys and together & {at, *selected}:
            together |= {at, *selected}
    return AffinityGroup(finest, frozenset(together))


def affinity_domains(
    shapes: ShapePlacer, attempt: Attempt, parts: Sequence[Part], node_set: NodeSet
) -> Iterator[Sequence[NodeSet]]:
    """The node sets of all parts, for one domain of their affinity group after the other.

    The last are not in one domain.
    """
    statement, anywhere = attempt.statement, [node_set] * len(parts)
    tied = affinity_group(statement, parts, attempt.capacity)
    if tied is not None:
        inside = sorted(tied.parts)
        counts = [len(parts[at]) for at in inside]
        fitting = [
            shapes.max_replicas(attempt, shape, node_set.of(shape).mask, count)
            for shape, count in zip((parts[at][0].shape for at in inside), counts, strict=True)
        ]
        for candidate in islice(tied.domains(statement, fitting, counts), MAX_DOMAINS_TO_TRY):
            narrow = node_set._replace(mask=node_set.mask & candidate.mask)
            yield [narrow if at in tied.parts else node_set for at in range(len(parts))]
    yield anywhere


def _unmet_affinity(statement: Statement, shape: Shape, capacity: Capacity) -> Selection:
    """What the shape's required affinity selects while no such pod is placed; else empty.

    Pods that are terminating do not count for pods that wait for their capacity.
    """
    rules = rules_of(shape)
    if not rules.affinity:
        return ()
    counts = statement.pod_rules.selected(DomainTerm(rules.affinity, rules.affinity_keys[0]))
    placed = counts.later
    if capacity is Capacity.IDLE:
        placed = np.maximum(counts.now, counts.later)
    return () if (placed[1:] > 0).any() else rules.affinity


def _may_start(statement: Statement, part: Part, done: Sequence[Part]) -> bool:
    shape, namespaces = part[0].shape, statement.snapshot.namespaces
    if selects_itself(shape, namespaces):
        return True
    return bool(_selected_parts(statement, rules_of(shape).affinity, done))


def _selected_parts(statement: Statement, selection: Selection, parts: Sequence[Part]) -> list[int]:
    """The positions of the parts whose pods a selection selects."""
    if not selection:
        return []
    namespaces = statement.snapshot.namespaces
    return [
        at
        for at, part in enumerate(parts)
        if selects(selection, part[0].pod.namespace, part[0].labels, namespaces)
    ]


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
