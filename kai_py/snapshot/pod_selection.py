"""Which pods the rules of a pod select: its terms resolved.

A term is resolved with the namespace and labels of its owner: "this pod's namespace" gets its name,
``matchLabelKeys`` their values. Equal resolved terms select the same pods, whichever pods own them,
so that they are counted once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct

from kai_py.api.records.core import (
    LabelSelector,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    SelectorRequirement,
    TopologySpreadConstraint,
)
from kai_py.api.selectors import label_selector_matches

if TYPE_CHECKING:
    from kai_py.snapshot.shape import Shape

Labels = Mapping[str, str]
NamespaceLabels = Mapping[str, Labels]


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
        return self.matches_labels(labels) and self.covers(namespace, namespaces)

    def matches_labels(self, labels: Labels) -> bool:
        """Whether it selects a pod with these labels in a namespace that it covers."""
        return label_selector_matches(self.labels, labels) and (
            self.other_labels is None or label_selector_matches(self.other_labels, labels)
        )

    def covers(self, namespace: str, namespaces: NamespaceLabels) -> bool:
        """Whether it selects pods of a namespace at all."""
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


def covers(selection: Selection, namespace: str, namespaces: NamespaceLabels) -> bool:
    """Whether all selectors of ``selection`` select pods of a namespace."""
    return all(each.covers(namespace, namespaces) for each in selection)


class DomainTerm(Struct, frozen=True):
    """Pods that are counted per value of the node label ``topology_key``."""

    selection: Selection
    topology_key: str


class ShapeRules(Struct, frozen=True):
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
    if shape.affinity is None and not shape.topology_spread:
        return NO_RULES
    known = _RULES.get(shape)
    if known is None:
        known = _RULES[shape] = _rules_of(shape)
    return known


def may_be_counted(shape: "Shape", labels: Labels, other: "Shape") -> bool:
    """Whether rules of ``shape`` may select a pod with ``labels``, in some namespace.

    Or those of that pod, of the shape ``other``, refuse pods beside it.
    """
    return bool(rules_of(other).anti_affinity) or any(
        all(each.matches_labels(labels) for each in selection)
        for selection in rules_of(shape).selections()
    )


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
        affinity_keys=tuple(dict.fromkeys(term.topology_key for term in required)),
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
