"""How many pods of a shape fit on each node now.

Cached for the cycle are the static masks and, for shapes that only need resources of nodes, a
``RunningFit`` that follows each change. O(nodes x resources) for all other shapes.

``dominates`` compares two shapes that only need resources of nodes: the first dominates the second
if it requests at least as much of everything, and every node that admits it admits the second as
well. If the second then fits nowhere, neither does the first. A whole GPU is at least as much as
any part of one. O(nodes).
"""

from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from kai_py.api.bounded import remember
from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.api.resource_names import BASE_RESOURCES
from kai_py.dra.allocation_query import Alternatives
from kai_py.plan.placement.preferences import nodes_without_devices, rank_nodes, static_preferences
from kai_py.plan.placement.running_fit import RunningFit, is_resources_only
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.statement import Statement
from kai_py.policy.fit import StaticFit, StaticFits, replicas_that_fit
from kai_py.policy.pod_rules import apply_pod_rules
from kai_py.snapshot.resources import Bools, Floats, Ints, ResourceIndex
from kai_py.snapshot.shape import Shape


def slack(shape: Shape, resources: ResourceIndex, free: Floats) -> Floats:
    """(nodes,) how much of the resource by which the shape is packed is free."""
    row = slack_row(shape, resources)
    return np.zeros(free.shape[1]) if row is None else free[row]


def slack_row(shape: Shape, resources: ResourceIndex) -> int | None:
    """The row of the resource by which the shape is packed; None if no node has it."""
    extended = [name for name in shape.requests if name not in BASE_RESOURCES]
    if shape.gpu_share is not None:
        extended.insert(0, GPU_RESOURCE)
    return resources.positions.get(extended[0] if extended else "cpu")


MAX_RUNNING_FITS = 64
"""How many running fits are cached at a time."""


class ShapeCapacity(NamedTuple):
    """How many pods of a shape fit; arrays are (nodes,) if not said otherwise.

    ``resource_replicas``: by resources and limits of nodes; ``replicas``: by devices as well;
    ``gpu_share_replicas``: how many of these get parts of GPUs that are in use, None if the shape
    requests no parts. ``free``: (resources, nodes) free resources. ``alternatives``: which
    alternatives of their claims the pods get.
    """

    resource_replicas: Ints
    replicas: Ints
    gpu_share_replicas: Ints | None
    free: Floats
    alternatives: Alternatives | None = None

    @property
    def preferred_replicas(self) -> Ints | None:
        """(nodes,) how many pods get better devices or GPUs than further ones on the same node."""
        if self.alternatives is None:
            return self.gpu_share_replicas
        return np.minimum(self.alternatives.pods, self.replicas)


