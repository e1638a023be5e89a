"""What is allocated of the devices that a node sees, and one number for it, equal for equal usage.

What exactly is allocated of an exhausted GPU makes no difference. Follows an allocation state
through its log of changes, so that a query costs what changed; a copy starts from the numbers of
its origin.
"""

import weakref
from collections.abc import Hashable, Iterable, Iterator, Mapping

import msgspec
import numpy as np
from msgspec import Struct, field

from kai_py.dra.capacity import ConsumedCapacity
from kai_py.dra.cluster_layout import ClusterLayout, Interner, Ints
from kai_py.dra.counters import (
    CounterLayout,
    CounterSetID,
    counters_left,
    groups_in_use,
    overdrawn_pools,
)
from kai_py.dra.device_state import FREE_DEVICE, DeviceAllocation, DeviceState, PoolUsage
from kai_py.dra.features import AllocationStrategy
from kai_py.dra.identity import PoolID
from kai_py.dra.inventory import NodeDevices
from kai_py.dra.pools import PhysicalDevices, Pool


class DeviceUsage(Struct, frozen=True, eq=False):
    """What is allocated before a search begins; immutable."""

    devices: tuple[DeviceAllocation, ...]
    """Per device of the view."""
    counters_left: tuple[int, ...]
    """Per counter what is left of it, in nano-units; negative where it is overdrawn."""
    groups: Mapping[CounterSetID, frozenset[str]] = msgspec.field(default_factory=dict)
    overdrawn: frozenset[int] = frozenset()
    """Positions of pools whose partitions are refused because some counter is overdrawn."""


def device_usage(
    view: NodeDevices,
    layout: CounterLayout,
    usage: Mapping[PoolID, PoolUsage],
    strategy: AllocationStrategy,
) -> DeviceUsage:
    """Look up what is allocated of the devices and counters of ``view``."""
    devices = [FREE_DEVICE] * len(view.rows)
    for pool, positions in zip(view.pools, view.positions, strict=True):
        pool_usage = usage.get(pool.id)
        for name, allocation in pool_usage.devices.items() if pool_usage is not None else ():
            if name in positions:
                devices[positions[name]] = allocation
    left = counters_left(layout, view, usage)
    return DeviceUsage(
        devices=tuple(devices),
        counters_left=tuple(left),
        groups=groups_in_use(view, usage) if layout.has_groups else {},
        overdrawn=overdrawn_pools(layout, left)
        if strategy is AllocationStrategy.FIRST_FIT
        else frozenset(),
    )


UNUSED_NODE = 0

_AllocatedDevice = tuple[int, int, int, ConsumedCapacity]
"""A device by its position in the pool, and its ``DeviceAllocation``."""
_WHOLE: tuple[int, int, ConsumedCapacity] = (1, 0, ())
_EXHAUSTED: tuple[int, int, ConsumedCapacity] = (-1, 0, ())


class _TrackedState(Struct, eq=False):
    """The numbers of one state, up to a position in its log of changes."""

    layout: ClusterLayout
    changes_seen: int
    numbers: Ints


class UsageClasses(Struct, eq=False):
    """Numbers usage by value, across all states."""

    _pool_numbers: Interner = field(default_factory=Interner)
    _node_numbers: Interner = field(default_factory=Interner)
    _tracked: "weakref.WeakKeyDictionary[DeviceState, _TrackedState]" = field(
        default_factory=weakref.WeakKeyDictionary
    )

    @property
    def size(self) -> int:
        """The number of states of usage seen."""
        return self._pool_numbers.size + self._node_numbers.size

    def of_nodes(self, layout: ClusterLayout, state: DeviceState) -> Ints:
        """(nodes,) int64, read-only until the next call."""
        tracked = self._tracked.get(state)
        if tracked is None or tracked.layout is not layout:
            numbers, changed = self._start(layout, state)
            tracked = self._tracked[state] = _TrackedState(layout, len(state.changes), numbers)
        else:
            changed = state.changes[tracked.changes_seen :]
            tracked.changes_seen = len(state.changes)
        for node in sorted({n for pool in changed for n in layout.nodes_by_pool.get(pool, ())}):
            tracked.numbers[node] = self.of_view(layout.views[node], state.pools)
        return tracked.numbers

    def _start(self, layout: ClusterLayout, state: DeviceState) -> tuple[Ints, list[PoolID]]:
        """The numbers to start from, and the pools for which they may be outdated."""
        origin = state.origin
        if origin is None:
            return np.full(len(layout.nodes), UNUSED_NODE, dtype=np.int64), list(state.pools)
        changed = [*origin.changes[state.forked_at :], *state.changes]
        return self.of_nodes(layout, origin).copy(), changed

    def of_view(self, view: NodeDevices, usage: Mapping[PoolID, PoolUsage]) -> int:
        """Number what is allocated of one node's pools."""
        parts = tuple(
            0
            if (pool_usage := usage.get(pool.id)) is None
            else self._pool_numbers[_usage_key(pool, pool_usage)]
            for pool in view.pools
        )
        return self._node_numbers[parts] if any(parts) else UNUSED_NODE


def _usage_key(pool: Pool, usage: PoolUsage) -> Hashable:
    """Describe usage by the positions of devices in the pool; unlisted ones by what they draw."""
    numbers = pool.positions
    listed = [
        (numbers[name], allocation.exclusive_holders, allocation.shares, allocation.consumed)
        for name, allocation in usage.devices.items()
        if name in numbers
    ]
    if len(listed) == len(usage.devices):
        return tuple(sorted(_merge_exhausted(pool.physical_devices, listed)))
    return (tuple(sorted(listed)), tuple(sorted(usage.counters.items())))


def _merge_exhausted(
    physical_devices: PhysicalDevices, known: Iterable[_AllocatedDevice]
) -> Iterator[_AllocatedDevice]:
    """The allocated devices, with one mark in place of all those of an exhausted device."""
    by_physical: dict[int, list[_AllocatedDevice]] = {}
    for device in known:
        if physical_devices.by_partition[device[0]] is None:
            yield device
        else:
            by_physical.setdefault(physical_devices.first_partitions[device[0]], []).append(device)
    for first, parts in by_physical.items():
        physical = physical_devices.by_partition[first]
        positions = tuple(sorted(physical_devices.positions[device[0]] for device in parts))
        all_whole = all(device[1:] == _WHOLE for device in parts)
        if physical is not None and all_whole and physical.is_exhausted(positions):
            yield first, *_EXHAUSTED
        else:
            yield from parts
