"""Pod rules: inter-pod affinity, anti-affinity and topology spread, counted per topology domain.

A domain is a value of a node label. The pods in each domain decide:

- required affinity: for each term the domain has a pod that all terms together select; where no
  pod at all is selected, a pod that selects itself may start wherever the labels are (else a group
  with affinity to itself could never begin);
- required anti-affinity: the domain has no such pod, in either direction: existing pods may reject
  the new one as well;
- topology spread with DoNotSchedule: pods in the domain, the new one included, exceed the emptiest
  domain by at most maxSkew. Nodes count, and pods on them, if they have the labels of all such
  constraints of the pod and if the pod's own node selector and affinity (unless
  ``nodeAffinityPolicy`` is Ignore) and tolerations (if ``nodeTaintsPolicy`` is Honor) admit them.

Semantics follow kube-scheduler's InterPodAffinity and PodTopologySpread plugins. Pods placed
earlier in the same cycle count. Cost: O(pods) per selector and O(nodes) per term; nothing when no
rule is involved.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kai_py.api.records.core import (
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    SelectorRequirement,
    TopologySpreadConstraint,
)
from kai_py.policy.fit import StaticFit, matches_own_selectors
from kai_py.policy.tolerations import tolerated_nodes
from kai_py.snapshot.label_selector import label_selector_matches
from kai_py.snapshot.nodes import NodeColumns
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.tables.pod_rules import PlacedPod
from kai_py.snapshot.tables.topology import LabelColumn


@dataclass(frozen=True, slots=True)
class PodRules:
    """Pods on known nodes. ``namespaces``: name to labels, for namespace selectors."""

    nodes: NodeColumns
    pods: Sequence[PlacedPod] = ()
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def filters(self, shape: Shape) -> Iterator[tuple[str, Bools]]:
        """Each rule's reason text and the nodes that pass it."""
        if _required_terms(shape.pod_affinity):
            yield "didn't match pod affinity rules", self._passes_affinity(shape)
        for term in _required_terms(shape.pod_anti_affinity):
            column, counts = self._count_selected(shape, term)
            yield "didn't match pod anti-affinity rules", (column.codes == 0) | (counts == 0)
        if any(pod.anti_affinity_terms for pod in self.pods):
            yield (
                "didn't satisfy existing pods anti-affinity rules",
                ~self._rejected_by_existing(shape),
            )
        hard = [
            each for each in shape.topology_spread if each.when_unsatisfiable == "DoNotSchedule"
        ]
        labelled = np.ones(len(self.nodes), dtype=np.bool_)
        for constraint in hard:
            labelled &= self.nodes.label(constraint.topology_key).codes != 0
        for constraint in hard:
            passes = self._passes_spread(shape, constraint, labelled)
            yield "didn't match pod topology spread constraints", passes

    def preference(self, shape: Shape) -> Ints:
        """(nodes,) the sum of the weights of preferred terms, affinity minus anti-affinity."""
        score = np.zeros(len(self.nodes), dtype=np.int64)
        for rules, sign in ((shape.pod_affinity, 1), (shape.pod_anti_affinity, -1)):
            for preferred in rules.preferred if rules else ():
                _, counts = self._count_selected(shape, preferred.pod_affinity_term)
                score += sign * preferred.weight * np.minimum(counts, 1)
        return score

    def max_on_separate_domains(self, shape: Shape, mask: Bools) -> float:
        """The most pods of the shape that can be on the nodes of ``mask`` at once.

        Pods that exclude each other need a domain each; nodes without the label exclude none.
        """
        max_pods = np.inf
        for term in _required_terms(shape.pod_anti_affinity):
            codes = self.nodes.label(term.topology_key).codes[mask]
            if codes.all() and self._all_terms_select(shape, [term], shape.namespace, shape.labels):
                max_pods = min(max_pods, len(np.unique(codes)))
        return max_pods

    def _passes_affinity(self, shape: Shape) -> Bools:
        terms = _required_terms(shape.pod_affinity)
        labelled, with_selected = (np.ones(len(self.nodes), dtype=np.bool_) for _ in range(2))
        any_selected = False
        selected = [
            p for p in self.pods if self._all_terms_select(shape, terms, p.namespace, p.labels)
        ]
        for term in terms:
            column, counts = self._count_by_domain(term, selected)
            labelled &= column.codes != 0
            with_selected &= counts > 0
            any_selected |= bool(counts.any())
        # kube-scheduler: the first pod of a group with affinity to itself may start.
        if not any_selected and self._all_terms_select(shape, terms, shape.namespace, shape.labels):
            return labelled
        return with_selected

    def _rejected_by_existing(self, shape: Shape) -> Bools:
        rejected = np.zeros(len(self.nodes), dtype=np.bool_)
        for pod in self.pods:
            for term in pod.anti_affinity_terms:
                if self._term_selects(term, pod, shape.namespace, shape.labels):
                    column = self.nodes.label(term.topology_key)
                    code = column.codes[self.nodes.positions[pod.node]]
                    rejected |= (column.codes == code) & (code != 0)
        return rejected

    def _passes_spread(
        self, shape: Shape, constraint: TopologySpreadConstraint, labelled: Bools
    ) -> Bools:
        column = self.nodes.label(constraint.topology_key)
        selector = _with_matching_keys(
            constraint.label_selector, constraint.match_label_keys, shape.labels
        )
        counted = labelled.copy()
        if constraint.node_affinity_policy == "Honor":
            counted &= matches_own_selectors(shape, self.nodes)
        if constraint.node_taints_policy == "Honor":
            counted &= tolerated_nodes(shape.tolerations, self.nodes)
        same_namespace = (p for p in self.pods if p.namespace == shape.namespace)
        on_counted_nodes = (p for p in same_namespace if counted[self.nodes.positions[p.node]])
        per_domain = self._per_domain(
            column, (p for p in on_counted_nodes if label_selector_matches(selector, p.labels))
        )
        domains = np.unique(column.codes[counted])
        if not len(domains):
            return np.zeros(len(self.nodes), dtype=np.bool_)
        min_count = int(per_domain[domains].min())
        if constraint.min_domains is not None and len(domains) < constraint.min_domains:
            # API text of minDomains: with fewer domains than that, the global minimum counts as 0.
            min_count = 0
        itself = int(label_selector_matches(selector, shape.labels))
        passes: Bools = per_domain[column.codes] + itself - min_count <= constraint.max_skew
        passes &= column.codes != 0
        return passes

    def _count_selected(self, shape: Shape, term: PodAffinityTerm) -> tuple[LabelColumn, Ints]:
        """The term's column, and (nodes,) how many selected pods are in each node's domain."""
        selected = (
            p for p in self.pods if self._all_terms_select(shape, (term,), p.namespace, p.labels)
        )
        return self._count_by_domain(term, selected)

    def _count_by_domain(
        self, term: PodAffinityTerm, pods: Iterable[PlacedPod]
    ) -> tuple[LabelColumn, Ints]:
        """The term's column, and (nodes,) how many of ``pods`` are in each node's domain."""
        column = self.nodes.label(term.topology_key)
        counts: Ints = self._per_domain(column, pods)[column.codes]
        counts[column.codes == 0] = 0
        return column, counts

    def _per_domain(self, column: LabelColumn, pods: Iterable[PlacedPod]) -> Ints:
        """(codes,) pods per domain."""
        rows = (self.nodes.positions[pod.node] for pod in pods)
        codes = column.codes[np.fromiter(rows, dtype=np.int64)]
        return np.bincount(codes, minlength=len(column.values)).astype(np.int64)

    def _all_terms_select(
        self,
        shape: Shape,
        terms: Sequence[PodAffinityTerm],
        namespace: str,
        labels: Mapping[str, str],
    ) -> bool:
        """Whether all of ``terms``, of a pod of the shape, select a pod."""
        owner = PlacedPod("", "", shape.namespace, shape.labels)
        return all(self._term_selects(term, owner, namespace, labels) for term in terms)

    def _term_selects(
        self, term: PodAffinityTerm, owner: PlacedPod, namespace: str, labels: Mapping[str, str]
    ) -> bool:
        """Whether ``term`` of ``owner`` selects a pod with these labels in this namespace."""
        if not self._covers_namespace(term, owner.namespace, namespace):
            return False
        matching = _with_matching_keys(term.label_selector, term.match_label_keys, owner.labels)
        mismatching = _with_mismatching_keys(term.mismatch_label_keys, owner.labels)
        return label_selector_matches(matching, labels) and label_selector_matches(
            mismatching, labels
        )

    def _covers_namespace(self, term: PodAffinityTerm, own: str, namespace: str) -> bool:
        if namespace in term.namespaces:
            return True
        if term.namespace_selector is not None:
            return label_selector_matches(
                term.namespace_selector, self.namespaces.get(namespace, {})
            )
        return not term.namespaces and namespace == own


