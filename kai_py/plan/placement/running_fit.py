"""How many pods of one shape fit on each node, and where the next one goes, kept up to date.

Nothing but the room on nodes may decide: no devices of claims, no parts of GPUs, no limits beside
the room, no rules between pods. Then a placement changes the answer on its own node only, so a node
is asked again when the statement says that its room changed:

    fit[node] = floor(min over requested resources of free / request), 0 where it may not go

For a single pod the next node is the first by (preference, fit, slack, row), what ``fill`` would
choose for one pod: a sorted list of the nodes as they were, beside a heap of those that changed.
O(n log n) once, then O(changes x log n).
"""

import heapq
from math import floor

import numpy as np

from kai_py.api.choices import FillStrategy
from kai_py.plan.state.capacity import Room
from kai_py.plan.state.limits.base import NodeLimits
from kai_py.plan.state.statement import Statement
from kai_py.policy.fill import fill
from kai_py.policy.fit import copies_that_fit
from kai_py.policy.pod_rules import has_rules
from kai_py.snapshot.resources import Bools, Floats, Ints
from kai_py.snapshot.shape import Shape

FEW = 8
"""So many changed nodes are asked one by one, more of them as arrays."""

REORDER = 4
"""When more than a few nodes and one in so many changed, all are sorted anew."""

Key = tuple[float, int, float, int]
"""A node that has room: preference (less is better), pods that fit, slack, row."""


def is_plain(shape: Shape, limits: NodeLimits) -> bool:
    """Whether nothing but the room on nodes decides where pods of the shape go."""
    return fits_by_room(shape, limits) and not limits.followed(shape)


def fits_by_room(shape: Shape, limits: NodeLimits) -> bool:
    """Whether nothing but the room on nodes decides where pods of the shape fit."""
    special = shape.uses_claims or shape.mirrored or limits.of(shape) or shape.gpu_share
    return not special and bool(shape.requests) and not has_rules(shape)


