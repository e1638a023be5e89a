"""Pods that rules count, per topology domain, as a statement has them.

This is the one place that says whether any rule between pods concerns a shape now. Counts start
from the index of the snapshot when a rule is first asked for, and from then on every placement and
eviction changes those that it concerns, and its undo changes them back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.undo import Undo
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
"""What is counted, by which label, on which nodes; all of them where that is empty."""

NO_POD = PodCounts({}, {})


@dataclass(frozen=True, slots=True)
class PodCountChange:
    """A pod placed or evicted: how it changes the counts of now and later on its node."""

    namespace: str
    labels: Labels
    row: int
    now: int
    later: int
    refused: tuple[DomainTerm, ...]


class PodRuleCounts:
    """Counts for rules between pods; a ``CountedPods``."""

    def __init__(self, snapshot: Snapshot) -> None:
        """As the snapshot has the pods."""
        self._nodes, self._namespaces = snapshot.nodes, snapshot.namespaces
        self._index = snapshot.pod_rules
        self._changes: dict[int, PodCountChange] = {}
        self._next_change = 0
        self._postings = LabelPostings(self._changes)
        self._placed_refusing: dict[DomainTerm, dict[int, None]] = {}
        self._selected: dict[Selection, dict[CountsKey, DomainCounts]] = {}
        self._selections = SelectionIndex[Selection]()
        self._refusing: dict[DomainTerm, DomainCounts] = {}
        self._terms: dict[Shape, tuple[DomainTerm, ...]] = {}

    def concern(self, shape: Shape) -> bool:
        """Whether any rule, of the shape or of pods that are placed, decides where its pods go."""
        return bool(rules_of(shape)) or any(map(self._has_owner, self._terms_selecting(shape)))

    def rules(self, capacity: Capacity) -> PodRules:
        """The rules for pods that start now, or that wait for terminating pods."""
        return PodRules(self._nodes, self._namespaces, self, capacity is Capacity.IDLE)

    def selected(self, term: DomainTerm, counted: Bools | None = None) -> DomainCounts:
        """The pods that ``term`` selects; on the nodes ``counted`` (nodes,) if that is given."""
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
                change = self._changes[at]
                if selects(selection, change.namespace, change.labels, self._namespaces):
                    counts.add(change.row, change.now, change.later)
        return counts

    def refusing(self, shape: Shape) -> Sequence[DomainCounts]:
        """The pods whose required anti-affinity selects pods of the shape, per term."""
        terms = self._terms_selecting(shape)
        return [self._owners(term) for term in terms if self._has_owner(term)]

    def place(self, members: Sequence[Member], rows: Sequence[int], capacity: Capacity) -> Undo:
        """Count pods as placed, each on its row; returns what undoes that."""
        now = 1 if capacity is Capacity.IDLE else 0
        return self._apply(
            [self._change(m, row, now, 1) for m, row in zip(members, rows, strict=True)]
        )

    def evict(self, member: Member, row: int) -> Undo:
        """Count a pod on a node as evicted; returns what undoes that."""
        return self._apply([self._change(member, row, 0, -1)])

    @property
    def matter(self) -> bool:
        """Whether there are any rules, so that placements have to be counted."""
        return bool(self._index)

    def _change(self, member: Member, row: int, now: int, later: int) -> PodCountChange:
        refused = tuple(dict.fromkeys(rules_of(member.shape).anti_affinity))
        return PodCountChange(member.pod.namespace, member.labels, row, now, later, refused)

    def _apply(self, changes: Sequence[PodCountChange]) -> Undo:
        first = self._next_change
        self._next_change += len(changes)
        for at, change in enumerate(changes, first):
            self._changes[at] = change
            self._postings.add(at, change.labels)
            for term in change.refused:
                self._placed_refusing.setdefault(term, {})[at] = None
            self._count(change, 1)
        return self._undo(first, len(changes))

    def _undo(self, first: int, count: int) -> Callable[[], None]:
        def undo() -> None:
            for at in range(first + count - 1, first - 1, -1):
                change = self._changes.pop(at)
                self._postings.discard(at, change.labels)
                for term in change.refused:
                    del self._placed_refusing[term][at]
                self._count(change, -1)

        return undo

    def _count(self, change: PodCountChange, sign: int) -> None:
        now, later = sign * change.now, sign * change.later
        if self._selected:
            for selection in self._selections.selecting(
                change.namespace, change.labels, self._namespaces
            ):
                for counts in self._selected[selection].values():
                    counts.add(change.row, now, later)
        for term in change.refused:
            if term in self._refusing:
                self._refusing[term].add(change.row, now, later)

    def _terms_selecting(self, shape: Shape) -> tuple[DomainTerm, ...]:
        """Terms of required anti-affinity that select pods of the shape, whoever owns them."""
        if not (shape.namespace or shape.labels) or not self._index.refusing:
            return ()
        known = self._terms.get(shape)
        if known is None:
            found = self._index.terms.selecting(shape.namespace, shape.labels, self._namespaces)
            known = self._terms[shape] = tuple(found)
        return known

    def _has_owner(self, term: DomainTerm) -> bool:
        """Whether any pod that owns the term is on a node or placed."""
        return bool(self._index.refusing[term].all or self._placed_refusing.get(term))

    def _owners(self, term: DomainTerm) -> DomainCounts:
        counts = self._refusing.get(term)
        if counts is None:
            on_nodes = self._index.refusing.get(term, NO_POD)
            counts = self._refusing[term] = self._domain_counts(term.topology_key, on_nodes, None)
            for at in self._placed_refusing.get(term, ()):
                change = self._changes[at]
                counts.add(change.row, change.now, change.later)
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
                counts.add(row, count, count - pods.terminating.get(node, 0))
        return counts
