"""How many pods of a shape does a limit let on each node?

Asked of all nodes that have the limit once, and then only of those where something changed.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import numpy as np

from kai_py.plan.state.capacity import Room
from kai_py.snapshot.resources import Ints
from kai_py.snapshot.shape import Shape

Ask = Callable[[int, Shape, Room, int], int]
"""Node row, shape, room and most to pods, exact up to most."""


@dataclass(slots=True)
class _Known:
    """(nodes,) pods, exact up to ``most``, and how many changes they take into account."""

    copies: Ints
    most: int
    seen: int


class KeptCopies:
    """Answers by shape and room for those nodes that have the limit; others let any number on."""

    def __init__(self, nodes: int, limited: Collection[int], ask: Ask) -> None:
        """``limited``: rows of the nodes that ``ask`` is asked about."""
        self._nodes = nodes
        self._limited = limited
        self._ask = ask
        self._known: dict[tuple[int, Room], _Known] = {}
        self._changes: list[int] = []

    def changed(self, row: int) -> None:
        """Ask about a node again."""
        self._changes.append(row)

    def of(self, shape: Shape, room: Room, most: int) -> Ints:
        """(nodes,) pods of the shape, at least ``most`` without a limit; not to be written to."""
        known = self._known.get((shape.number, room))
        rows: Iterable[int] = self._limited
        if known is None or known.most < most:
            known = _Known(np.full(self._nodes, most, dtype=np.int64), most, 0)
            self._known[shape.number, room] = known
        else:
            rows = dict.fromkeys(self._changes[known.seen :])
        known.seen = len(self._changes)
        for row in rows:
            known.copies[row] = self._ask(row, shape, room, known.most)
        return known.copies