class RunningFit:
    """The fit of a plain shape for pods that start now, or that wait for room.

    ``allowed``: (nodes,) bool, the static verdict. ``preference``: (nodes,) higher first.
    ``slack_row``: the resource by which a node counts as empty, if any node has it. ``now_bonus``:
    what nodes are preferred by that have room already, for pods that may wait.
    """

    def __init__(
        self,
        statement: Statement,
        shape: Shape,
        allowed: Bools,
        preference: Floats,
        slack_row: int | None,
        *,
        room: Room = Room.NOW,
        now_bonus: float = 0.0,
    ) -> None:
        resources, free = statement.snapshot.resources, statement.free(room)
        self.statement = statement
        self.room = room
        reported = all(name in resources.positions for name in shape.requests)
        self.allowed = allowed & reported
        allocatable = statement.snapshot.nodes.allocatable
        self.copies = copies_that_fit(shape, resources, free, allowed, allocatable)
        self.preference = preference
        if room is Room.LATER:
            now = copies_that_fit(shape, resources, statement.free(Room.NOW), allowed, allocatable)
            self.preference = preference + np.where(now > 0, now_bonus, 0.0)
        self._lasting, self._now_bonus = preference, now_bonus
        self.slack = np.zeros(len(allowed)) if slack_row is None else free[slack_row].copy()
        self._slack_row = slack_row
        self._requests = [
            (resources.positions[name], request)
            for name, request in shape.requests.items()
            if reported
        ]
        self._seen = len(statement.changes)
        self._order: list[int] | None = None
        self._next = 0
        self._changed: dict[int, Key | None] = {}
        self._heap: list[Key] = []

    def refresh(self) -> None:
        """Take in what changed since the last time."""
        changes = self.statement.changes
        if self._seen == len(changes):
            return
        rows = [row for row in dict.fromkeys(changes[self._seen :]) if self.allowed[row]]
        self._seen = len(changes)
        if len(rows) > FEW:
            self._update_many(np.array(rows))
        else:
            for row in rows:
                self._update(row)
        if self._order is None:
            return
        if len(rows) > FEW and len(rows) * REORDER > len(self._order):
            self._forget_order()
            return
        for row in rows:
            self._enter(row)

    def has_room(self) -> bool:
        """Whether one pod fits."""
        self.refresh()
        return bool(self.copies.any())

    def first(self) -> int | None:
        """The row for a single pod; None when it fits nowhere."""
        self.refresh()
        unchanged, changed = self._first_unchanged(), self._first_changed()
        if changed is None or (unchanged is not None and unchanged < changed):
            return None if unchanged is None else unchanged[-1]
        return changed[-1]

    def next_rows(self, count: int) -> list[int]:
        """The rows of the next ``count`` single pods that start now; fewer if not all fit.

        What ``first`` would say after each of them: a node that was chosen has less room, and so
        stays the first until it is full.
        """
        self.refresh()
        rows = self._in_order()
        needed = np.searchsorted(np.cumsum(self.copies[rows]), count) + 1
        chosen: list[int] = np.repeat(rows[:needed], self.copies[rows[:needed]])[:count].tolist()
        return chosen

    def together(self, count: int, strategy: FillStrategy) -> list[int]:
        """The rows of ``count`` pods that start together; none if not all fit."""
        self.refresh()
        chunks = fill(count, self.copies, self.preference, self.slack, strategy)
        rows = [row for row, pods in chunks for _ in range(pods)]
        return rows if len(rows) == count else []

    def _update(self, row: int) -> None:
        free = self.statement.free_on(row, self.room)
        fit = min([free[position] / asked for position, asked in self._requests])
        self.copies[row] = max(0, floor(fit))
        if self.room is Room.LATER:
            now = self.statement.free_on(row, Room.NOW)
            starts = all(now[position] >= asked for position, asked in self._requests)
            self.preference[row] = self._lasting[row] + (self._now_bonus if starts else 0.0)
        if self._slack_row is not None:
            self.slack[row] = free[self._slack_row]

    def _update_many(self, rows: Ints) -> None:
        later = self.statement.later[:, rows]
        now = np.minimum(self.statement.idle[:, rows], later)
        free = later if self.room is Room.LATER else now
        fits = [np.floor(free[position] / asked) for position, asked in self._requests]
        self.copies[rows] = np.maximum(np.min(fits, axis=0), 0).astype(np.int64)
        if self.room is Room.LATER:
            starts = np.all([now[position] >= asked for position, asked in self._requests], axis=0)
            self.preference[rows] = self._lasting[rows] + np.where(starts, self._now_bonus, 0.0)
        if self._slack_row is not None:
            self.slack[rows] = free[self._slack_row]

    def _forget_order(self) -> None:
        self._order, self._next = None, 0
        self._changed.clear()
        self._heap.clear()

    def _enter(self, row: int) -> None:
        key = self._key(row) if self.copies[row] else None
        self._changed[row] = key
        if key is not None:
            heapq.heappush(self._heap, key)

    def _key(self, row: int) -> Key:
        return (
            -float(self.preference[row]),
            int(self.copies[row]),
            float(self.slack[row]),
            row,
        )

    def _first_unchanged(self) -> Key | None:
        if self._order is None:
            self._order = self._in_order().tolist()
        while self._next < len(self._order) and self._order[self._next] in self._changed:
            self._next += 1
        return self._key(self._order[self._next]) if self._next < len(self._order) else None

    def _in_order(self) -> Ints:
        """Rows that have room, by key."""
        rows = np.flatnonzero(self.copies)
        keys = (rows, self.slack[rows], self.copies[rows], -self.preference[rows])
        return rows[np.lexsort(keys)]

    def _first_changed(self) -> Key | None:
        heap = self._heap
        while heap and self._changed[heap[0][-1]] != heap[0]:
            heapq.heappop(heap)
        return heap[0] if heap else None
