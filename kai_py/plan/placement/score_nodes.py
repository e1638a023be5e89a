"""Where do pods of one shape go that are placed one by one by score, found without placing them?

A pod changes the level of its own node only. So the levels that a node has after one more copy,
two more, … are scored in one go, for many nodes at a time, and a heap merges the nodes: the next
pod goes to the first by (preference, level, row), and its node comes back with its next level. The
rows are those of picking and placing pod by pod. O(log n) a pod, and one score per node and copy.
"""

import heapq
from collections import Counter
from dataclasses import dataclass

import numpy as np

from kai_py.plan.scored import NO_ROOM, ScoredNodes
from kai_py.snapshot.resources import Bools, Floats, Ints
from kai_py.snapshot.shape import Shape

NODES_AT_ONCE, COPIES_AT_ONCE = 64, 8
"""So much is scored ahead: of nodes that come next, and of copies on each."""


@dataclass(frozen=True, slots=True)
class ScoredFit:
    """The nodes of a shape that only room and score decide about.

    ``mask``: (nodes,) bool, where it may go. ``preference``: (nodes,) higher goes before the level.
    """

    scored: ScoredNodes
    shape: Shape
    mask: Bools
    preference: Floats

    def has_room(self) -> bool:
        """Whether one pod fits."""
        return bool((self.scored.levels(self.shape)[self.mask] > NO_ROOM).any())

    def first(self) -> int | None:
        """The row for a single pod; None when it fits nowhere."""
        pick = self.scored.pick(self.shape, self.mask, self.preference)
        return None if pick is None else pick.row

    def next_rows(self, count: int) -> list[int]:
        """The rows of the next ``count`` pods; fewer if not all fit."""
        level = np.where(self.mask, self.scored.levels(self.shape), NO_ROOM)
        order = self._best(level, count)
        wanted, levels = self.preference[order].tolist(), level[order].tolist()
        heap = [
            (-preferred, -high, row)
            for preferred, high, row in zip(wanted, levels, order.tolist(), strict=True)
        ]
        ahead = _Ahead(self.scored, self.shape, order, min(count, COPIES_AT_ONCE))
        chosen: list[int] = []
        while heap:
            preferred, _, row = heap[0]
            chosen.append(row)
            if len(chosen) == count:
                break
            following = ahead.after_one_more(row)
            if following == NO_ROOM:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (preferred, -following, row))
        return chosen

    def _best(self, level: Floats, count: int) -> Ints:
        """At most ``count`` rows with room, the best first: more nodes so many pods can't reach."""
        rows = np.flatnonzero(level > NO_ROOM)
        return rows[np.lexsort((rows, -level[rows], -self.preference[rows]))[:count]]


class _Ahead:
    """Levels of nodes after more and more copies, ``more`` at a time.

    ``order``: rows as they are reached first.
    """

    def __init__(self, scored: ScoredNodes, shape: Shape, order: Ints, more: int) -> None:
        self._scored, self._shape, self._more = scored, shape, more
        self._order, self._reached = order, 0
        self._copies: Counter[int] = Counter()
        self._known: dict[int, list[float]] = {}

    def after_one_more(self, row: int) -> float:
        """The level of a node once it has one more copy than when it was asked for last."""
        if not self._known.get(row):
            self._look(row)
        self._copies[row] += 1
        return self._known[row].pop()

    def _look(self, row: int) -> None:
        rows = [row]
        if not self._copies[row]:
            rows = self._order[self._reached : self._reached + NODES_AT_ONCE].tolist()
            self._reached += len(rows)
        had = np.array([self._copies[each] for each in rows])
        levels = self._scored.levels_ahead(self._shape, np.array(rows), had + 1, self._more)
        for each, following in zip(rows, levels[:, ::-1].tolist(), strict=True):
            self._known[each] = following
