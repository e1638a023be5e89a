"""Pods that refuse others by required anti-affinity, per topology domain, as a statement has them.

The terms that select a pod are those of the bases that it matches, in its namespace, but those that
exclude its labels. The owners of all terms of a base are counted together, and those of terms that
exclude a shape are subtracted: thousands of terms that select nearly every pod cost no more.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kai_py.plan.state.pod_decisions import (
    NO_POD,
    DecisionKey,
    PodDecision,
    add_pods,
    decision_key,
    domain_counts,
)
from kai_py.policy.pod_rules import DomainCounts
from kai_py.snapshot.pod_selection import DomainTerm, covers, rules_of
from kai_py.snapshot.selection_index import NOTHING, Base
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot


class _Refusals:
    """The terms of one base that cover a namespace.

    ``owned``: how many of them any pod owns. ``by_key``: the owners of all, by topology key.
    """

    def __init__(self) -> None:
        self.owned = 0
        self.by_key: dict[str, DomainCounts] = {}


class _Refusers(NamedTuple):
    """What refuses a shape: ``groups`` of terms, without those of them that exclude its labels."""

    groups: tuple[_Refusals, ...] = ()
    excluding: tuple[DomainTerm, ...] = ()


class RefusingPods:
    """Counts the owners of terms for shapes that were asked for, and keeps the counts up to date.

    A term that pods of the statement own is one of the snapshot's, as these pods wait in it.
    """

    def __init__(self, snapshot: Snapshot, decisions: Mapping[DecisionKey, PodDecision]) -> None:
        """``decisions``: those of the statement; every change comes by ``count``."""
        self._nodes, self._namespaces = snapshot.nodes, snapshot.namespaces
        self._index, self._decisions = snapshot.pod_rules, decisions
        self._deciding: dict[DomainTerm, dict[DecisionKey, None]] = {}
        self._groups: dict[Base, dict[str, _Refusals]] = {}
        self._counting: dict[DomainTerm, Sequence[_Refusals]] = {}
        self._owners: dict[DomainTerm, DomainCounts] = {}
        self._refusers: dict[Shape, _Refusers] = {}

    def select(self, shape: Shape) -> bool:
        """Whether any term that a pod owns selects pods of the shape."""
        groups, excluding = self._refusers_of(shape)
        owned = sum(group.owned for group in groups)
        return bool(owned) and owned > sum(map(self._is_owned, excluding))

    def of(self, shape: Shape) -> Sequence[DomainCounts]:
        """The pods whose required anti-affinity selects pods of the shape, per topology key."""
        if not self.select(shape):
            return ()
        groups, excluding = self._refusers_of(shape)
        found: dict[str, list[DomainCounts]] = {}
        for group in groups:
            for key, counts in group.by_key.items():
                found.setdefault(key, []).append(counts)
        less: dict[str, list[DomainCounts]] = {}
        for term in excluding:
            less.setdefault(term.topology_key, []).append(self._owners_of(term))
        return [_difference(counts, less.get(key, ())) for key, counts in found.items()]

    def count(self, decision: PodDecision, sign: int) -> None:
        """A decision was made, or undone; it is among the decisions, or no longer."""
        for term in dict.fromkeys(rules_of(decision.member.shape).anti_affinity):
            deciding, was_owned = self._deciding.setdefault(term, {}), self._is_owned(term)
            if sign > 0:
                deciding[decision_key(decision)] = None
            else:
                deciding.pop(decision_key(decision), None)
            row, now, later = decision.row, sign * decision.now, sign * decision.later
            for group in self._groups_of(term):
                group.owned += self._is_owned(term) - was_owned
                group.by_key[term.topology_key].add(row, now, later)
            if term in self._owners:
                self._owners[term].add(row, now, later)

    def _is_owned(self, term: DomainTerm) -> bool:
        """Whether any pod that owns the term was on a node when the cycle began, or is placed."""
        return bool(self._index.refusing.get(term, NO_POD).all or self._deciding.get(term))

    def _refusers_of(self, shape: Shape) -> _Refusers:
        known = self._refusers.get(shape)
        if known is None:
            terms = self._index.terms
            bases = terms.bases(shape.labels)
            groups = (self._refusals(base, shape.namespace) for base in bases)
            excluding = (
                term
                for term in terms.excluding(shape.labels)
                if terms.parts[term].base in bases
                and covers(term.selection, shape.namespace, self._namespaces)
            )
            known = self._refusers[shape] = _Refusers(
                tuple(group for group in groups if group.by_key), tuple(excluding)
            )
        return known

    def _refusals(self, base: Base, namespace: str) -> _Refusals:
        by_namespace = self._groups.setdefault(base, {})
        group = by_namespace.get(namespace)
        if group is None:
            group = by_namespace[namespace] = _Refusals()
            self._counting.clear()
            for term, _ in self._index.terms.covering(base, namespace, self._namespaces):
                group.owned += self._is_owned(term)
                counts = group.by_key.get(term.topology_key)
                if counts is None:
                    counts = domain_counts(self._nodes, term.topology_key, ())
                    group.by_key[term.topology_key] = counts
                self._add_owners(counts, term)
        return group

    def _groups_of(self, term: DomainTerm) -> Sequence[_Refusals]:
        """The groups that count the owners of a term."""
        known = self._counting.get(term)
        if known is None:
            parts = self._index.terms.parts.get(term, NOTHING)
            by_namespace = {} if parts.base is None else self._groups.get(parts.base, {})
            known = self._counting[term] = [
                group
                for namespace, group in by_namespace.items()
                if covers(term.selection, namespace, self._namespaces)
            ]
        return known

    def _owners_of(self, term: DomainTerm) -> DomainCounts:
        counts = self._owners.get(term)
        if counts is None:
            counts = self._owners[term] = domain_counts(self._nodes, term.topology_key, ())
            self._add_owners(counts, term)
        return counts

    def _add_owners(self, counts: DomainCounts, term: DomainTerm) -> None:
        on_nodes = self._index.refusing.get(term, NO_POD)
        add_pods(counts, self._nodes.positions, on_nodes, counts_stuck=True)
        for key in self._deciding.get(term, ()):
            decision = self._decisions[key]
            counts.add(decision.row, decision.now, decision.later)


def _difference(counts: Sequence[DomainCounts], excluded: Sequence[DomainCounts]) -> DomainCounts:
    """The sum of ``counts`` without ``excluded``; all by one topology key."""
    first = counts[0]
    if len(counts) == 1 and not excluded:
        return first
    now, later = first.now.copy(), first.later.copy()
    for each in counts[1:]:
        now += each.now
        later += each.later
    for each in excluded:
        now -= each.now
        later -= each.later
    return DomainCounts(first.codes, now, later)
