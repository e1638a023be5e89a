"""Pods counted per term and node for rules between pods, as they are created and deleted.

Two kinds of rules count. What pods of ours require or prefer of others (affinity, anti-affinity,
topology spread) matters to these pods only: for each distinct term the pods that it selects are
counted. What pods on nodes refuse (required anti-affinity, of any scheduler's pods) matters to the
pods that they select: for each distinct term the pods that own it are counted. Preferred rules of
pods that are placed already never matter.

An event costs the labels of one pod and the terms that select it; a new term the pods that have the
label by which it is found.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, NamedTuple

from msgspec import Struct

from kai_py.api.records.core import PartialObjectMetadata, Pod
from kai_py.snapshot.pod_selection import (
    DomainTerm,
    LabelPostings,
    Labels,
    Selection,
    SelectionIndex,
    refused_terms,
    rules_of,
    selects,
)
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.tables.pod_table import DerivedPod, PodTable, Uids


class PodCounts(NamedTuple):
    """Pods by node; ``terminating`` are among ``all``, ``stuck`` among these: they will stay."""

    all: Mapping[str, int]
    terminating: Mapping[str, int]
    stuck: Mapping[str, int]


@dataclass(frozen=True)
class PodRuleIndex:
    """Pods on nodes at one instant, as far as rules between pods count them.

    ``selected``: by what selects them. ``refusing``: by the term of required anti-affinity that
    they own; a term that only waiting pods own has no pods yet.
    """

    selected: Mapping[Selection, PodCounts] = field(default_factory=dict)
    refusing: Mapping[DomainTerm, PodCounts] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.selected or self.refusing)

    @cached_property
    def terms(self) -> SelectionIndex[DomainTerm]:
        """The terms that pods on nodes own, by the pods that they select."""
        index = SelectionIndex[DomainTerm]()
        for term, owners in self.refusing.items():
            if owners.all:
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
    """Keeps a ``PodRuleIndex`` in step with pods and namespaces."""

    kinds: ClassVar[tuple[str, ...]] = ("namespaces",)

    def __init__(self) -> None:
        """Start empty."""
        self._pods: dict[str, PodEntry] = {}
        self._postings = LabelPostings(self._pods)
        self._namespaces: dict[str, Labels] = {}
        self._selected: dict[Selection, _Counts] = {}
        self._selections = SelectionIndex[Selection]()
        self._refusing: dict[DomainTerm, _Counts] = {}
        self._terms = SelectionIndex[DomainTerm]()
        self._mattering: dict[str, None] = {}
        """Pods that were found to be refused by some term: further terms make no difference."""
        self._index: PodRuleIndex | None = None

    def labels_matter(self, pod: Pod) -> bool:
        """Whether any pod may refuse this one by its labels; remembered until it is asked again."""
        meta = pod.metadata
        matter = self._terms.may_select(meta.namespace, meta.labels)
        if matter:
            self._mattering[meta.uid] = None
        else:
            self._mattering.pop(meta.uid, None)
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
            _selections_of([*shapes, *expected]),
            refused_terms(parsed) + _refused_by(expected),
        )
        return self.set(pod.uid, entry)

    def release(self, uid: str) -> Uids:
        """The pod is gone or finished."""
        self._mattering.pop(uid, None)
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

    def apply(self, _kind: str, old: object | None, new: object | None) -> None:
        """Take in the labels of a namespace; terms that select namespaces are counted again."""
        known = new if new is not None else old
        if not isinstance(known, PartialObjectMetadata):
            return
        name, labels = known.metadata.name, known.metadata.labels if new is not None else None
        if self._namespaces.get(name) == labels:
            return
        self._namespaces.pop(name, None)
        if labels is not None:
            self._namespaces[name] = labels
        for selection, counts in self._selected.items():
            if any(each.namespace_selector is not None for each in selection):
                counts.clear()
                self._count_all(selection, counts)
                self._index = None

    def snapshot(self) -> PodRuleIndex:
        """The index now; the same object while nothing that it says has changed."""
        if self._index is None:
            self._index = PodRuleIndex(
                {selection: counts.frozen() for selection, counts in self._selected.items()},
                {term: counts.frozen() for term, counts in self._refusing.items()},
            )
        return self._index

    def _select(self, selection: Selection) -> None:
        counts = self._selected.get(selection)
        if counts is None:
            counts = self._selected[selection] = _Counts()
            self._selections.add(selection, selection)
            self._count_all(selection, counts)
            self._index = None
        counts.owners += 1

    def _count_all(self, selection: Selection, counts: "_Counts") -> None:
        for uid in self._postings.candidates(selection):
            pod = self._pods[uid]
            if pod.node and selects(selection, pod.namespace, pod.labels, self._namespaces):
                counts.add(pod, 1)

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
            if self._selected[selection].is_last_owner():
                del self._selected[selection]
                self._selections.discard(selection, selection)
                self._index = None
        for term in pod.refused:
            if self._refusing[term].is_last_owner():
                del self._refusing[term]
                self._terms.discard(term, term.selection)
                self._index = None

    def _count(self, pod: PodEntry, sign: int) -> None:
        if not pod.node:
            return
        found = self._selections.selecting(pod.namespace, pod.labels, self._namespaces)
        for selection in found:
            self._selected[selection].add(pod, sign)
        for term in dict.fromkeys(pod.refused):
            self._refusing[term].add(pod, sign)
        if found or pod.refused:
            self._index = None

    def _refused_pods(self, terms: Iterable[DomainTerm], owner: str) -> Uids:
        """Pods of ours whose labels matter since ``owner`` came with new terms."""
        found = dict[str, None]()
        for term in terms:
            for uid in self._postings.candidates(term.selection):
                pod = self._pods[uid]
                if uid in self._mattering or uid in found:
                    continue  # its labels matter already
                if pod.ours and all(each.matches_labels(pod.labels) for each in term.selection):
                    found[uid] = None
        found.pop(owner, None)
        return tuple(found)


class _Counts:
    """The pods of one term by node, and how many pods of ours or of others own it."""

    def __init__(self) -> None:
        self.owners = 0
        self._all: dict[str, int] = {}
        self._terminating: dict[str, int] = {}
        self._stuck: dict[str, int] = {}
        self._frozen: PodCounts | None = None

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

    def clear(self) -> None:
        self._all.clear()
        self._terminating.clear()
        self._stuck.clear()
        self._frozen = None

    def frozen(self) -> PodCounts:
        if self._frozen is None:
            self._frozen = PodCounts(dict(self._all), dict(self._terminating), dict(self._stuck))
        return self._frozen


def _selections_of(shapes: Iterable[Shape]) -> tuple[Selection, ...]:
    rules = [rules for rules in map(rules_of, shapes) if rules]
    if not rules:
        return ()
    return tuple(dict.fromkeys(selection for each in rules for selection in each.selections()))


def _refused_by(shapes: Iterable[Shape]) -> tuple[DomainTerm, ...]:
    return tuple(term for shape in shapes for term in rules_of(shape).anti_affinity)
