"""Pods that rules count, per topology domain, as a statement has them.

Only this module says whether any pod rule concerns a shape now. When a rule is needed first, its
counts are made from the index of the snapshot and the decisions of the statement so far; from then
on every placement and eviction changes the counts that it concerns, and its undo changes them back.
As long as no rule concerns any of the shapes, nothing is counted.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from kai_py.plan.state.assignment import Assignment, Evicted
from kai_py.plan.state.capacity import Capacity
from kai_py.policy.pod_rules import DomainCounts, PodRules
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.pod_selection import (
    DomainTerm,
    LabelPostings,
    Labels,
    Selection,
    SelectionIndex,
    rules_of,
    selects,
)
from kai_py.snapshot.resources import Bools
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.pod_rules import PodCounts

CountsKey = tuple[Selection, str, bytes]
"""What is counted, by which label, and on which nodes: on all where that is empty."""

NO_POD = PodCounts({}, {}, {})


class PodDecision(NamedTuple):
    """A pod that the statement has placed or evicted: what that adds to its node now and later."""

    member: Member
    row: int
    now: int
    later: int

    @property
    def labels(self) -> Labels:
        """The labels of the pod."""
        return self.member.labels


def placed_pod(member: Member, row: int, capacity: Capacity) -> PodDecision:
    """The decision that the pod starts on the node, now or once its capacity is idle."""
    return PodDecision(member, row, 1 if capacity is Capacity.IDLE else 0, 1)


def evicted_pod(member: Member, row: int) -> PodDecision:
    """The decision that the pod leaves its node."""
    return PodDecision(member, row, 0, -1)


def decided_pods(
    positions: Mapping[str, int],
    placed: Mapping[str, Assignment],
    evicted: Mapping[str, Evicted],
) -> Iterator[PodDecision]:
    """What was decided so far, for rules between pods; ``positions``: of nodes."""
    for each in placed.values():
        yield placed_pod(each.member, each.row, each.capacity)
    for victim in evicted.values():
        row = positions.get(victim.member.node)
        if row is not None:
            yield evicted_pod(victim.member, row)


DecisionKey = tuple[str, bool]
"""The uid of a pod, and whether it was placed."""


class PodRuleCounts:
    """Counts for rules between pods; a ``CountedPods``."""

    def __init__(self, snapshot: Snapshot, decided: Callable[[], Iterable[PodDecision]]) -> None:
        """``decided``: the decisions of the statement so far."""
        self._nodes, self._namespaces = snapshot.nodes, snapshot.namespaces
        self._index = snapshot.pod_rules
        self._decided = decided
        self._decisions: dict[DecisionKey, PodDecision] = {}
        self._postings = LabelPostings(self._decisions)
        self._placed_refusing: dict[DomainTerm, dict[DecisionKey, None]] = {}
        self._selected: dict[Selection, dict[CountsKey, DomainCounts]] = {}
        self._selections = SelectionIndex[Selection]()
        self._refusing: dict[DomainTerm, DomainCounts] = {}
        self._terms: dict[Shape, tuple[DomainTerm, ...]] = {}
        self._placed_terms = SelectionIndex[DomainTerm]()
        """Those of ``_placed_refusing`` with an owner, which no pod on a node owns."""
        self.is_counting = False
        """Whether there are counts that decisions have to keep up to date."""

    def concern(self, shape: Shape) -> bool:
        """Whether a rule of the shape, or of other pods, restricts where its pods may go."""
        if shape.affinity is None and not (
            shape.topology_spread or shape.namespace or shape.labels
        ):
            # Most shapes: no rules of their own, and no labels by which others select them.
            return False
        return bool(rules_of(shape)) or bool(self._terms_selecting(shape))

    def rules(self, capacity: Capacity) -> PodRules:
        """The rules for pods that start now, or that wait for terminating pods."""
        return PodRules(self._nodes, self._namespaces, self, capacity is Capacity.IDLE)

    def selected(self, term: DomainTerm, counted: Bools | None = None) -> DomainCounts:
        """The pods that ``term`` selects; on the nodes ``counted`` (nodes,) if that is given."""
        self._start_counting()
        selection = term.selection
        kept = self._selected.get(selection)
        if kept is None:
            kept = self._selected[selection] = {}
            self._selections.add(selection, selection)
        key = selection, term.topology_key, b"" if counted is None else counted.tobytes()
        counts = kept.get(key)
        if counts is None:
            counts = kept[key] = self._domain_counts(
                term.topology_key, self._index.selected[selection], counted
            )
            for at in self._postings.candidates(selection):
                member, row, now, later = self._decisions[at]
                if selects(selection, member.pod.namespace, member.labels, self._namespaces):
                    counts.add(row, now, later)
        return counts

    def refusing(self, shape: Shape) -> Sequence[DomainCounts]:
        """The pods whose required anti-affinity selects pods of the shape, per term."""
        return [self._owners(term) for term in self._terms_selecting(shape)]

    def add(self, decision: PodDecision) -> None:
        """Count a decision of the statement."""
        key = _key(decision)
        self._decisions[key] = decision
        self._postings.add(key, decision.labels)
        for term in rules_of(decision.member.shape).anti_affinity:
            owners = self._placed_refusing.setdefault(term, {})
            if not (owners or self._index.refusing.get(term, NO_POD).all):
                self._placed_terms.add(term, term.selection)
            owners[key] = None
        self._count(decision, 1)

    def undo(self, uid: str, *, placed: bool) -> None:
        """The decision about a pod was undone; pods of nodes that are gone were not counted."""
        key = uid, placed
        decision = self._decisions.pop(key, None)
        if decision is None:
            return
        self._postings.discard(key, decision.labels)
        for term in rules_of(decision.member.shape).anti_affinity:
            owners = self._placed_refusing[term]
            owners.pop(key, None)
            if not owners:
                self._placed_terms.discard(term, term.selection)
        self._count(decision, -1)

    def _start_counting(self) -> None:
        if not self.is_counting:
            self.is_counting = True
            for decision in self._decided():
                self.add(decision)

    def _count(self, decision: PodDecision, sign: int) -> None:
        row, now, later = decision.row, sign * decision.now, sign * decision.later
        if self._selected:
            for selection in self._selections.selecting(
                decision.member.pod.namespace, decision.labels, self._namespaces
            ):
                for counts in self._selected[selection].values():
                    counts.add(row, now, later)
        for term in dict.fromkeys(rules_of(decision.member.shape).anti_affinity):
            if term in self._refusing:
                self._refusing[term].add(row, now, later)

    def _terms_selecting(self, shape: Shape) -> tuple[DomainTerm, ...]:
        """Terms of required anti-affinity, of pods on nodes or placed, that select the shape's."""
        if not (shape.namespace or shape.labels) or not self._index.refusing:
            return ()
        self._start_counting()
        known = self._terms.get(shape)
        if known is None:
            found = self._index.terms.selecting(shape.namespace, shape.labels, self._namespaces)
            known = self._terms[shape] = tuple(found)
        placed = self._placed_terms.selecting(shape.namespace, shape.labels, self._namespaces)
        return (*known, *placed) if placed else known

    def _owners(self, term: DomainTerm) -> DomainCounts:
        counts = self._refusing.get(term)
        if counts is None:
            on_nodes = self._index.refusing.get(term, NO_POD)
            counts = self._refusing[term] = self._domain_counts(term.topology_key, on_nodes, None)
            for at in self._placed_refusing.get(term, ()):
                _, row, now, later = self._decisions[at]
                counts.add(row, now, later)
        return counts

    def _domain_counts(
        self, topology_key: str, pods: PodCounts, counted: Bools | None
    ) -> DomainCounts:
        column = self._nodes.label(topology_key)
        codes = column.codes if counted is None else np.where(counted, column.codes, 0)
        now = np.zeros(len(column.values), dtype=np.int64)
        counts = DomainCounts(codes, now, now.copy())
        positions = self._nodes.positions
        for node, count in pods.all.items():
            row = positions.get(node)
            if row is not None:
                # Only the pods for topology spread are counted on some nodes: there, as in
                # kube-scheduler, no pod counts that terminates.
                stays = pods.stuck.get(node, 0) if counted is None else 0
                counts.add(row, count, count - pods.terminating.get(node, 0) + stays)
        return counts


def _key(decision: PodDecision) -> DecisionKey:
    return decision.member.pod.uid, decision.later > 0
