"""Free amounts of each NUMA zone as a cycle places and evicts pods.

Applies ``policy.numa`` to the nodes that report zones: those whose kubelet rejects unaligned pods
are a limit; all of them report how many zones a pod would need. In future idle capacity terminating
pods have returned what they had of their zones. A query recomputes the nodes that changed since the
shape was last requested; nodes in the same state are computed once.
"""

from functools import partial

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.limits.base import ReplicaCache
from kai_py.plan.state.undo import Undo, no_undo
from kai_py.policy.numa import free_after_end, free_after_start, replicas_by_zones, subtract
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.numa_alignment import Alignment
from kai_py.snapshot.resources import Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.numa import AmountsByZone, NumaNode


class _FreeZones(Struct):
    """Free amounts of a node's zones; ``startable``: the lesser of both, for pods starting now."""

    idle: AmountsByZone
    future_idle: AmountsByZone
    startable: AmountsByZone


class NumaZones:
    """Zones of the nodes that report them; a NodeLimit."""

    reason = "couldn't align the pod's resources to NUMA zones"

    def __init__(self, snapshot: Snapshot) -> None:
        """Start from the reports, less what pods have that no report includes yet."""
        positions = snapshot.nodes.positions
        self._nodes = {
            positions[name]: node
            for name, node in snapshot.numa.items()
            if name in positions and (node.policy is not None or len(node.zones) > 1)
        }
        self._kinds: dict[NumaNode, int] = {}
        self._kind_by_row: dict[int, int] = {}
        self._free: dict[int, _FreeZones] = {}
        self._replicas_by_state: dict[tuple[int, AmountsByZone, int, int], tuple[int, ...]] = {}
        max_zones = max((len(node.zones) for node in self._nodes.values()), default=1)
        self._caches = [ReplicaCache(len(positions), self._nodes) for _ in range(max_zones)]
        for row, node in self._nodes.items():
            free = node.available
            for each in node.unreported:
                free = free_after_start(node, free, each) or free
            self._free[row] = _FreeZones(free, free, free)
        for member in snapshot.terminating if self._nodes else ():
            row = positions.get(member.node, -1)
            if row in self._nodes and not member.stuck_terminating:
                self.release(member, row)

    @property
    def can_refuse(self) -> bool:
        """Whether the kubelet of any node may reject a pod."""
        return any(node.policy is not None for node in self._nodes.values())

    def applies_to(self, shape: Shape) -> bool:
        """Whether any node reports zones and the shape's pods are aligned to them."""
        return bool(self._nodes) and shape.alignment is not None

    def replicas(self, shape: Shape, capacity: Capacity, max_replicas: int) -> Ints:
        """(nodes,) pods that start, ``max_replicas`` where nothing is aligned; read-only."""
        count = partial(self._count_replicas, len(self._caches))
        return self._caches[-1].replicas(shape, capacity, max_replicas, count)

    def replicas_by_zones(self, shape: Shape, capacity: Capacity, max_replicas: int) -> Ints | None:
        """(zones, nodes) pods that start one after the other with one zone each, two or fewer, ….

        ``max_replicas`` where at least as many do, and on nodes that report no zones; None: all
        nodes are equal.
        """
        if len(self._caches) == 1 or not self.applies_to(shape):
            return None
        return np.minimum(
            [
                cache.replicas(shape, capacity, max_replicas, partial(self._count_replicas, zones))
                for zones, cache in enumerate(self._caches, start=1)
            ],
            max_replicas,
        )

    def allocate(self, member: Member, row: int, capacity: Capacity) -> Undo | None:
        """Allocate zones to the pod on a node; None where the kubelet would reject it."""
        node, alignment = self._nodes.get(row), member.shape.alignment
        if node is None or alignment is None:
            return no_undo
        free = self._free[row]
        available = free.future_idle if capacity is Capacity.FUTURE_IDLE else free.startable
        left = free_after_start(node, available, alignment)
        if left is None:
            return None
        allocated = subtract(available, left)
        future_idle = subtract(free.future_idle, allocated)
        return self._set(
            row,
            free.idle if capacity is Capacity.FUTURE_IDLE else subtract(free.idle, allocated),
            future_idle,
        )

    def release(self, member: Member, row: int) -> Undo:
        """Free, in future idle capacity, what the pod has of its node's zones."""
        node, alignment = self._nodes.get(row), member.shape.alignment
        if node is None or alignment is None:
            return no_undo
        free = self._free[row]
        return self._set(
            row, free.idle, free_after_end(node, free.future_idle, alignment, member.numa_zones)
        )

    def _set(self, row: int, idle: AmountsByZone, future_idle: AmountsByZone) -> Undo:
        before = self._free[row]
        startable = tuple(tuple(map(min, *zone)) for zone in zip(idle, future_idle, strict=True))
        self._store(row, _FreeZones(idle, future_idle, startable))
        return lambda: self._store(row, before)

    def _store(self, row: int, free: _FreeZones) -> None:
        self._free[row] = free
        for cache in self._caches:
            cache.mark_changed(row)

    def _count_replicas(
        self, zones: int, row: int, shape: Shape, capacity: Capacity, max_replicas: int
    ) -> int:
        node, alignment = self._nodes[row], shape.alignment or Alignment({})
        free = (
            self._free[row].future_idle
            if capacity is Capacity.FUTURE_IDLE
            else self._free[row].startable
        )
        key = (self._node_kind(row), free, shape.number, max_replicas)
        cached = self._replicas_by_state.get(key)
        if cached is None:
            cached = self._replicas_by_state[key] = replicas_by_zones(
                node, free, alignment, max_replicas
            )
        return cached[min(zones, len(cached)) - 1]

    def _node_kind(self, row: int) -> int:
        """A number shared by nodes that differ only in what is free."""
        kind = self._kind_by_row.get(row)
        if kind is None:
            node = replace(self._nodes[row], available=(), unreported=(), problem="")
            kind = self._kind_by_row[row] = self._kinds.setdefault(node, len(self._kinds))
        return kind
