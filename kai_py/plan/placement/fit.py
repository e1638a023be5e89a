"""How many pods of a shape fit on each node now.

What lasts for the cycle is kept: the static masks and, for shapes about which only capacity
decides, a ``RunningFit`` that follows each change. O(nodes x resources) for anything else.

``by_shape`` groups the pods of a gang, the largest first. ``dominates`` compares two shapes: where
every node that takes the one takes the other, which requests no more of anything, and only capacity
decides about either, the one fits nowhere if the other does not. A whole GPU is no less than any
part of one. O(nodes).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.dra.allocation_query import Alternatives
from kai_py.plan.placement.preferences import (
    nodes_without_devices,
    rank_nodes,
    static_preferences,
)
from kai_py.plan.placement.running_fit import RunningFit, is_resources_only
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.statement import Statement
from kai_py.policy.fit import StaticFit, StaticFits, replicas_that_fit
from kai_py.policy.pod_rules import apply_pod_rules
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import BASE_RESOURCES, Bools, Floats, Ints, ResourceIndex
from kai_py.snapshot.shape import Shape


def by_shape(members: Sequence[Member]) -> list[list[Member]]:
    """Members grouped by shape, the largest first; order within a group is kept.

    Those of one size stand in the order of their first pods. Labels tell pods apart even if their
    numbers don't.
    """
    if len(members) == 1:
        return [list(members)]
    groups: dict[object, list[Member]] = {}
    for member in members:
        shape = member.shape
        key = (shape.number, *sorted(shape.labels.items())) if shape.labels else shape.number
        groups.setdefault(key, []).append(member)
    return largest_first(groups.values())


def largest_first(groups: Iterable[list[Member]]) -> list[list[Member]]:
    """Groups of pods of one shape by their size; those of one size keep their order."""
    return sorted(groups, key=_size, reverse=True)


def _size(group: Sequence[Member]) -> tuple[float, float, float]:
    charge, requests = group[0].charge, group[0].shape.requests
    return (
        charge.get("gpu", 0.0),
        requests.get("cpu", 0.0),
        requests.get("memory", 0.0),
    )


def slack(shape: Shape, resources: ResourceIndex, free: Floats) -> Floats:
    """(nodes,) how empty a node is in the resource the shape is packed by."""
    row = slack_row(shape, resources)
    return np.zeros(free.shape[1]) if row is None else free[row]


def slack_row(shape: Shape, resources: ResourceIndex) -> int | None:
    """The row of that resource; None where no node has it."""
    extended = [name for name in shape.requests if name not in BASE_RESOURCES]
    if shape.gpu_share is not None:
        extended.insert(0, GPU_RESOURCE)
    return resources.positions.get(extended[0] if extended else "cpu")


MAX_RUNNING_FITS = 64
"""Shapes whose fit is kept up to date at a time."""


class ShapeCapacity(NamedTuple):
    """Pods of a shape that nodes take; all arrays are (nodes,).

    ``resource_replicas``: by resources and limits of nodes; ``replicas``: and by devices;
    ``gpu_share_replicas``: of those the pods that get parts of GPUs in use, None if the shape asks
    for no parts. ``free``: (resources, nodes) what was left for them. ``alternatives``: of those
    that their claims list.
    """

    resource_replicas: Ints
    replicas: Ints
    gpu_share_replicas: Ints | None
    free: Floats
    alternatives: Alternatives | None = None

    @property
    def preferred_replicas(self) -> Ints | None:
        """The pods to place before others of the same node: they get what is better."""
        if self.alternatives is None:
            return self.gpu_share_replicas
        return np.minimum(self.alternatives.pods, self.replicas)


@dataclass(frozen=True, slots=True)
class ShapeFits:
    """The static verdicts so far, and the fits that are kept up to date."""

    static_fits: StaticFits = field(default_factory=StaticFits)
    _running_fits: dict[tuple[int, Capacity, bool], RunningFit] = field(default_factory=dict)

    def static_fit(self, statement: Statement, shape: Shape, capacity: Capacity) -> StaticFit:
        """The static verdict, narrowed by rules between pods where there are any."""
        static = self.static_fits.of(shape, statement.snapshot.nodes)
        if not statement.pod_rules.concern(shape):
            return static
        return apply_pod_rules(statement.pod_rules.rules(capacity), shape, static)

    def capacity(
        self,
        statement: Statement,
        shape: Shape,
        mask: Bools,
        count: int,
        capacity: Capacity,
        *,
        min_replicas: int = 0,
    ) -> ShapeCapacity:
        """The capacity for ``count`` pods on the nodes of ``mask``.

        ``min_replicas``: keep to nodes that hold as many by resources, where there are any.
        """
        free, nodes = statement.free(capacity), statement.snapshot.nodes
        by_resources = replicas_that_fit(
            shape, statement.snapshot.resources, free, mask, nodes.allocatable
        )
        if min_replicas:
            enough = by_resources >= min_replicas
            by_resources = np.where(enough, by_resources, 0) if enough.any() else by_resources
        limited = statement.limits.replicas(shape, capacity, count)
        if limited is not None:
            np.minimum(by_resources, limited, out=by_resources)
        parts = statement.gpu_share_replicas(shape, capacity, count)
        if parts is not None:
            np.minimum(by_resources, parts.total, out=by_resources)
        fitting, alternatives = by_resources, None
        if shape.needs_devices:
            found = statement.devices.replicas(shape, by_resources > 0, count, capacity)
            fitting = np.minimum(by_resources, found)
            alternatives = statement.devices.alternatives(shape, fitting > 0, count, capacity)
        shared = None if parts is None else np.minimum(parts.shared, fitting)
        return ShapeCapacity(by_resources, fitting, shared, free, alternatives)

    def running_fit(
        self, statement: Statement, shape: Shape, capacity: Capacity, *, avoid_devices: bool = False
    ) -> RunningFit | None:
        """The fit of a shape kept from pod to pod, where capacity alone decides.

        ``avoid_devices``: only on nodes without devices.
        """
        key = shape.number, capacity, avoid_devices
        known = self._running_fits.get(key)
        if known is not None and known.statement is statement:
            return None if statement.pod_rules.concern(shape) else known
        if not only_resources_decide(statement, shape):
            return None
        static = self.static_fit(statement, shape, capacity)
        made = RunningFit(
            statement,
            shape,
            nodes_without_devices(statement, static) if avoid_devices else static.mask,
            rank_nodes(static_preferences(statement, shape, static), len(static.mask)),
            slack_row(shape, statement.snapshot.resources),
            capacity=capacity,
        )
        if len(self._running_fits) >= MAX_RUNNING_FITS:
            del self._running_fits[next(iter(self._running_fits))]
        self._running_fits[key] = made
        return made

    def replicas(
        self, statement: Statement, shape: Shape, mask: Bools, count: int, capacity: Capacity
    ) -> Ints:
        """(nodes,) how many pods of ``shape`` fit, devices included, at most ``count`` of those."""
        running = self.running_fit(statement, shape, capacity)
        if running is not None:
            running.refresh()
            return np.where(mask, running.replicas, 0)
        mask = self.static_fit(statement, shape, capacity).mask & mask
        return self.capacity(statement, shape, mask, count, capacity).replicas

    def may_fit_later(self, statement: Statement, shape: Shape) -> bool:
        """Whether any pod fits by resources alone once terminating pods have gone."""
        known = self.running_fit(statement, shape, Capacity.FUTURE_IDLE)
        if known is not None:
            return known.is_feasible()
        return bool(self.future_replicas(statement, shape).any())

    def future_replicas(self, statement: Statement, shape: Shape) -> Ints:
        """(nodes,) pods that fit by resources alone once terminating pods have gone; a new array.

        Rules between pods and devices of claims are not asked.
        """
        known = self.running_fit(statement, shape, Capacity.FUTURE_IDLE)
        if known is not None:
            known.refresh()
            return known.replicas.copy()
        nodes = statement.snapshot.nodes
        mask = self.static_fits.of(shape, nodes).mask
        free = statement.free(Capacity.FUTURE_IDLE)
        return replicas_that_fit(shape, statement.snapshot.resources, free, mask, nodes.allocatable)


def only_resources_decide(statement: Statement, shape: Shape) -> bool:
    """Whether a pod fits a node that takes it as soon as what it requests is free there."""
    return is_resources_only(shape, statement.limits) and not statement.pod_rules.concern(shape)


def dominates(statement: Statement, fits: ShapeFits, shape: Shape, other: Shape) -> bool:
    """Whether a pod of ``shape`` fits only where one of ``other`` fits too."""
    if shape is other:
        return True
    if (
        not _is_decided_by_resources(statement, shape)
        or not _is_decided_by_resources(statement, other)
        or statement.limits.refusing(other)
    ):
        return False
    if any(shape.requests.get(name, 0.0) < amount for name, amount in other.requests.items()):
        return False
    if not _gpu_share_dominates(shape, other):
        return False
    nodes = statement.snapshot.nodes
    return not (
        fits.static_fits.of(shape, nodes).mask & ~fits.static_fits.of(other, nodes).mask
    ).any()


def _is_decided_by_resources(statement: Statement, shape: Shape) -> bool:
    return not (shape.has_claims or shape.plugin_equivalents or statement.pod_rules.concern(shape))


def _gpu_share_dominates(shape: Shape, other: Shape) -> bool:
    ours, theirs = shape.gpu_share, other.gpu_share
    if theirs is None:
        return True
    if ours is None:
        return not theirs.memory and shape.requests.get(GPU_RESOURCE, 0.0) >= theirs.devices
    return ours.devices == theirs.devices and (
        ours.fraction >= theirs.fraction and ours.memory >= theirs.memory
    )
