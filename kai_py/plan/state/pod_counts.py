"""Counts of pods per topology domain, as a statement has them, for rules between pods.

The pods that a selection selects are counted. Selections with the same base are counted once for
the namespaces that they cover; from those that also exclude labels, the pods of the base with these
labels are subtracted.

The pods that refuse others by required anti-affinity are counted as well. The terms that select a
pod are those of the bases that it matches, in its namespace, without those that exclude its labels.
The owners of all terms of a base are counted together, and those of terms that exclude a shape are
subtracted: thousands of terms that select nearly every pod cost no more.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from msgspec import Struct, field

from kai_py.plan.state.pod_decisions import (
    NO_POD,
    DecisionKey,
    PodDecision,
    add_pods,
    decision_key,
    domain_counts,
)
from kai_py.policy.pod_rules import DomainCounts
from kai_py.snapshot.pod_selection import DomainTerm, Labels, Selection, covers, rules_of
from kai_py.snapshot.resources import Bools
from kai_py.snapshot.selection_index import (
    NOTHING,
    Base,
    LabelPostings,
    SelectionIndex,
    matches_base,
)
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot

Namespaces = frozenset[str]
NO_LABELS: Labels = {}
CountedOn = tuple[str, bytes]
"""The label by which pods are counted, and the nodes: all of them if that is empty."""


class SelectedPods:
    """Counts the pods of selections that were asked for, and keeps the counts up to date."""

    def __init__(self, snapshot: Snapshot, decisions: Mapping[DecisionKey, PodDecision]) -> None:
        """``decisions``: those of the statement; every change comes by ``count``."""
        self._snapshot, self._decisions = snapshot, decisions
        self._nodes, self._index = snapshot.nodes, snapshot.pod_rules
        self.postings = LabelPostings(decisions)
        self._asked = SelectionIndex[Selection]()
        self._covered: dict[Selection, Namespaces] = {}
        self._totals: dict[Base, dict[tuple[Namespaces, CountedOn], DomainCounts]] = {}
        self._excluded: dict[Selection, dict[CountedOn, DomainCounts]] = {}

    @cached_property
    def _namespaces(self) -> dict[str, Labels]:
        """The labels of all namespaces, also of those that only pods name."""
        named = (name for pods in self._index.selected.values() for name in pods)
        return {**dict.fromkeys(named, NO_LABELS), **self._snapshot.namespaces}

    def of(self, term: DomainTerm, counted: Bools | None = None) -> DomainCounts:
        """The pods that ``term`` selects; on the nodes ``counted`` (nodes,) if that is given."""
        selection, topology_key = term.selection, term.topology_key
        parts = self._asked.parts.get(selection) or self._asked.add(selection, selection)
        if parts.base is None:
            return domain_counts(self._nodes, topology_key, ())
        on = topology_key, b"" if counted is None else counted.tobytes()
        total = self._total(selection, parts.base, on, counted)
        if not parts.excluded:
            return total
        less = self._less(selection, on, counted)
        return DomainCounts(total.codes, total.now - less.now, total.later - less.later)

    def count(self, decision: PodDecision, sign: int) -> None:
        """A decision was made, or undone."""
        if not self._totals:
            return
        namespace = decision.namespace
        if namespace not in self._namespaces:
            # It has no object yet and no pod that counts, so whether it is covered is not known.
            self._namespaces[namespace] = NO_LABELS
            self._covered.clear()
            self._totals.clear()
            self._excluded.clear()
            return
        row, now, later = decision.row, sign * decision.now, sign * decision.later
        bases = self._asked.bases(decision.labels)
        for base in bases:
            for (covered, _), counts in self._totals.get(base, {}).items():
                if namespace in covered:
                    counts.add(row, now, later)
        for selection in self._asked.excluding(decision.labels) if bases else ():
            if self._asked.parts[selection].base in bases:
                kept = self._excluded.get(selection)
                if kept and namespace in self._covers(selection):
                    for counts in kept.values():
                        counts.add(row, now, later)

    def _total(
        self, selection: Selection, base: Base, on: CountedOn, counted: Bools | None
    ) -> DomainCounts:
        """The pods that have what the selection requires, in the namespaces that it covers."""
        covered = self._covers(selection)
        kept = self._totals.setdefault(base, {})
        found = kept.get((covered, on))
        if found is None:
            pods = (
                each
                for scope in self._asked.parts[selection].scopes
                for name, each in self._index.selected.get((base, scope), {}).items()
                if name in covered
            )
            matching = (self._decisions[key] for key in self.postings.matching(base))
            decided = (each for each in matching if each.namespace in covered)
            found = domain_counts(self._nodes, on[0], pods, decided, counted)
            kept[covered, on] = found
        return found

    def _less(self, selection: Selection, on: CountedOn, counted: Bools | None) -> DomainCounts:
        """Those of the total that the selection excludes."""
        kept = self._excluded.setdefault(selection, {})
        found = kept.get(on)
        if found is None:
            base, excluded, _ = self._asked.parts[selection]
            covered = self._covers(selection)
            by_namespace = self._index.excluded.get(selection, {})
            pods = (each for name, each in by_namespace.items() if name in covered)
            having = (self._decisions[key] for key in self.postings.having(excluded))
            decided = (
                each
                for each in having
                if each.namespace in covered and matches_base(base or (), each.labels)
            )
            found = kept[on] = domain_counts(self._nodes, on[0], pods, decided, counted)
        return found

    def _covers(self, selection: Selection) -> Namespaces:
        """The namespaces of which the selection selects pods."""
        known = self._covered.get(selection)
        if known is None:
            scopes = self._asked.parts[selection].scopes
            if len(selection) == 1 and "" not in scopes:
                known = frozenset(scopes)
            else:
                known = frozenset(
                    name for name in self._namespaces if covers(selection, name, self._namespaces)
                )
            self._covered[selection] = known
        return known


class _Refusals:
    """The terms of one base that cover a namespace.

    ``owned``: how many of them any pod owns. ``by_key``: the owners of all, by topology key.
    """

    def __init__(self) -> None:
        self.owned = 0
        self.by_key: dict[str, DomainCounts] = {}


class _Term(Struct, eq=False):
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
