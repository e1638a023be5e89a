"""Which nodes may take a pod of a shape at all, and how many such pods fit on each.

Static filters depend on the shape and the nodes only, so their masks are kept per shape and node
generation. They are applied in a fixed order; a node counts for the first filter that removes it,
which is what the explanation shows. Order and meaning follow kube-scheduler's filter plugins
NodeName, NodeUnschedulable, TaintToleration, NodeAffinity, VolumeBinding and (for claims that are
allocated already) DynamicResources.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from kai_py.api.records.core import Taint
from kai_py.policy.node_selector import matches_labels, matches_selector, matches_term
from kai_py.policy.tolerations import tolerated_nodes, tolerates, unwanted_taints
from kai_py.snapshot.nodes import NodeColumns
from kai_py.snapshot.resources import Bools, Floats, Ints, ResourceIndex
from kai_py.snapshot.shape import Shape

NOT_READY = Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")
DEVICE_PLUGIN_BONUS = 0.25
"""Devices that claims can have are kept for claims; below 1: stated preferences outweigh it."""
UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


@dataclass(frozen=True, slots=True)
class StaticFit:
    """``mask``: (nodes,) bool. ``removed``: per filter how many nodes it took away, in order.

    ``preference``: (nodes,) float64, preferred node affinity minus untolerated soft taints, and
    of nodes that are equal so far those whose device plugin serves the pod; higher goes first.
    """

    mask: Bools
    removed: tuple[tuple[str, int], ...]
    preference: Floats


@dataclass
class StaticFits:
    """Static verdicts per shape, kept while the nodes stay the same."""

    _generation: int = -1
    _known: dict[int, StaticFit] = field(default_factory=dict)

    def of(self, shape: Shape, nodes: NodeColumns) -> StaticFit:
        """The verdict for ``shape`` on ``nodes``."""
        if nodes.generation != self._generation:
            self._generation = nodes.generation
            self._known.clear()
        known = self._known.get(shape.number)
        if known is None:
            known = self._known[shape.number] = static_fit(shape, nodes)
        return known


def static_fit(shape: Shape, nodes: NodeColumns) -> StaticFit:
    """Run every static filter over all nodes."""
    mask = np.ones(len(nodes), dtype=np.bool_)
    removed: list[tuple[str, int]] = []
    for reason, passes in _filters(shape, nodes):
        taken = int(np.count_nonzero(mask & ~passes))
        if taken:
            removed.append((reason, taken))
            mask &= passes
    preference = _stated_preference(shape, nodes) - unwanted_taints(shape.tolerations, nodes)
    if shape.extended.resources:
        preference = preference + DEVICE_PLUGIN_BONUS * _served_by_plugin(shape, nodes)
    for array in (mask, preference):
        array.flags.writeable = False
    return StaticFit(mask, tuple(removed), preference)


def _served_by_plugin(shape: Shape, nodes: NodeColumns) -> Bools:
    """(nodes,) bool: all extended resources for which a claim could be made are reported."""
    names = shape.extended.resources
    reported = (record.status.allocatable for record in nodes.records)
    served = (all(_is_nonzero(each.get(name)) for name in names) for each in reported)
    return np.fromiter(served, np.bool_, len(nodes))


def _is_nonzero(reported: str | float | None) -> bool:
    return reported is not None and str(reported) != "0"


def replicas_that_fit(
    shape: Shape, resources: ResourceIndex, free: Floats, mask: Bools, allocatable: Floats
) -> Ints:
    """How many pods of ``shape`` fit on each node, by resources alone.

    ``free``, ``allocatable``: (resources, nodes) float64; free may be negative. The answer is min
    over the requested resources of floor(free / request), 0 outside ``mask``. A request for a
    resource that no node has fits nowhere. Mirrored requests count only on nodes that report the
    resource: there, claims and device plugin hand out the same cards. So do requests that other
    nodes serve by claim.
    """
    fit = np.full(mask.shape, np.inf)
    for name, request in shape.reported_requests.items():
        position = resources.positions.get(name)
        if position is None:
            return np.zeros(mask.shape, dtype=np.int64)
        np.minimum(fit, free[position] / request, out=fit)
    for name, request in requests_where_reported(shape):
        position = resources.positions.get(name)
        if position is not None:
            reported = allocatable[position] > 0
            np.minimum(fit, free[position] / request, out=fit, where=reported)
    if not shape.requests:
        fit[:] = np.iinfo(np.int32).max
    counts: Ints = np.floor(np.maximum(fit, 0.0)).astype(np.int64)
    if shape.host_ports:
        np.minimum(counts, 1, out=counts)
    counts[~mask] = 0
    return counts


def requests_where_reported(shape: Shape) -> Iterator[tuple[str, float]]:
    """Requests that count only on nodes that report the resource."""
    yield from shape.plugin_equivalents.items()
    yield from ((name, shape.requests[name]) for name in shape.extended.resources)


def matches_own_selectors(shape: Shape, nodes: NodeColumns) -> Bools:
    """(nodes,) bool: what the pod's node selector and required node affinity admit."""
    admitted = matches_labels(shape.node_selector, nodes)
    required = shape.affinity and shape.affinity.node_affinity
    if required and required.required is not None:
        admitted = admitted & matches_selector(required.required, nodes)
    return admitted


def _filters(shape: Shape, nodes: NodeColumns) -> Iterator[tuple[str, Bools]]:
    """Each filter's reason text and the nodes that pass it."""
    if not tolerates(shape.tolerations, NOT_READY):
        yield "not ready", nodes.ready
    if not tolerates(shape.tolerations, UNSCHEDULABLE):
        yield "unschedulable", ~nodes.unschedulable
    yield "had untolerated taint", tolerated_nodes(shape.tolerations, nodes)
    if shape.node_selector:
        yield "didn't match Pod's node selector", matches_labels(shape.node_selector, nodes)
    required = shape.affinity and shape.affinity.node_affinity
    if required and required.required is not None:
        yield "didn't match Pod's node affinity", matches_selector(required.required, nodes)
    for selector in shape.volume_selectors:
        yield "didn't match the volume's node affinity", matches_selector(selector, nodes)
    for use in shape.claims:
        if use.node_selector is not None:
            reason = f'resourceclaim "{use.name}" is allocated on another node'
            yield reason, matches_selector(use.node_selector, nodes)


def _stated_preference(shape: Shape, nodes: NodeColumns) -> Floats:
    score = np.zeros(len(nodes))
    affinity = shape.affinity.node_affinity if shape.affinity else None
    for preferred in affinity.preferred if affinity else ():
        if preferred.weight:
            score[matches_term(preferred.preference, nodes)] += preferred.weight
    return score
