"""Which things are taken on which node, now and later?

A thing is held by any number of pods: it is free again when the last of them has left. *Later*
those who leave have left, and those who were promised room have come; who starts now must get along
with both.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from kai_py.plan.state.capacity import Room

Item = TypeVar("Item")


class HeldItems(Generic[Item]):
    """Holders of each thing, by node row."""

    def __init__(self, held: Mapping[int, Iterable[tuple[Item, bool]]]) -> None:
        """``held``: per node each thing with every holder of it, and whether that one leaves."""
        self._now: dict[int, Counter[Item]] = {}
        self._later: dict[int, Counter[Item]] = {}
        for row, things in held.items():
            listed = list(things)
            self._now[row] = Counter(item for item, _ in listed)
            self._later[row] = Counter(item for item, leaves in listed if not leaves)

    @property
    def rows(self) -> list[int]:
        """Nodes on which anything is, or was, held; in order."""
        return sorted(self._now.keys() | self._later.keys())

    def on(self, row: int, room: Room) -> dict[Item, None]:
        """What is taken on a node for those who come now, or later."""
        later = self._later.get(row, Counter[Item]())
        both = later if room is Room.LATER else self._now.get(row, Counter[Item]()) + later
        return {item: None for item, holders in both.items() if holders > 0}

    def hold(self, row: int, items: Sequence[Item]) -> Callable[[], None]:
        """One more holder of each, from now on or later; returns how to undo that."""
        _count(self._later, row, items, 1)
        return lambda: _count(self._later, row, items, -1)

    def release(self, row: int, items: Sequence[Item]) -> Callable[[], None]:
        """One holder less of each, later; returns how to undo that."""
        _count(self._later, row, items, -1)
        return lambda: _count(self._later, row, items, 1)


def _count(table: dict[int, Counter[Item]], row: int, items: Sequence[Item], change: int) -> None:
    counter = table.setdefault(row, Counter())
    for item in items:
        counter[item] += change
