"""What is held of each node's devices, as one number per node: equal numbers, equal standing.

What exactly is held of a GPU of which nothing more can be had makes no difference.

Follows an allocation state through the changes it lists, so that a look costs what changed; a copy
starts from what is known of its origin.
"""

import weakref
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from kai_py.dra.capacity import ConsumedCapacity
from kai_py.dra.cluster_layout import ClusterLayout, Interner, Ints
from kai_py.dra.device_state import DeviceState, PoolUsage
from kai_py.dra.identity import PoolID
from kai_py.dra.inventory import NodeDevices
from kai_py.dra.physical_devices import PhysicalDevices
from kai_py.dra.pools import Pool

UNUSED_NODE = 0

_AllocatedDevice = tuple[int, int, int, ConsumedCapacity]
"""A device by its place in the pool, and its ``Holding``."""
_WHOLE: tuple[int, int, ConsumedCapacity] = (1, 0, ())
_EXHAUSTED: tuple[int, int, ConsumedCapacity] = (-1, 0, ())


@dataclass(slots=True, eq=False)
class _TrackedState:
    """The numbers of one state, up to a position in its list of changes."""

    layout: ClusterLayout
    changes_seen: int
    numbers: Ints


@dataclass(slots=True, eq=False)
class UsageClasses:
    """Numbers usage by value, for all states alike."""

    _pool_numbers: Interner = field(default_factory=Interner)
    _node_numbers: Interner = field(default_factory=Interner)
    _tracked: "weakref.WeakKeyDictionary[DeviceState, _TrackedState]" = field(
        default_factory=weakref.WeakKeyDictionary
    )

    def of_nodes(self, layout: ClusterLayout, state: DeviceState) -> Ints:
        """(nodes,) int64, read-only until the next call."""
        followed = self._tracked.get(state)
        if followed is None or followed.layout is not layout:
            numbers, changed = self._start(layout, state)
            followed = self._tracked[state] = _TrackedState(layout, len(state.changes), numbers)
        else:
            changed = state.changes[followed.changes_seen :]
            followed.changes_seen = len(state.changes)
        for node in sorted({n for pool in changed for n in layout.nodes_by_pool.get(pool, ())}):
            followed.numbers[node] = self.of_view(layout.views[node], state.pools)
        return followed.numbers

    def _start(self, layout: ClusterLayout, state: DeviceState) -> tuple[Ints, list[PoolID]]:
        """Return numbers to start from and the pools for which they may be wrong."""
        origin = state.origin
        if origin is None:
            return np.full(len(layout.nodes), UNUSED_NODE, dtype=np.int64), list(state.pools)
        changed = [*origin.changes[state.forked_at :], *state.changes]
        return self.of_nodes(layout, origin).copy(), changed

    def of_view(self, view: NodeDevices, usage: Mapping[PoolID, PoolUsage]) -> int:
        """Number what is held of one node's pools."""
        parts = tuple(
            0
            if (held := usage.get(pool.id)) is None
            else self._pool_numbers[_usage_key(pool, held)]
            for pool in view.pools
        )
        return self._node_numbers[parts] if any(parts) else UNUSED_NODE


def _usage_key(pool: Pool, usage: PoolUsage) -> Hashable:
    """Describe usage by the places of devices in the pool; strangers by what they draw."""
    numbers = pool.positions
    known = [
        (numbers[name], held.exclusive_holders, held.shares, held.consumed)
        for name, held in usage.devices.items()
        if name in numbers
    ]
    if len(known) == len(usage.devices):
        return tuple(sorted(_merge_exhausted(pool.physical_devices, known)))
    return (tuple(sorted(known)), tuple(sorted(usage.counters.items())))


def _merge_exhausted(
    physical_devices: PhysicalDevices, known: Iterable[_AllocatedDevice]
) -> Iterator[_AllocatedDevice]:
    """What is held, with a mark in place of all that is held of a spent card."""
    by_card: dict[int, list[_AllocatedDevice]] = {}
    for held in known:
        if physical_devices.by_partition[held[0]] is None:
            yield held
        else:
            by_card.setdefault(physical_devices.first_partitions[held[0]], []).append(held)
    for first, parts in by_card.items():
        card = physical_devices.by_partition[first]
        places = tuple(sorted(physical_devices.positions[held[0]] for held in parts))
        held_whole = all(held[1:] == _WHOLE for held in parts)
        if card is not None and held_whole and card.is_exhausted(places):
            yield first, *_EXHAUSTED
        else:
            yield from parts
