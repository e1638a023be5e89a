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

Semantics follow kube-scheduler's InterPodAffinity and PodTopologySpread plugins: pods that are
terminating still attract and refuse, but do not count for spread. Pods placed earlier in the same
cycle count; one that waits for capacity refuses others at once and attracts none that starts now.
Cost: O(nodes) per term; nothing when no rule is involved.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kai_py.api.records.core import TopologySpreadConstraint
from kai_py.policy.fit import StaticFit, matches_own_selectors
from kai_py.policy.node_filters import tolerated_nodes
from kai_py.snapshot.nodes import NodeColumns
from kai_py.snapshot.pod_selection import DomainTerm, Labels, NamespaceLabels, rules_of, selects
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape

UNBOUNDED = 2**62
"""The skew of nodes where no domain counts."""


class DomainCounts(Struct, frozen=True):
    """Pods per domain. ``codes``: (nodes,) the domain of each node, 0 for none.

    ``now``, ``later``: (domains,) the pods that are there; and once those that terminate or are
    evicted have gone and those that wait for their capacity have come.
    """

    codes: Ints
    now: Ints
    later: Ints

    def add(self, row: int, now: int, later: int) -> None:
        """Count pods on a node."""
        code = self.codes[row]
        self.now[code] += now
        self.later[code] += later

    def of_nodes(self, counts: Ints) -> Ints:
        """(nodes,) what ``counts`` (domains,) has for the domain of each; 0 outside of any."""
        inside = counts.copy()
        inside[0] = 0
        found: Ints = inside[self.codes]
        return found


class CountedPods(Protocol):
    """Pods on nodes and those placed in the cycle, counted for rules."""

    def selected(self, term: DomainTerm, counted: Bools | None = None) -> DomainCounts:
        """The pods that ``term`` selects; on the nodes ``counted`` (nodes,) if that is given."""

    def refusing(self, shape: Shape) -> Sequence[DomainCounts]:
        """The pods whose required anti-affinity selects pods of the shape."""


