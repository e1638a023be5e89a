"""Zones and regions in the labels of volumes, which bind a pod like the node affinity of a volume.

A node that is labelled with a zone or a region must have the value of each such label of the
volume. Where it lacks a label of before Kubernetes 1.17, the one that replaced it counts. Several
values are joined by two underscores. Source: kube-scheduler's VolumeZone plugin.
"""

from collections.abc import Mapping
from itertools import product

from kai_py.api.records.core import NodeSelector, NodeSelectorTerm, SelectorRequirement

REPLACED_BY = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
PLACES = (*REPLACED_BY, *REPLACED_BY.values())
SEPARATOR = "__"

Requirements = tuple[SelectorRequirement, ...]


def zone_selector(labels: Mapping[str, str]) -> NodeSelector | None:
    """The nodes that reach a volume with ``labels``; None if these name no zone or region."""
    alternatives = [found for key in PLACES if (found := _alternatives(key, labels.get(key, "")))]
    if not alternatives:
        return None
    choices = [sum(choice, ()) for choice in product(*alternatives)]
    unlabelled = tuple(map(_lacks, PLACES))
    terms = [NodeSelectorTerm(match_expressions=each) for each in (*choices, unlabelled)]
    return NodeSelector(node_selector_terms=tuple(terms))


def _alternatives(key: str, text: str) -> tuple[Requirements, ...]:
    """What a node may have for one label of a volume; () where that label has no valid value."""
    values = tuple(part.strip() for part in text.split(SEPARATOR))
    if not all(values):
        return ()
    same: Requirements = (SelectorRequirement(key=key, operator="In", values=values),)
    if key not in REPLACED_BY:
        return (same,)
    newer = SelectorRequirement(key=REPLACED_BY[key], operator="In", values=values)
    return same, (_lacks(key), newer)


def _lacks(key: str) -> SelectorRequirement:
    return SelectorRequirement(key=key, operator="DoesNotExist")
