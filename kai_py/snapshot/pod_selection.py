"""Which pods the rules of a pod select: its terms resolved, and indexes of pods and terms by label.

A term is resolved with the namespace and labels of its owner: "this pod's namespace" gets its name,
``matchLabelKeys`` their values. Equal resolved terms select the same pods, whichever pods own them,
so that they are counted once.

Terms and pods find each other by label: a term that requires a value of some label is looked up by
that pair, one that requires a label by its name. Only terms that require neither are compared with
every pod, of their namespaces if they name these.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from kai_py.api.records.core import (
    Affinity,
    LabelSelector,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    SelectorRequirement,
    TopologySpreadConstraint,
)
from kai_py.snapshot.label_selector import label_selector_matches

if TYPE_CHECKING:
    from kai_py.snapshot.shape import Shape

Labels = Mapping[str, str]
NamespaceLabels = Mapping[str, Labels]
Item = TypeVar("Item")

MAX_INDEXED_LABELS = 1024
"""Labels that are indexed at once; keys of labels are whatever users write into rules."""


@dataclass(frozen=True, slots=True)
class PodSelector:
    """The pods that one term selects; equal by ``key``, whoever owns the term.

    ``labels``: what they must match, None for nothing; ``other_labels``: and this, too.
    """

    key: bytes
    namespaces: tuple[str, ...] = field(compare=False)
    namespace_selector: LabelSelector | None = field(compare=False)
    labels: LabelSelector | None = field(compare=False)
    other_labels: LabelSelector | None = field(compare=False)

    def selects(self, namespace: str, labels: Labels, namespaces: NamespaceLabels) -> bool:
        """Whether it selects a pod; ``namespaces``: the labels of every namespace."""
        return self.matches_labels(labels) and self._covers(namespace, namespaces)

    def matches_labels(self, labels: Labels) -> bool:
        """Whether it selects a pod with these labels in a namespace that it covers."""
        return label_selector_matches(self.labels, labels) and (
            self.other_labels is None or label_selector_matches(self.other_labels, labels)
        )

    def _covers(self, namespace: str, namespaces: NamespaceLabels) -> bool:
        if namespace in self.namespaces:
            return True
        return self.namespace_selector is not None and label_selector_matches(
            self.namespace_selector, namespaces.get(namespace, {})
        )


Selection = tuple[PodSelector, ...]
"""Pods that all of these select."""


def selects(
    selection: Selection, namespace: str, labels: Labels, namespaces: NamespaceLabels
) -> bool:
    """Whether all selectors of ``selection`` select a pod."""
    return all(each.selects(namespace, labels, namespaces) for each in selection)


@dataclass(frozen=True, slots=True)
class DomainTerm:
    """Pods that are counted per value of the node label ``topology_key``."""

    selection: Selection
    topology_key: str


@dataclass(frozen=True, slots=True)
class ShapeRules:
    """What a pod requires or prefers of the pods around it.

    ``affinity``: one pod must be selected by all of its terms, in a domain of each of
    ``affinity_keys``. ``preferred`` with weights, negative for anti-affinity. ``spread``: the
    constraints that must hold.
    """

    affinity: Selection = ()
    affinity_keys: tuple[str, ...] = ()
    anti_affinity: tuple[DomainTerm, ...] = ()
    preferred: tuple[tuple[DomainTerm, int], ...] = ()
    spread: tuple[tuple[DomainTerm, TopologySpreadConstraint], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.affinity or self.anti_affinity or self.preferred or self.spread)

    def selections(self) -> Iterator[Selection]:
        """Everything that is counted for them."""
        if self.affinity:
            yield self.affinity
        yield from (term.selection for term in self.anti_affinity)
        yield from (term.selection for term, _ in self.preferred)
        yield from (term.selection for term, _ in self.spread)


NO_RULES = ShapeRules()


# Weak: a shape is forgotten with its last pod, and its rules with it.
_RULES: "WeakKeyDictionary[Shape, ShapeRules]" = WeakKeyDictionary()


def rules_of(shape: "Shape") -> ShapeRules:
    """The rules of pods of a shape, resolved."""
    if not has_rules(shape.affinity, shape.topology_spread):
        return NO_RULES
    known = _RULES.get(shape)
    if known is None:
        known = _RULES[shape] = _rules_of(shape)
    return known


def _rules_of(shape: "Shape") -> ShapeRules:
    namespace, labels = shape.namespace, shape.labels
    near, apart = shape.pod_affinity, shape.pod_anti_affinity
    required = near.required if near else ()
    preferred = [
        (_term(each.pod_affinity_term, namespace, labels), sign * each.weight)
        for rules, sign in ((near, 1), (apart, -1))
        for each in (rules.preferred if rules else ())
    ]
    return ShapeRules(
        affinity=tuple(_selector(term, namespace, labels) for term in required),
        affinity_keys=tuple(term.topology_key for term in required),
        anti_affinity=_refused(apart, namespace, labels),
        preferred=tuple(preferred),
        spread=tuple(
            (_spread_term(each, namespace, labels), each)
            for each in shape.topology_spread
            if each.when_unsatisfiable == "DoNotSchedule"
        ),
    )


def refused_terms(pod: Pod) -> tuple[DomainTerm, ...]:
    """The pods that a pod refuses beside it: the terms of its required anti-affinity."""
    affinity = pod.spec.affinity
    apart = affinity.pod_anti_affinity if affinity else None
    return _refused(apart, pod.metadata.namespace, pod.metadata.labels)


def has_rules(affinity: Affinity | None, spread: Sequence[TopologySpreadConstraint]) -> bool:
    """Whether where a pod goes depends on other pods by its own rules.

    Constraints with ScheduleAnyway are not asked.
    """
    if affinity is None and not spread:
        return False
    between = (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity else ()
    return any(each and (each.required or each.preferred) for each in between) or any(
        each.when_unsatisfiable == "DoNotSchedule" for each in spread
    )


class HasLabels(Protocol):
    """A pod of which the labels are known."""

    @property
    def labels(self) -> Labels:
        """Its labels."""
        ...


class LabelPostings(Generic[Item]):
    """Finds the pods of a mapping by label; a label is indexed once it has been asked for."""

    def __init__(self, pods: Mapping[Item, HasLabels]) -> None:
        """``pods``: by their keys; every change comes by ``add`` and ``discard``."""
        self._pods = pods
        self._by_label: dict[str, dict[str, dict[Item, None]]] = {}

    def add(self, item: Item, labels: Labels) -> None:
        """A pod has come."""
        if self._by_label:
            for key, value in labels.items():
                if key in self._by_label:
                    self._by_label[key].setdefault(value, {})[item] = None

    def discard(self, item: Item, labels: Labels) -> None:
        """A pod has gone."""
        if self._by_label:
            for key, value in labels.items():
                if key in self._by_label:
                    items = self._by_label[key].get(value, {})
                    items.pop(item, None)
                    if not items:
                        self._by_label[key].pop(value, None)

    def candidates(self, selection: Selection) -> list[Item]:
        """All that ``selection`` selects by label, and maybe others."""
        pairs = _required_pairs(selection)
        found: dict[Item, None] = {}
        if pairs is None:
            label = _required_label(selection)
            if not label:
                return list(self._pods)
            for items in self._values(label).values():
                found.update(items)
        for key, value in pairs or ():
            found.update(self._values(key).get(value, {}))
        return list(found)

    def _values(self, key: str) -> dict[str, dict[Item, None]]:
        values = self._by_label.get(key)
        if values is None:
            if len(self._by_label) >= MAX_INDEXED_LABELS:
                self._by_label.clear()
            values = self._by_label[key] = {}
            for item, pod in self._pods.items():
                if key in pod.labels:
                    values.setdefault(pod.labels[key], {})[item] = None
        return values


class SelectionIndex(Generic[Item]):
    """Finds the items whose selections may select a pod."""

    def __init__(self) -> None:
        """Start empty."""
        self._items: dict[Mark, dict[Item, Selection]] = {}

    def add(self, item: Item, selection: Selection) -> None:
        """Take in an item."""
        for mark in _marks(selection):
            self._items.setdefault(mark, {})[item] = selection

    def discard(self, item: Item, selection: Selection) -> None:
        """Forget an item."""
        for mark in _marks(selection):
            items = self._items.get(mark, {})
            items.pop(item, None)
            if not items:
                self._items.pop(mark, None)

    def selecting(self, namespace: str, labels: Labels, namespaces: NamespaceLabels) -> list[Item]:
        """The items that select a pod."""
        return [
            item
            for item, selection in self._candidates(namespace, labels)
            if selects(selection, namespace, labels, namespaces)
        ]

    def may_select(self, namespace: str, labels: Labels) -> bool:
        """Whether any selects such a pod, whatever the labels of its namespace are."""
        return any(
            all(each.matches_labels(labels) for each in selection)
            for _, selection in self._candidates(namespace, labels)
        )

    def _candidates(self, namespace: str, labels: Labels) -> list[tuple[Item, Selection]]:
        if not self._items:
            return []
        found: list[tuple[Item, Selection]] = []
        for mark in (ANYWHERE, (*ANYWHERE, namespace)):
            found += self._items.get(mark, {}).items()
        for pair in labels.items():
            found += self._items.get(pair, {}).items()
            found += self._items.get(pair[:1], {}).items()
        return found


Mark = tuple[str, ...]
"""What every pod has that a selection selects, one of several: (label, value), (label,),
("", namespace), or ``ANYWHERE`` where nothing is required."""
ANYWHERE: Mark = ("",)


def _marks(selection: Selection) -> Iterable[Mark]:
    """The marks by which a selection is found; empty where nothing is selected."""
    pairs = _required_pairs(selection)
    if pairs is not None:
        return pairs
    label = _required_label(selection)
    if label:
        return ((label,),)
    if selection and selection[0].namespace_selector is None:
        return [(*ANYWHERE, namespace) for namespace in dict.fromkeys(selection[0].namespaces)]
    return (ANYWHERE,)


def _required_pairs(selection: Selection) -> Iterable[tuple[str, str]] | None:
    """Pairs of label and value of which every selected pod has one; None if there are none.

    Empty where nothing is selected.
    """
    for each in selection:
        if each.labels is None:
            return ()
        if each.labels.match_labels:
            return (min(each.labels.match_labels.items()),)
        for wanted in each.labels.match_expressions:
            if wanted.operator == "In":
                return tuple(dict.fromkeys((wanted.key, value) for value in wanted.values))
    return None


def _required_label(selection: Selection) -> str:
    """A label that every selected pod has, with whatever value; "" if none is known."""
    wanted = (each for s in selection if s.labels for each in s.labels.match_expressions)
    return next((each.key for each in wanted if each.operator == "Exists"), "")


_ENCODER = msgspec.json.Encoder(order="deterministic")


def _refused(apart: PodAffinity | None, namespace: str, labels: Labels) -> tuple[DomainTerm, ...]:
    if apart is None:
        return ()
    return tuple(_term(each, namespace, labels) for each in apart.required)


def _term(term: PodAffinityTerm, namespace: str, labels: Labels) -> DomainTerm:
    return DomainTerm((_selector(term, namespace, labels),), term.topology_key)


def _selector(term: PodAffinityTerm, namespace: str, labels: Labels) -> PodSelector:
    # API text of namespaceSelector: null and no namespaces means "this pod's namespace".
    own = not term.namespaces and term.namespace_selector is None
    return _resolved(
        (namespace,) if own else tuple(sorted(term.namespaces)),
        term.namespace_selector,
        _with_matching_keys(term.label_selector, term.match_label_keys, labels),
        _with_mismatching_keys(term.mismatch_label_keys, labels),
    )


def _spread_term(
    constraint: TopologySpreadConstraint, namespace: str, labels: Labels
) -> DomainTerm:
    selector = _with_matching_keys(constraint.label_selector, constraint.match_label_keys, labels)
    if selector is not None and not (selector.match_labels or selector.match_expressions):
        # kube-scheduler's countPodsMatchSelector: an empty selector counts no pod.
        selector = None
    return DomainTerm((_resolved((namespace,), None, selector, None),), constraint.topology_key)


def _resolved(
    namespaces: tuple[str, ...],
    namespace_selector: LabelSelector | None,
    labels: LabelSelector | None,
    other_labels: LabelSelector | None,
) -> PodSelector:
    parts = namespaces, namespace_selector, labels, other_labels
    return PodSelector(_ENCODER.encode(parts), *parts)


def _with_matching_keys(
    selector: LabelSelector | None, keys: Sequence[str], labels: Labels
) -> LabelSelector | None:
    """The selector, and for each of ``keys`` the owner's own value."""
    own = tuple(
        SelectorRequirement(key=key, operator="In", values=(labels[key],))
        for key in keys
        if key in labels
    )
    if selector is None or not own:
        return selector
    expressions = (*selector.match_expressions, *own)
    return LabelSelector(match_labels=selector.match_labels, match_expressions=expressions)


def _with_mismatching_keys(keys: Sequence[str], labels: Labels) -> LabelSelector | None:
    expressions = tuple(
        SelectorRequirement(key=key, operator="NotIn", values=(labels[key],))
        for key in keys
        if key in labels
    )
    return LabelSelector(match_expressions=expressions) if expressions else None