def apply_pod_rules(pod_rules: PodRules, shape: Shape, static: StaticFit) -> StaticFit:
    """``static`` with the pod rules applied on top."""
    mask, removed = static.mask.copy(), list(static.removed)
    for reason, passes in pod_rules.filters(shape):
        count = int(np.count_nonzero(mask & ~passes))
        if count:
            removed.append((reason, count))
            mask &= passes
    preference = static.preference + pod_rules.preference(shape)
    return replace(static, mask=mask, removed=tuple(removed), preference=preference)


def has_pod_rules(shape: Shape) -> bool:
    """Whether pods of the shape select other pods, so that they must be placed one by one."""
    return bool(shape.pod_affinity or shape.pod_anti_affinity or shape.topology_spread)


def _required_terms(rules: PodAffinity | None) -> tuple[PodAffinityTerm, ...]:
    return rules.required if rules else ()


def _with_matching_keys(
    selector: LabelSelector | None, keys: Sequence[str], labels: Mapping[str, str]
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


def _with_mismatching_keys(keys: Sequence[str], labels: Mapping[str, str]) -> LabelSelector:
    return LabelSelector(
        match_expressions=tuple(
            SelectorRequirement(key=key, operator="NotIn", values=(labels[key],))
            for key in keys
            if key in labels
        )
    )
