"""What is held of each node's devices, as one number per node: equal numbers, equal standing.

What exactly is held of a GPU of which nothing more can be had makes no difference.

Follows an allocation state through the changes it lists, so that a look costs what changed; a copy
starts from what is known of its origin.
"""

import weakref
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from kai_py.dra.capacity import Amounts
from kai_py.dra.cards import PoolCards
from kai_py.dra.fleet_layout import FleetLayout, Ints, Numbering
from kai_py.dra.holdings import DeviceState, PoolUsage
from kai_py.dra.identity import PoolID
from kai_py.dra.inventory import NodeView
from kai_py.dra.pools import Pool

UNUSED_NODE = 0

_Held = tuple[int, int, int, Amounts]
"""A device by its place in the pool, and its ``Holding``."""
_WHOLE: tuple[int, int, Amounts] = (1, 0, ())
_SPENT: tuple[int, int, Amounts] = (-1, 0, ())


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
    known = [
        (numbers[name], held.whole, held.shares, held.consumed)
        for name, held in usage.holdings.items()
        if name in numbers
    ]
    if len(known) == len(usage.holdings):
        return tuple(sorted(_without_spent(pool.cards, known)))
    return (tuple(sorted(known)), tuple(sorted(usage.counters.items())))


def _without_spent(cards: PoolCards, known: Iterable[_Held]) -> Iterator[_Held]:
    """What is held, with a mark in place of all that is held of a spent card."""
    by_card: dict[int, list[_Held]] = {}
    for held in known:
        if cards.cards[held[0]] is None:
            yield held
        else:
            by_card.setdefault(cards.firsts[held[0]], []).append(held)
    for first, parts in by_card.items():
        card = cards.cards[first]
        places = tuple(sorted(cards.places[held[0]] for held in parts))
        held_whole = all(held[1:] == _WHOLE for held in parts)
        if card is not None and held_whole and card.is_spent(places):
            yield first, *_SPENT
        else:
            yield from parts
