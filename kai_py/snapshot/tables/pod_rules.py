"""Pods counted per term and node for rules between pods, as they are created and deleted.

Two kinds of rules count. What pods of ours require or prefer of others (affinity, anti-affinity,
topology spread) matters to these pods only: for each distinct set of labels that terms require, the
pods that have them are counted, and for each term those of them that it excludes. What pods on
nodes refuse (required anti-affinity, of any scheduler's pods) matters to the pods that they select:
for each distinct term the pods that own it are counted. Preferred rules of pods that are placed
already never matter.

An event costs the labels of one pod, the sets of labels that it has and the terms that exclude it;
a new term the pods that have the label by which it is found.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from msgspec import Struct, field

from kai_py.api.records.core import Pod
from kai_py.snapshot.derived_pod import DerivedPod
from kai_py.snapshot.pod_selection import DomainTerm, Labels, Selection, refused_terms, rules_of
from kai_py.snapshot.selection_index import (
    ANY_POD,
    Base,
    LabelPostings,
    SelectionIndex,
    marks_of,
    matches_base,
)
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.tables.pod_table import PodTable, Uids


class PodCounts(NamedTuple):
    """Pods by node; ``terminating`` are among ``all``, ``stuck`` among these: they will stay."""

    all: Mapping[str, int]
    terminating: Mapping[str, int]
    stuck: Mapping[str, int]


PodsByNamespace = Mapping[str, PodCounts]
Listed = tuple[Base, str]
"""The labels that pods must have to be counted, and their namespace, "" for any."""


class PodRuleIndex(Struct, frozen=True, dict=True):
    """Pods on nodes at one instant, as far as rules between pods count them.

    ``selected``: by what selections require. ``excluded``: those of them that a selection does not
    select all the same, if it excludes any labels. ``refusing``: by the term of
    required anti-affinity that they own; a term that only waiting pods own has no pods yet.
    """

    selected: Mapping[Listed, PodsByNamespace] = field(default_factory=dict)
    excluded: Mapping[Selection, PodsByNamespace] = field(default_factory=dict)
    refusing: Mapping[DomainTerm, PodCounts] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.selected or self.refusing)

    @cached_property
    def terms(self) -> SelectionIndex[DomainTerm]:
        """The terms of ``refusing``, by the pods that they select."""
        index = SelectionIndex[DomainTerm]()
        for term in self.refusing:
            index.add(term, term.selection)
        return index


class PodEntry(Struct, frozen=True):
    """A pod on ``node``, or one of ours that waits ("").

    ``stuck``: it is terminating, and should have been gone long ago.
    ``selections``: what is counted for its own rules, if it is ours; ``refused``: the terms of its
    required anti-affinity.
    """

    namespace: str
    labels: Labels
    node: str
    terminating: bool = False
    stuck: bool = False
    ours: bool = False
    selections: tuple[Selection, ...] = ()
    refused: tuple[DomainTerm, ...] = ()


class PodRuleTable(PodTable):
    """Keeps a ``PodRuleIndex`` in step with pods."""

    def __init__(self) -> None:
        """Start empty."""
        self._pods: dict[str, PodEntry] = {}
        self._postings = LabelPostings(self._pods)
        self._owners: dict[Selection, int] = {}
        self._selections = SelectionIndex[Selection]()
        self._selected: dict[Listed, _CountsByNamespace] = {}
        self._excluded: dict[Selection, _CountsByNamespace] = {}
        self._refusing: dict[DomainTerm, _Counts] = {}
        self._terms = SelectionIndex[DomainTerm]()
        self._unrefused: dict[str, None] = {}
        """Pods that no term was found to refuse: for others, further terms make no difference."""
        self._index: PodRuleIndex | None = None

    def labels_matter(self, pod: Pod) -> bool:
        """Whether any pod may refuse this one by its labels; remembered until it is asked again."""
        meta = pod.metadata
        matter = self._terms.may_select(meta.namespace, meta.labels)
        if matter:
            self._unrefused.pop(meta.uid, None)
        else:
            self._unrefused[meta.uid] = None
        return matter

    def place(self, pod: DerivedPod) -> Uids:
        """Take in where a pod is; pods that it is the first to refuse are derived again."""
        parsed, placement = pod.parsed.pod, pod.placement
        ours = pod.parsed.gang_spec is not None
        shapes = [pod.parsed.demand.shape] if ours else []
        expected = [each.member.shape for each in pod.parsed.expected]
        entry = PodEntry(
            parsed.metadata.namespace,
            parsed.metadata.labels,
            placement.node,
            placement.terminating,
            placement.terminating and placement.stuck_terminating,
            ours,
            selections_of([*shapes, *expected]),
            refused_terms(parsed) + refused_by(expected),
        )
        return self.set(pod.uid, entry)

    def release(self, uid: str) -> Uids:
        """The pod is gone or finished."""
        self._unrefused.pop(uid, None)
        return self.set(uid, None)

    def set(self, uid: str, entry: PodEntry | None) -> Uids:
        """Take in what a pod is like now, None when it is gone; the pods to derive again."""
        before = self._pods.get(uid)
        if before == entry:
            return ()
        if entry is not None:
            # New terms first, so that those in both entries are never dropped in between.
            for selection in entry.selections:
                self._select(selection)
            new_terms = [term for term in entry.refused if self._refuse(term)]
        if before is not None:
            self._remove(uid, before)
        if entry is None:
            return ()
        self._pods[uid] = entry
        self._postings.add(uid, entry.labels)
        self._count(entry, 1)
        return self._refused_pods(new_terms, uid)

    def snapshot(self) -> PodRuleIndex:
        """The index now; the same object while nothing that it says has changed."""
        if self._index is None:
            self._index = PodRuleIndex(
                {listed: counts.frozen() for listed, counts in self._selected.items()},
                {selection: counts.frozen() for selection, counts in self._excluded.items()},
                {term: counts.frozen() for term, counts in self._refusing.items()},
            )
        return self._index

    def _select(self, selection: Selection) -> None:
        owners = self._owners.get(selection, 0)
        self._owners[selection] = owners + 1
        if owners:
            return
        parts = self._selections.add(selection, selection)
        self._index = None
        base = parts.base
        if base is None:
            return
        for scope in parts.scopes:
            if (base, scope) not in self._selected:
                found = (self._pods[uid] for uid in self._postings.matching(base))
                pods = (pod for pod in found if scope in ("", pod.namespace))
                self._selected[base, scope] = _CountsByNamespace(pods)
        if parts.excluded:
            excluded = (self._pods[uid] for uid in self._postings.having(parts.excluded))
            self._excluded[selection] = _CountsByNamespace(
                pod
                for pod in excluded
                if parts.may_cover(pod.namespace) and matches_base(base, pod.labels)
            )

    def _deselect(self, selection: Selection) -> None:
        """Count one owner of a selection less."""
        self._owners[selection] -= 1
        if self._owners[selection]:
            return
        del self._owners[selection]
        base, _, scopes = self._selections.discard(selection)
        self._excluded.pop(selection, None)
        for scope in scopes:
            if base is not None and not self._selections.has(base, scope):
                del self._selected[base, scope]
        self._index = None

    def _refuse(self, term: DomainTerm) -> bool:
        """Count one more owner of a term; whether it is the first."""
        counts = self._refusing.get(term)
        if counts is None:
            counts = self._refusing[term] = _Counts()
            self._terms.add(term, term.selection)
            self._index = None
        counts.owners += 1
        return counts.owners == 1

    def _remove(self, uid: str, pod: PodEntry) -> None:
        del self._pods[uid]
        self._postings.discard(uid, pod.labels)
        self._count(pod, -1)
        for selection in pod.selections:
            self._deselect(selection)
        for term in pod.refused:
            if self._refusing[term].is_last_owner():
                del self._refusing[term]
                self._terms.discard(term)
                self._index = None

    def _count(self, pod: PodEntry, sign: int) -> None:
        if not pod.node:
            return
        bases = self._selections.bases(pod.labels)
        for counts in self._counting(pod, bases):
            counts.add(pod, sign)
            self._index = None
        for term in dict.fromkeys(pod.refused):
            self._refusing[term].add(pod, sign)
            self._index = None

    def _counting(self, pod: PodEntry, bases: list[Base]) -> Iterator["_CountsByNamespace"]:
        """All counts that the pod is among; ``bases``: those that it matches."""
        for base in bases:
            for scope in (pod.namespace, ""):
                counts = self._selected.get((base, scope))
                if counts is not None:
                    yield counts
        for selection in self._selections.excluding(pod.labels) if bases else ():
            parts = self._selections.parts[selection]
            if parts.base in bases and parts.may_cover(pod.namespace):
                yield self._excluded[selection]

    def _refused_pods(self, terms: Iterable[DomainTerm], owner: str) -> Uids:
        """Pods of ours whose labels matter since ``owner`` came with new terms."""
        found = dict[str, None]()
        for term in terms:
            parts = self._terms.parts[term]
            marks = () if parts.base is None else marks_of(parts.base)
            for uid in self._unrefused if ANY_POD in marks else self._postings.having(marks):
                pod = self._pods.get(uid)
                if pod is None or not pod.ours or uid not in self._unrefused or uid in found:
                    continue  # its labels matter already, or never
                if parts.may_cover(pod.namespace) and all(
                    each.matches_labels(pod.labels) for each in term.selection
                ):
                    found[uid] = None
        found.pop(owner, None)
        return tuple(found)


class _Counts:
    """Pods by node, and how many pods of ours or of others own the term that counts them."""

    def __init__(self) -> None:
        self.owners = 0
        self._all: dict[str, int] = {}
        self._terminating: dict[str, int] = {}
        self._stuck: dict[str, int] = {}
        self._frozen: PodCounts | None = None

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, pod: PodEntry, sign: int) -> None:
        self._frozen = None
        kinds = (self._all, self._terminating, self._stuck)
        for counts in kinds[: 1 + pod.terminating + pod.stuck]:
            count = counts.get(pod.node, 0) + sign
            if count:
                counts[pod.node] = count
            else:
                del counts[pod.node]

    def is_last_owner(self) -> bool:
        """Give up one owner; whether none is left."""
        self.owners -= 1
        return not self.owners

    def frozen(self) -> PodCounts:
        if self._frozen is None:
            self._frozen = PodCounts(dict(self._all), dict(self._terminating), dict(self._stuck))
        return self._frozen


class _CountsByNamespace:
    """Pods by namespace and node: which namespaces count is asked of their labels later."""

    def __init__(self, pods: Iterable[PodEntry]) -> None:
        self._by_namespace: dict[str, _Counts] = {}
        self._frozen: PodsByNamespace | None = None
        for pod in pods:
            if pod.node:
                self.add(pod, 1)

    def add(self, pod: PodEntry, sign: int) -> None:
        self._frozen = None
        counts = self._by_namespace.get(pod.namespace)
        if counts is None:
            counts = self._by_namespace[pod.namespace] = _Counts()
        counts.add(pod, sign)
        if not counts:
            del self._by_namespace[pod.namespace]

    def frozen(self) -> PodsByNamespace:
        if self._frozen is None:
            self._frozen = {name: each.frozen() for name, each in self._by_namespace.items()}
        return self._frozen


def selections_of(shapes: Iterable[Shape]) -> tuple[Selection, ...]:
    """What the rules of pods of these shapes select, each once."""
    rules = [rules for rules in map(rules_of, shapes) if rules]
    if not rules:
        return ()
    return tuple(dict.fromkeys(selection for each in rules for selection in each.selections()))


def refused_by(shapes: Iterable[Shape]) -> tuple[DomainTerm, ...]:
    """The terms by which pods of these shapes refuse others."""
    return tuple(term for shape in shapes for term in rules_of(shape).anti_affinity)
