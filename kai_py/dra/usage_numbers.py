"""What is held of each node's devices, as one number per node: equal numbers, equal standing.

Follows an allocation state through the changes it lists, so that a look costs what changed; a copy
starts from what is known of its origin.
"""

import weakref
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

import numpy as np

from kai_py.dra.fleet_layout import FleetLayout, Ints, Numbering
from kai_py.dra.holdings import DeviceState, PoolUsage
from kai_py.dra.identity import PoolID
from kai_py.dra.inventory import NodeView
from kai_py.dra.pools import Pool

UNUSED_NODE = 0


@dataclass(slots=True, eq=False)
class _Followed:
    """The numbers of one state, up to a position in its list of changes."""

    layout: FleetLayout
    seen: int
    numbers: Ints


@dataclass(slots=True, eq=False)
class UsageNumbers:
    """Numbers usage by value, for all states alike."""

    _pool_numbers: Numbering = field(default_factory=Numbering)
    _node_numbers: Numbering = field(default_factory=Numbering)
    _followed: "weakref.WeakKeyDictionary[DeviceState, _Followed]" = field(
        default_factory=weakref.WeakKeyDictionary
    )

    def of_nodes(self, layout: FleetLayout, state: DeviceState) -> Ints:
        """(nodes,) int64, read-only until the next call."""
        followed = self._followed.get(state)
        if followed is None or followed.layout is not layout:
            numbers, changed = self._start(layout, state)
            followed = self._followed[state] = _Followed(layout, len(state.changes), numbers)
        else:
            changed = state.changes[followed.seen :]
            followed.seen = len(state.changes)
        for node in sorted({n for pool in changed for n in layout.viewers.get(pool, ())}):
            followed.numbers[node] = self.of_view(layout.views[node], state.pools)
        return followed.numbers

    def _start(self, layout: FleetLayout, state: DeviceState) -> tuple[Ints, list[PoolID]]:
        """Return numbers to start from and the pools for which they may be wrong."""
        origin = state.origin
        if origin is None:
            return np.full(len(layout.nodes), UNUSED_NODE, dtype=np.int64), list(state.pools)
        changed = [*origin.changes[state.forked_at :], *state.changes]
        return self.of_nodes(layout, origin).copy(), changed

    def of_view(self, view: NodeView, usage: Mapping[PoolID, PoolUsage]) -> int:
        """Number what is held of one node's pools."""
        parts = tuple(
            0 if (held := usage.get(pool.id)) is None else self._pool_numbers[_key(pool, held)]
            for pool in view.pools
        )
        return self._node_numbers[parts] if any(parts) else UNUSED_NODE


def _key(pool: Pool, usage: PoolUsage) -> Hashable:
    """Describe usage by the places of devices in the pool; strangers by what they draw."""
    numbers = pool.numbers
    known = sorted(
        (numbers[name], held.whole, held.shares, held.consumed)
        for name, held in usage.holdings.items()
        if name in numbers
    )
    if len(known) == len(usage.holdings):
        return tuple(known)
    return (tuple(known), tuple(sorted(usage.counters.items())))
