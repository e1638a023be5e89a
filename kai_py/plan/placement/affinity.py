"""Required pod affinity inside a gang: the order of its pods, and the domains to try for them.

A pod whose required affinity selects another pod of its gang is placed after that one. As long as
no selected pod is placed, the affinity acts like a topology constraint: all pods that it ties
together must share a domain, and the domains are tried like those of such a constraint, the
tightest that holds the pods first.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from msgspec import Struct

from kai_py.plan.placement.attempt import Attempt, NodeSet
from kai_py.plan.placement.pods import ShapePlacer
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.statement import Statement
from kai_py.policy.pod_rules import selects_itself
from kai_py.policy.topology import DomainCandidate, candidate_domains
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.pod_selection import DomainTerm, Selection, rules_of, selects
from kai_py.snapshot.resources import Ints
from kai_py.snapshot.shape import Shape

Part = Sequence[Member]
"""Pods of one shape."""

MAX_DOMAINS_TO_TRY = 32
"""Domains that are tried for pods that required affinity ties together."""


class AffinityGroup(Struct, frozen=True):
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
    """The parts in an order in which each comes after those whose pods it requires."""
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
