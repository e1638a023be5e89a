"""Static filters: which nodes may take a pod of a shape, and how many such pods fit on each.

Static filters depend on the shape and the nodes only, so their masks are cached per shape and node
generation. They run in a fixed order; a node counts for the first filter that removes it, which is
what the explanation shows. Order and meaning follow kube-scheduler's filter plugins
NodeUnschedulable, TaintToleration, NodeAffinity, VolumeBinding and (for claims that are already
allocated) DynamicResources.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import numpy as np
from msgspec import Struct

from kai_py.api.node_departures import DepartureStage
from kai_py.api.records.node import Taint, tolerates
from kai_py.api.spot import SpotUse
from kai_py.policy.node_filters import (
    NodeConstraints,
    constraints_of,
    matches_labels,
    matches_selector,
    matches_term,
    untolerated_nodes,
    unwanted_taints,
)
from kai_py.snapshot.nodes import NodeColumns, spot_nodes
from kai_py.snapshot.resources import Bools, Floats, Ints, ResourceIndex
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.tables.gpu_nodes import mixed_strategy, replicated, single_strategy

NOT_READY = Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")
UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class StaticFit(Struct, frozen=True, eq=False, weakref=True):
    """``mask``: (nodes,) bool. ``removed``: the count of nodes that each filter removes, in order.

    ``preference``: (nodes,) weights of preferred node affinity minus soft taints that are not
    tolerated, higher first. ``served_by_plugin``: (nodes,) bool, where a device plugin has the
    extended resources for which a claim could be made; None if the pod requests none of those.
    """

    mask: Bools
    removed: tuple[tuple[str, int], ...]
    preference: Ints
    served_by_plugin: Bools | None = None


STATIC_FITS_KEPT = 256


@dataclass
class StaticFits:
    """Static fits per shape, cached while the nodes stay the same; equal constraints share one.

    Those of shapes that no cycle asks for any more go: a fit is as long as there are nodes. At most
    ``STATIC_FITS_KEPT`` are kept beside those of the last two cycles.
    """

    _generation: int = -1
    _known: dict[int, StaticFit] = field(default_factory=dict)
    _before: dict[int, StaticFit] = field(default_factory=dict)
    _by_constraints: WeakValueDictionary[bytes, StaticFit] = field(
        default_factory=WeakValueDictionary
    )

    def start_cycle(self) -> None:
        """A cycle begins: what it asks for is kept."""
        if len(self._known) > STATIC_FITS_KEPT:
            self._before, self._known = self._known, {}

    def of(self, shape: Shape, nodes: NodeColumns) -> StaticFit:
        """The static fit of ``shape`` on ``nodes``."""
        if nodes.generation != self._generation:
            self._generation = nodes.generation
            self._known, self._before = {}, {}
            self._by_constraints.clear()
        cached = self._known.get(shape.number)
        if cached is None:
            cached = self._before.get(shape.number) or self._of_constraints(shape, nodes)
            self._known[shape.number] = cached
        return cached

    def _of_constraints(self, shape: Shape, nodes: NodeColumns) -> StaticFit:
        constraints = constraints_of(shape)
        key = constraints.key
        known = self._by_constraints.get(key)
        if known is None:
            known = self._by_constraints[key] = _filtered(constraints, nodes)
        return known


def static_fit(shape: Shape, nodes: NodeColumns) -> StaticFit:
    """Run every static filter over all nodes."""
    return _filtered(constraints_of(shape), nodes)


def _filtered(constraints: NodeConstraints, nodes: NodeColumns) -> StaticFit:
    mask, left = np.ones(len(nodes), dtype=np.bool_), len(nodes)
    removed: list[tuple[str, int]] = []
    for reason, passes in _filters(constraints, nodes):
        mask &= passes
        before, left = left, int(np.count_nonzero(mask))
        if left < before:
            removed.append((reason, before - left))
    tolerations = constraints.tolerations
    preference = _stated_preference(constraints, nodes) - unwanted_taints(tolerations, nodes)
    extended = constraints.extended_resources
    served = _served_by_plugin(extended, nodes) if extended else None
    for array in (mask, preference):
        array.flags.writeable = False
    return StaticFit(mask, tuple(removed), preference, served)


def _served_by_plugin(names: Sequence[str], nodes: NodeColumns) -> Bools:
    """(nodes,) bool: device plugins report all extended resources that claims could serve."""
    reported = (record.status.allocatable for record in nodes.records)
    served = (all(_is_nonzero(each.get(name)) for name in names) for each in reported)
    return np.fromiter(served, np.bool_, len(nodes))


def _is_nonzero(reported: str | float | None) -> bool:
    return reported is not None and str(reported) != "0"


def replicas_that_fit(
    shape: Shape, resources: ResourceIndex, free: Floats, mask: Bools, allocatable: Floats
) -> Ints:
    """How many pods of ``shape`` fit on each node, by resources alone.

    ``free``, ``allocatable``: (resources, nodes) float64; free may be negative. The result is min
    over the requested resources of floor(free / request), 0 outside ``mask``. A request for a
    resource that no node has fits nowhere. Requests mirrored from claims count only on nodes that
    report the resource: there, claims and device plugin hand out the same cards. So do extended
    resources that claims serve on other nodes.
    """
    fit: Floats | None = None
    for name, request in shape.reported_requests.items():
        position = resources.positions.get(name)
        if position is None:
            return np.zeros(mask.shape, dtype=np.int64)
        held = free[position] / request
        fit = held if fit is None else np.minimum(fit, held, out=fit)
    if fit is None:
        fit = np.full(mask.shape, np.inf)
    for name, request in requests_where_reported(shape):
        position = resources.positions.get(name)
        if position is not None:
            reported = allocatable[position] > 0
            np.minimum(fit, free[position] / request, out=fit, where=reported)
    if not shape.requests:
        # Casting inf to an integer is undefined.
        fit[:] = np.iinfo(np.int32).max
    np.maximum(fit, 0.0, out=fit)
    counts: Ints = np.floor(fit, out=fit).astype(np.int64)
    if shape.one_per_node:
        np.minimum(counts, 1, out=counts)
    counts *= mask
    return counts


def holds(free: Floats, request: Floats) -> Bools:
    """Whether ``free`` (resources,) or (resources, nodes) is as much as ``request`` (resources,).

    Only what is requested counts, as in kube-scheduler: nodes may have less than nothing free of
    something else, where pods that are bound past any scheduler requested more than there is.
    """
    requested = request > 0
    enough = np.transpose(free[requested]) >= request[requested]
    return np.asarray(enough.all(axis=-1))


def requests_where_reported(shape: Shape) -> Iterator[tuple[str, float]]:
    """Requests that count only on nodes that report the resource."""
    yield from shape.plugin_equivalents.items()
    for name in shape.extended.resources:
        if name in shape.requests:  # not so where parts of GPUs are requested
            yield name, shape.requests[name]


def matches_own_selectors(pod: Shape | NodeConstraints, nodes: NodeColumns) -> Bools:
    """(nodes,) bool: the pod's node selector and required node affinity match."""
    admitted = matches_labels(pod.node_selector, nodes)
    required = pod.affinity and pod.affinity.node_affinity
    if required and required.required is not None:
        admitted = admitted & matches_selector(required.required, nodes)
    return admitted


