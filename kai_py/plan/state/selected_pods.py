"""Pods that selections select, per topology domain, as a statement has them.

Selections with the same base are counted once for the namespaces that they cover; those that
exclude labels beside that subtract the pods of the base that have them.
"""

from collections.abc import Mapping
from functools import cached_property

from kai_py.plan.state.pod_decisions import DecisionKey, PodDecision, domain_counts
from kai_py.policy.pod_rules import DomainCounts
from kai_py.snapshot.pod_selection import DomainTerm, Labels, Selection, covers
from kai_py.snapshot.resources import Bools
from kai_py.snapshot.selection_index import Base, LabelPostings, SelectionIndex, matches_base
from kai_py.snapshot.snapshot import Snapshot

Namespaces = frozenset[str]
NO_LABELS: Labels = {}
CountedOn = tuple[str, bytes]
"""By which label is counted, and on which nodes: on all where that is empty."""


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
