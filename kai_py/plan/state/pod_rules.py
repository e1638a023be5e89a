"""Pods that rules count, per topology domain, as a statement has them.

Only this module says whether any pod rule concerns a shape now. When a rule is needed first, its
counts are made from the index of the snapshot and the decisions of the statement so far; from then
on every placement and eviction changes the counts that it concerns, and its undo changes them back.
As long as no rule concerns any of the shapes, nothing is counted.
"""

from collections.abc import Callable, Iterable, Sequence

from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.pod_counts import RefusingPods, SelectedPods
from kai_py.plan.state.pod_decisions import DecisionKey, PodDecision, decision_key
from kai_py.policy.pod_rules import DomainCounts, PodRules
from kai_py.snapshot.pod_selection import DomainTerm, rules_of
from kai_py.snapshot.resources import Bools
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot


class PodRuleCounts:
    """Counts for rules between pods; a ``CountedPods``."""

    def __init__(self, snapshot: Snapshot, decided: Callable[[], Iterable[PodDecision]]) -> None:
        """``decided``: the decisions of the statement so far."""
        self._nodes, self._namespaces = snapshot.nodes, snapshot.namespaces
        self._has_refusing = bool(snapshot.pod_rules.refusing)
        self._decided = decided
        self._decisions: dict[DecisionKey, PodDecision] = {}
        self._selected = SelectedPods(snapshot, self._decisions)
        self._refusing = RefusingPods(snapshot, self._decisions)
        self.is_counting = False
        """Whether there are counts that decisions have to keep up to date."""

    def concern(self, shape: Shape) -> bool:
        """Whether a rule of the shape, or of other pods, restricts where its pods may go."""
        if shape.affinity is None and not (
            shape.topology_spread or shape.namespace or shape.labels
        ):
            # Most shapes: no rules of their own, and no labels by which others select them.
            return False
        return bool(rules_of(shape)) or self._is_refused(shape)

    def rules(self, capacity: Capacity) -> PodRules:
        """The rules for pods that start now, or that wait for terminating pods."""
        return PodRules(self._nodes, self._namespaces, self, capacity is Capacity.IDLE)

    def selected(self, term: DomainTerm, counted: Bools | None = None) -> DomainCounts:
        """The pods that ``term`` selects; on the nodes ``counted`` (nodes,) if that is given."""
        self._start_counting()
        return self._selected.of(term, counted)

    def refusing(self, shape: Shape) -> Sequence[DomainCounts]:
        """The pods whose required anti-affinity selects pods of the shape, per topology key."""
        return self._refusing.of(shape) if self._is_refused(shape) else ()

    def add(self, decision: PodDecision) -> None:
        """Count a decision of the statement."""
        key = decision_key(decision)
        self._decisions[key] = decision
        self._selected.postings.add(key, decision.labels)
        self._selected.count(decision, 1)
        self._refusing.count(decision, 1)

    def undo(self, uid: str, *, placed: bool) -> None:
        """The decision about a pod was undone; pods of nodes that are gone were not counted."""
        key = uid, placed
        decision = self._decisions.pop(key, None)
        if decision is None:
            return
        self._selected.postings.discard(key, decision.labels)
        self._selected.count(decision, -1)
        self._refusing.count(decision, -1)

    def _start_counting(self) -> None:
        if not self.is_counting:
            self.is_counting = True
            for decision in self._decided():
                self.add(decision)

    def _is_refused(self, shape: Shape) -> bool:
        """Whether pods on nodes, or placed ones, refuse pods of the shape beside them."""
        if not (shape.namespace or shape.labels) or not self._has_refusing:
            return False
        self._start_counting()
        return self._refusing.select(shape)