class PodRules(Struct, frozen=True):
    """The rules as of pods that start now, or that wait for capacity.

    ``namespaces``: name to labels, for namespace selectors.
    """

    nodes: NodeColumns
    namespaces: NamespaceLabels
    pods: CountedPods
    starts_now: bool

    def filters(self, shape: Shape) -> Iterator[tuple[str, Bools]]:
        """Each rule's reason text, and (nodes,) bool the nodes that pass it.

        Rules of anti-affinity that exclude no node are left out.
        """
        yield from self._affinity(shape)
        yield from self.refusals(shape)
        yield from self.spread(shape)

    def attractions(self, shape: Shape) -> Iterator[tuple[str, Bools]]:
        """The ``filters`` that a pod may still pass once further pods are placed."""
        yield from self._affinity(shape)
        yield from self.spread(shape)

    def _affinity(self, shape: Shape) -> Iterator[tuple[str, Bools]]:
        if rules_of(shape).affinity:
            yield "didn't match pod affinity rules", self._passes_affinity(shape)

    def attracting(self, shape: Shape, members: Iterable[tuple[str, Labels]]) -> Bools | None:
        """(nodes,) those that required affinity may admit, whatever pods leave before.

        ``members``: namespace and labels of the pods that are placed together with the shape. None
        if it may admit any node: for pods without such terms, and where these select one of
        ``members``.
        """
        affinity = rules_of(shape).affinity
        if not affinity or any(selects(affinity, *each, self.namespaces) for each in members):
            return None
        return self._passes_affinity(shape)

    def spread(self, shape: Shape) -> Iterator[tuple[str, Bools]]:
        """The ``filters`` of topology spread."""
        labelled = self._with_spread_labels(shape)
        for term, constraint in rules_of(shape).spread:
            # Its namespace is that of the pod, so that only labels are left to compare.
            itself = int(term.selection[0].matches_labels(shape.labels))
            counted = self._counted(shape, constraint, labelled)
            passes = self._skew(term, constraint, counted) + itself <= constraint.max_skew
            passes[0] = False
            codes = self.nodes.label(term.topology_key).codes
            yield "didn't match pod topology spread constraints", passes[codes]

    def counts(self, shape: Shape) -> Iterator[DomainCounts]:
        """All counts that decide where pods of the shape may go."""
        rules = rules_of(shape)
        for key in rules.affinity_keys:
            yield self.pods.selected(DomainTerm(rules.affinity, key))
        for term in rules.anti_affinity:
            yield self.pods.selected(term)
        labelled = self._with_spread_labels(shape)
        for term, constraint in rules.spread:
            yield self.pods.selected(term, self._counted(shape, constraint, labelled))
        yield from self.pods.refusing(shape)

    def refusals(self, shape: Shape) -> Iterator[tuple[str, Bools]]:
        """The ``filters`` that only exclude more nodes as further pods are placed."""
        for term in rules_of(shape).anti_affinity:
            passes = self._without(self.pods.selected(term))
            if passes is not None:
                yield "didn't match pod anti-affinity rules", passes
        found = [self._without(counts) for counts in self.pods.refusing(shape)]
        refused = [passes for passes in found if passes is not None]
        if refused:
            yield "didn't satisfy existing pods anti-affinity rules", np.all(refused, axis=0)

    def preference(self, shape: Shape) -> Ints:
        """(nodes,) the sum of the weights of preferred terms, affinity minus anti-affinity."""
        score = np.zeros(len(self.nodes), dtype=np.int64)
        for term, weight in rules_of(shape).preferred:
            counts = self.pods.selected(term)
            score += weight * np.minimum(counts.of_nodes(self._present(counts)), 1)
        return score

    def _present(self, counts: DomainCounts) -> Ints:
        return counts.now if self.starts_now else counts.later

    def _at_any_time(self, counts: DomainCounts) -> Ints:
        """(domains,) the pods that are there when the pod starts or come after it."""
        return np.maximum(counts.now, counts.later) if self.starts_now else counts.later

    def _without(self, counts: DomainCounts) -> Bools | None:
        """(nodes,) the nodes in whose domain no such pod is or is promised to be; None: all."""
        there = self._at_any_time(counts)
        if not np.count_nonzero(there[1:]):
            return None
        free: Bools = there[counts.codes] <= 0
        free |= counts.codes == 0
        return free

    def _passes_affinity(self, shape: Shape) -> Bools:
        rules = rules_of(shape)
        labelled, with_selected = (np.ones(len(self.nodes), dtype=np.bool_) for _ in range(2))
        any_selected = False
        for key in rules.affinity_keys:
            labelled &= self.nodes.label(key).codes != 0
            if not labelled.any():
                return labelled
            counts = self.pods.selected(DomainTerm(rules.affinity, key))
            with_selected &= counts.of_nodes(self._present(counts)) > 0
            any_selected |= bool((self._at_any_time(counts)[1:] > 0).any())
        # kube-scheduler: the first pod of a group with affinity to itself may start.
        if not any_selected and selects_itself(shape, self.namespaces):
            return labelled
        return with_selected

    def is_spread(self, shape: Shape, row: int) -> bool:
        """Whether a pod of the shape that counts on a node already keeps its spread constraints."""
        labelled = self._with_spread_labels(shape)
        for term, constraint in rules_of(shape).spread:
            skew = self._skew(term, constraint, self._counted(shape, constraint, labelled))
            if skew[self.nodes.label(term.topology_key).codes[row]] > constraint.max_skew:
                return False
        return True

    def _skew(self, term: DomainTerm, constraint: TopologySpreadConstraint, counted: Bools) -> Ints:
        """(domains,) by how many pods each exceeds the emptiest domain that counts.

        ``counted`` (nodes,): the nodes that count.
        """
        per_domain = self.pods.selected(term, counted).later
        counts = np.zeros(len(per_domain), dtype=np.bool_)
        counts[self.nodes.label(term.topology_key).codes[counted]] = True
        domains = np.count_nonzero(counts)
        if not domains:
            return np.full(len(per_domain), UNBOUNDED)
        min_count = int(per_domain[counts].min())
        if constraint.min_domains is not None and domains < constraint.min_domains:
            # API text of minDomains: with fewer domains than that, the global minimum counts as 0.
            min_count = 0
        skew: Ints = per_domain - min_count
        return skew

    def _with_spread_labels(self, shape: Shape) -> Bools:
        """(nodes,) the nodes with the labels of all spread constraints of the shape."""
        labelled = np.ones(len(self.nodes), dtype=np.bool_)
        for term, _ in rules_of(shape).spread:
            labelled &= self.nodes.label(term.topology_key).codes != 0
        return labelled

    def _counted(
        self, shape: Shape, constraint: TopologySpreadConstraint, labelled: Bools
    ) -> Bools:
        """(nodes,) the nodes that count for a spread constraint; ``labelled``: with all labels."""
        counted = labelled.copy()
        if constraint.node_affinity_policy == "Honor":
            counted &= matches_own_selectors(shape, self.nodes)
        if constraint.node_taints_policy == "Honor":
            counted &= tolerated_nodes(shape.tolerations, self.nodes)
        return counted


def selects_itself(shape: Shape, namespaces: NamespaceLabels) -> bool:
    """Whether the terms of its required affinity all select pods of the shape."""
    affinity = rules_of(shape).affinity
    return bool(affinity) and selects(affinity, shape.namespace, shape.labels, namespaces)


def apply_pod_rules(pod_rules: PodRules, shape: Shape, static: StaticFit) -> StaticFit:
    """``static`` with the pod rules applied on top; itself where they exclude and prefer none."""
    mask, removed, left = static.mask, list(static.removed), int(np.count_nonzero(static.mask))
    for reason, passes in pod_rules.filters(shape):
        admitted = mask & passes
        count = left - int(np.count_nonzero(admitted))
        if count:
            mask, left = admitted, left - count
            removed.append((reason, count))
    if rules_of(shape).preferred:
        preference = static.preference + pod_rules.preference(shape)
        return replace(static, mask=mask, removed=tuple(removed), preference=preference)
    return static if mask is static.mask else replace(static, mask=mask, removed=tuple(removed))