def _filters(pod: NodeConstraints, nodes: NodeColumns) -> Iterator[tuple[str, Bools]]:
    """Each filter's reason text and the nodes that pass it."""
    if not tolerates(pod.tolerations, NOT_READY):
        yield "not ready", nodes.ready
    if not tolerates(pod.tolerations, UNSCHEDULABLE):
        yield "unschedulable", ~nodes.unschedulable
    for taint, where in untolerated_nodes(pod.tolerations, nodes):
        yield f"had untolerated taint {taint}", ~where
    yield from _departure_filters(nodes)
    if pod.spot is not None and pod.spot.use is not SpotUse.PREFER:
        on_spot = spot_nodes(pod.spot.labels, nodes)
        if pod.spot.use is SpotUse.ONLY:
            yield "weren't spot nodes, the only ones that it may use", on_spot
        else:
            yield "were spot nodes, which it may not use", ~on_spot
    yield from _gpu_filters(pod, nodes)
    if pod.node_selector:
        yield "didn't match Pod's node selector", matches_labels(pod.node_selector, nodes)
    required = pod.affinity and pod.affinity.node_affinity
    if required and required.required is not None:
        yield "didn't match Pod's node affinity", matches_selector(required.required, nodes)
    if pod.node_features:
        named = ", ".join(pod.node_features)
        yield f"didn't match Pod's required features ({named})", _declaring(pod, nodes)
    for selector in pod.volume_selectors:
        yield "didn't match the volume's node affinity", matches_selector(selector, nodes)
    for name, selector in pod.claim_selectors:
        reason = f'resourceclaim "{name}" is allocated on another node'
        yield reason, matches_selector(selector, nodes)


def _declaring(pod: NodeConstraints, nodes: NodeColumns) -> Bools:
    """(nodes,) bool: the node declares every feature that the pod requires."""
    required = frozenset(pod.node_features)
    declared = [required.issubset(each.status.declared_features) for each in nodes.records]
    return np.array(declared, dtype=np.bool_)


def _departure_filters(nodes: NodeColumns) -> Iterator[tuple[str, Bools]]:
    """Nodes that are about to go take no pod, whatever it tolerates."""
    going = [each for each in nodes.departures.values() if each.stage is not DepartureStage.SUSPECT]
    for signal in sorted({each.signal for each in going}):
        named = [name for name, each in nodes.departures.items() if each.signal == signal]
        passes = np.ones(len(nodes), dtype=np.bool_)
        passes[[nodes.positions[name] for name in named]] = False
        yield f"about to go ({signal})", passes


def _gpu_filters(pod: NodeConstraints, nodes: NodeColumns) -> Iterator[tuple[str, Bools]]:
    """How nodes give out their GPUs, as KAI-Scheduler's node filter reads MIG strategies."""
    if not (pod.shares_gpus or pod.uses_gpus):
        return
    if not pod.uses_mig:
        yield "had MIG devices, which pods request by profile", ~mixed_strategy(nodes)
    if pod.shares_gpus:
        yield (
            "had MIG devices as whole GPUs, which are not shared",
            ~single_strategy(nodes),
        )
        yield "had a device plugin that shares GPUs itself", ~replicated(nodes)


def _stated_preference(pod: NodeConstraints, nodes: NodeColumns) -> Ints:
    score = np.zeros(len(nodes), dtype=np.int64)
    affinity = pod.affinity.node_affinity if pod.affinity else None
    for preferred in affinity.preferred if affinity else ():
        if preferred.weight:
            score[matches_term(preferred.preference, nodes)] += preferred.weight
    return score
