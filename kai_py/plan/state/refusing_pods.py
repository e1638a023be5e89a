"""Pods that refuse others by required anti-affinity, per topology domain, as a statement has them.

The terms that select a pod are those of the bases that it matches, in its namespace, but those that
exclude its labels. The owners of all terms of a base are counted together, and those of terms that
exclude a shape are subtracted: thousands of terms that select nearly every pod cost no more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass(eq=False, slots=True)
class _Term:
    """A term and everything that counts its owners.

    ``on_nodes``: whether any was on a node when the cycle began. ``groups``: those that count its
    owners with others; ``deciding``: the decisions about owners; ``owners``: these alone, once they
    were asked for.
    """

    term: DomainTerm
    on_nodes: bool
    groups: list[_Refusals]
    deciding: dict[DecisionKey, None] = field(default_factory=dict)
    owners: DomainCounts | None = None

    @property
    def is_owned(self) -> bool:
        """Whether any pod that owns it was on a node when the cycle began, or is placed."""
        return self.on_nodes or bool(self.deciding)


class _Refusers(NamedTuple):
    """What refuses a shape: ``groups`` of terms, without those of them that exclude its labels."""

    groups: tuple[_Refusals, ...] = ()
    excluding: tuple[_Term, ...] = ()


class RefusingPods:
    """Counts the owners of terms for shapes that were asked for, and keeps the counts up to date.

    A term that pods of the statement own is one of the snapshot's, as these pods wait in it.
    """

    def __init__(self, snapshot: Snapshot, decisions: Mapping[DecisionKey, PodDecision]) -> None:
        """``decisions``: those of the statement; every change comes by ``count``."""
        self._nodes, self._namespaces = snapshot.nodes, snapshot.namespaces
        self._index, self._decisions = snapshot.pod_rules, decisions
        self._groups: dict[Base, dict[str, _Refusals]] = {}
        self._terms: dict[DomainTerm, _Term] = {}
        self._terms_of: dict[Shape, tuple[_Term, ...]] = {}
        """The terms that pods of a shape own: comparing terms takes longer than counting."""
        self._refusers: dict[Shape, _Refusers] = {}

    def select(self, shape: Shape) -> bool:
        """Whether any term that a pod owns selects pods of the shape."""
        groups, excluding = self._refusers_of(shape)
        owned = sum(group.owned for group in groups)
        return bool(owned) and owned > sum(each.is_owned for each in excluding)

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
        for each in excluding:
            less.setdefault(each.term.topology_key, []).append(self._owners_of(each))
        return [_difference(counts, less.get(key, ())) for key, counts in found.items()]

    def count(self, decision: PodDecision, sign: int) -> None:
        """A decision was made, or undone; it is among the decisions, or no longer."""
        shape = decision.member.shape
        terms = self._terms_of.get(shape)
        if terms is None:
            distinct = dict.fromkeys(rules_of(shape).anti_affinity)
            terms = self._terms_of[shape] = tuple(map(self._known, distinct))
        for each in terms:
            was_owned = each.is_owned
            if sign > 0:
                each.deciding[decision_key(decision)] = None
            else:
                each.deciding.pop(decision_key(decision), None)
            row, now, later = decision.row, sign * decision.now, sign * decision.later
            for group in each.groups:
                group.owned += each.is_owned - was_owned
                group.by_key[each.term.topology_key].add(row, now, later)
            if each.owners is not None:
                each.owners.add(row, now, later)

    def _known(self, term: DomainTerm) -> _Term:
        known = self._terms.get(term)
        if known is None:
            base = self._index.terms.parts.get(term, NOTHING).base
            by_namespace = {} if base is None else self._groups.get(base, {})
            groups = [
                group
                for namespace, group in by_namespace.items()
                if covers(term.selection, namespace, self._namespaces)
            ]
            on_nodes = bool(self._index.refusing.get(term, NO_POD).all)
            known = self._terms[term] = _Term(term, on_nodes, groups)
        return known

    def _refusers_of(self, shape: Shape) -> _Refusers:
        known = self._refusers.get(shape)
        if known is None:
            terms = self._index.terms
            bases = terms.bases(shape.labels)
            groups = (self._refusals(base, shape.namespace) for base in bases)
            excluding = (
                self._known(term)
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
            covering = self._index.terms.covering(base, namespace, self._namespaces)
            terms = [self._known(term) for term, _ in covering]
            group = by_namespace[namespace] = _Refusals()
            for each in terms:
                each.groups.append(group)
                group.owned += each.is_owned
                key = each.term.topology_key
                if key not in group.by_key:
                    group.by_key[key] = domain_counts(self._nodes, key, ())
                self._add_owners(group.by_key[key], each)
        return group

    def _owners_of(self, each: _Term) -> DomainCounts:
        if each.owners is None:
            each.owners = domain_counts(self._nodes, each.term.topology_key, ())
            self._add_owners(each.owners, each)
        return each.owners

    def _add_owners(self, counts: DomainCounts, each: _Term) -> None:
        on_nodes = self._index.refusing.get(each.term, NO_POD)
        add_pods(counts, self._nodes.positions, on_nodes, counts_stuck=True)
        for key in each.deciding:
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