class ShapeFits(Struct, frozen=True):
    """The cached static fits and running fits of a cycle."""

    static_fits: StaticFits = field(default_factory=StaticFits)
    _running_fits: dict[tuple[int, Capacity, bool], RunningFit] = field(default_factory=dict)
    _asked: dict[Capacity, int] = field(default_factory=dict)
    _most_free: dict[Capacity, tuple[Statement, int, list[float]]] = field(default_factory=dict)

    def static_fit(self, statement: Statement, shape: Shape, capacity: Capacity) -> StaticFit:
        """The static fit of the shape, narrowed by pod rules if any concern it."""
        static = self.static_fits.of(shape, statement.snapshot.nodes)
        if not statement.pod_rules.concern(shape):
            return static
        return apply_pod_rules(statement.pod_rules.rules(capacity), shape, static)

    def capacity(
        self, statement: Statement, shape: Shape, mask: Bools, count: int, capacity: Capacity
    ) -> ShapeCapacity:
        """The capacity for ``count`` pods on the nodes of ``mask``, (nodes,) bool."""
        free, nodes = statement.free(capacity), statement.snapshot.nodes
        by_resources = replicas_that_fit(
            shape, statement.snapshot.resources, free, mask, nodes.allocatable
        )
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
        """The running fit of a shape; None unless it only needs resources of nodes.

        ``avoid_devices``: only on nodes without devices.
        """
        key = shape.number, capacity, avoid_devices
        known = self._running_fits.get(key)
        if known is not None and known.statement is statement:
            return None if statement.pod_rules.concern(shape) else known
        if not only_resources_decide(statement, shape):
            return None
        static = self.static_fit(statement, shape, capacity)
        idle = self._running_fits.get((shape.number, Capacity.IDLE, avoid_devices))
        made = RunningFit(
            statement,
            shape,
            nodes_without_devices(statement, static) if avoid_devices else static.mask,
            rank_nodes(static_preferences(statement, shape, static), len(static.mask)),
            slack_row(shape, statement.snapshot.resources),
            capacity=capacity,
            idle=idle if idle is not None and idle.statement is statement else None,
        )
        return remember(self._running_fits, key, made, MAX_RUNNING_FITS)

    def replicas(
        self, statement: Statement, shape: Shape, mask: Bools, count: int, capacity: Capacity
    ) -> Ints:
        """(nodes,) how many pods of ``shape`` fit, devices included; it may stop at ``count``."""
        if self.fits_nowhere(statement, shape, capacity):
            return np.zeros(len(mask), dtype=np.int64)
        running = self.running_fit(statement, shape, capacity)
        if running is not None:
            running.refresh()
            return np.where(mask, running.replicas, 0)
        mask = self.static_fit(statement, shape, capacity).mask & mask
        return self.capacity(statement, shape, mask, count, capacity).replicas

    def exceeds_nodes(self, statement: Statement, shape: Shape, capacity: Capacity) -> bool:
        """Whether a pod requests a resource of no node, or more than any had free at first.

        Then it fits nowhere. Everything but evictions only takes capacity; once a pod was evicted,
        the second is no longer known, and the answer is False.
        """
        snapshot, positions = statement.snapshot, statement.snapshot.resources.positions
        is_idle, changed = capacity is Capacity.IDLE, bool(statement.evicted)
        most = snapshot.most_idle if is_idle else snapshot.most_future_idle
        for name, amount in shape.reported_requests.items():
            position = positions.get(name)
            if position is None or (not changed and amount > most[position]):
                return True
        return False

    def fits_nowhere(self, statement: Statement, shape: Shape, capacity: Capacity) -> bool:
        """``exceeds_free`` where that is worth its time, else ``exceeds_nodes``.

        That is so where no running fit is known, which tells more, and nothing was placed since the
        last call, so that pods after this one may not fit, either.
        """
        changes, asked = len(statement.changed_rows), self._asked.get(capacity)
        self._asked[capacity] = changes
        if changes != asked or (shape.number, capacity, False) in self._running_fits:
            return self.exceeds_nodes(statement, shape, capacity)
        return self.exceeds_free(statement, shape, capacity)

    def exceeds_free(self, statement: Statement, shape: Shape, capacity: Capacity) -> bool:
        """As ``exceeds_nodes``, but also with what any node has free by now. O(nodes)."""
        if self.exceeds_nodes(statement, shape, capacity):
            return True
        positions, most = statement.snapshot.resources.positions, self._most(statement, capacity)
        return any(amount > most[positions[n]] for n, amount in shape.reported_requests.items())

    def _most(self, statement: Statement, capacity: Capacity) -> list[float]:
        """(resources,) the most of each resource that any node has free now."""
        known, changes = self._most_free.get(capacity), len(statement.changed_rows)
        if known is not None and known[0] is statement and known[1] == changes:
            return known[2]
        most: list[float] = statement.free(capacity).max(axis=1, initial=-np.inf).tolist()
        self._most_free[capacity] = statement, changes, most
        return most

    def may_fit_later(self, statement: Statement, shape: Shape) -> bool:
        """Whether a pod fits on any node by resources alone once terminating pods have gone."""
        if self.fits_nowhere(statement, shape, Capacity.FUTURE_IDLE):
            return False
        known = self.running_fit(statement, shape, Capacity.FUTURE_IDLE)
        if known is not None:
            return known.is_feasible()
        return bool(self.future_replicas(statement, shape).any())

    def future_replicas(self, statement: Statement, shape: Shape) -> Ints:
        """(nodes,) pods that fit by resources alone once terminating pods have gone; a new array.

        Pod rules and devices of claims are not considered.
        """
        if self.fits_nowhere(statement, shape, Capacity.FUTURE_IDLE):
            return np.zeros(len(statement.snapshot.nodes), dtype=np.int64)
        known = self.running_fit(statement, shape, Capacity.FUTURE_IDLE)
        if known is not None:
            known.refresh()
            return known.replicas.copy()
        nodes = statement.snapshot.nodes
        mask = self.static_fits.of(shape, nodes).mask
        free = statement.free(Capacity.FUTURE_IDLE)
        return replicas_that_fit(shape, statement.snapshot.resources, free, mask, nodes.allocatable)


def only_resources_decide(statement: Statement, shape: Shape) -> bool:
    """Whether only free resources decide if a pod fits on a node that admits it."""
    return is_resources_only(shape, statement.limits) and not statement.pod_rules.concern(shape)


def dominates(statement: Statement, fits: ShapeFits, shape: Shape, other: Shape) -> bool:
    """Whether a pod of ``shape`` fits only where one of ``other`` fits too."""
    if shape is other:
        return True
    if any(each.has_claims or each.plugin_equivalents for each in (shape, other)):
        return False
    if statement.limits.refusing(other) or not _has_equal_rules(statement, shape, other):
        return False
    if any(shape.requests.get(name, 0.0) < amount for name, amount in other.requests.items()):
        return False
    if not _gpu_share_dominates(shape, other):
        return False
    of, nodes = fits.static_fits.of, statement.snapshot.nodes
    mask, others = of(shape, nodes).mask, of(other, nodes).mask
    # Shapes that differ only in amounts share theirs.
    return mask is others or not (mask & ~others).any()


def _has_equal_rules(statement: Statement, shape: Shape, other: Shape) -> bool:
    """Whether the rules between pods admit pods of both shapes to the same nodes."""
    concern = statement.pod_rules.concern
    if not concern(shape) and not concern(other):
        return True
    return (
        shape.namespace == other.namespace
        and shape.labels == other.labels
        and shape.topology_spread == other.topology_spread
        and (shape.pod_affinity, shape.pod_anti_affinity)
        == (other.pod_affinity, other.pod_anti_affinity)
    )


def _gpu_share_dominates(shape: Shape, other: Shape) -> bool:
    ours, theirs = shape.gpu_share, other.gpu_share
    if theirs is None:
        return True
    if ours is None:
        return not theirs.memory and shape.requests.get(GPU_RESOURCE, 0.0) >= theirs.devices
    return ours.devices == theirs.devices and (
        ours.fraction >= theirs.fraction and ours.memory >= theirs.memory
    )
