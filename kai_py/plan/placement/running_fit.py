"""Running fit: how many pods of one shape fit on each node, and where the next one goes.

For shapes that only need resources of nodes: no devices of claims, no parts of GPUs, no limits of
nodes, no pod rules. A placement then changes the fit on its own node only, and a node is counted
again when the statement lists it as changed:

    fit[node] = floor(min over requested resources of free / request), 0 on nodes not admitted

The next node for a single pod is the first by (preference, fit, slack, row), as ``fill`` would
choose for one pod. It is found in a sorted list of the unchanged nodes and a heap of those that
changed. O(n log n) once, then O(changes x log n).
"""

import heapq
from math import floor

import numpy as np

from kai_py.api.choices import FillStrategy
from kai_py.plan.placement.preferences import with_idle
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.limits.base import NodeLimits
from kai_py.plan.state.statement import Statement
from kai_py.policy.fill import fill
from kai_py.policy.fit import replicas_that_fit
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape

FEW_CHANGES = 8
"""Up to so many changed nodes are counted one by one, more of them as arrays."""

REORDER_FRACTION = 4
"""All nodes are sorted again when more than FEW_CHANGES and one in this many changed."""

NodeKey = tuple[int, int, float, int]
"""The sort key of a feasible node: negated preference, pods that fit, slack, row."""


def is_resources_only(shape: Shape, limits: NodeLimits) -> bool:
    """As ``fits_by_resources``, and no limit of nodes has to count the pods."""
    return fits_by_resources(shape, limits) and not limits.tracked(shape)


def fits_by_resources(shape: Shape, limits: NodeLimits) -> bool:
    """Whether only resources decide where pods of the shape fit, apart from pod rules."""
    special = (
        shape.has_claims or shape.plugin_equivalents or limits.refusing(shape) or shape.gpu_share
    )
    return not special and bool(shape.requests)


class RunningFit:
    """The fit of one shape in idle or future idle capacity.

    ``allowed``: (nodes,) bool, where its pods may go. ``preference``: (nodes,) ranks, higher is
    better; for future idle capacity the tier ``IDLE`` is added. ``slack_row``: the resource of
    which the node with the least left is preferred; None if no node has it. ``idle``: for future
    idle capacity, the same fit in idle capacity if it is known.

    ``replicas``: (nodes,) int64, the pods that fit; current after ``refresh``.
    """

    def __init__(
        self,
        statement: Statement,
        shape: Shape,
        allowed: Bools,
        preference: Ints,
        slack_row: int | None,
        *,
        capacity: Capacity = Capacity.IDLE,
        idle: "RunningFit | None" = None,
    ) -> None:
        resources, free = statement.snapshot.resources, statement.free(capacity)
        self.statement = statement
        self.capacity = capacity
        reported = all(name in resources.positions for name in shape.requests)
        self.allowed = allowed & reported
        allocatable = statement.snapshot.nodes.allocatable
        self.replicas = replicas_that_fit(shape, resources, free, allowed, allocatable)
        self.preference = preference
        if capacity is Capacity.FUTURE_IDLE:
            if idle is None:
                free_now = statement.free(Capacity.IDLE)
                starts = replicas_that_fit(shape, resources, free_now, allowed, allocatable)
            else:
                idle.refresh()
                starts = idle.replicas
            self.preference = with_idle(preference, idle=starts > 0)
        self._static_preference = preference
        self.slack = np.zeros(len(allowed)) if slack_row is None else free[slack_row].copy()
        self._slack_row = slack_row
        self._requests = [
            (resources.positions[name], request)
            for name, request in shape.requests.items()
            if reported
        ]
        self._seen = len(statement.changed_rows)
        self._order: list[int] | None = None
        self._next = 0
        self._changed: dict[int, NodeKey | None] = {}
        self._heap: list[NodeKey] = []

    def refresh(self) -> None:
        """Count nodes again that changed since the last call."""
        changes = self.statement.changed_rows
        if self._seen == len(changes):
            return
        rows = [row for row in dict.fromkeys(changes[self._seen :]) if self.allowed[row]]
        self._seen = len(changes)
        if len(rows) > FEW_CHANGES:
            self._update_many(np.array(rows))
        else:
            for row in rows:
                self._update(row)
        if self._order is None:
            return
        if len(rows) > FEW_CHANGES and len(rows) * REORDER_FRACTION > len(self._order):
            self._forget_order()
            return
        for row in rows:
            self._push(row)

    def is_feasible(self) -> bool:
        """Whether one pod fits."""
        self.refresh()
        return bool(self.replicas.any())

    def holds(self, row: int) -> bool:
        """Whether one pod fits on the node."""
        self.refresh()
        return bool(self.replicas[row])

    def first_row(self) -> int | None:
        """The row for a single pod; None when it fits nowhere."""
        self.refresh()
        unchanged, changed = self._first_unchanged(), self._first_changed()
        if changed is None or (unchanged is not None and unchanged < changed):
            return None if unchanged is None else unchanged[-1]
        return changed[-1]

    def next_rows(self, count: int) -> list[int]:
        """The rows of the next ``count`` single pods in idle capacity; fewer if not all fit.

        The same as calling ``first_row`` and placing one pod after the other: the first node, with
        less capacity then, stays the first until it is full.
        """
        self.refresh()
        rows = self._in_order()
        needed = np.searchsorted(np.cumsum(self.replicas[rows]), count) + 1
        chosen: list[int] = np.repeat(rows[:needed], self.replicas[rows[:needed]])[:count].tolist()
        return chosen

    def rows_together(self, count: int, strategy: FillStrategy) -> list[int]:
        """The rows of ``count`` pods that are placed together; empty if not all fit."""
        self.refresh()
        chunks = fill(count, self.replicas, self.preference, self.slack, strategy)
        rows = [row for row, pods in chunks for _ in range(pods)]
        return rows if len(rows) == count else []

    def _update(self, row: int) -> None:
        free = self.statement.free_on(row, self.capacity)
        fit = min([free[position] / amount for position, amount in self._requests])
        self.replicas[row] = max(0, floor(fit))
        if self.capacity is Capacity.FUTURE_IDLE:
            idle = self.statement.free_on(row, Capacity.IDLE)
            starts = all(idle[position] >= amount for position, amount in self._requests)
            self.preference[row] = with_idle(self._static_preference[row], idle=starts)
        if self._slack_row is not None:
            self.slack[row] = free[self._slack_row]

    def _update_many(self, rows: Ints) -> None:
        future_idle = self.statement.future_idle[:, rows]
        idle = np.minimum(self.statement.idle[:, rows], future_idle)
        free = future_idle if self.capacity is Capacity.FUTURE_IDLE else idle
        fits = [np.floor(free[position] / amount) for position, amount in self._requests]
        self.replicas[rows] = np.maximum(np.min(fits, axis=0), 0).astype(np.int64)
        if self.capacity is Capacity.FUTURE_IDLE:
            starts = np.all(
                [idle[position] >= amount for position, amount in self._requests], axis=0
            )
            self.preference[rows] = with_idle(self._static_preference[rows], idle=starts)
        if self._slack_row is not None:
            self.slack[rows] = free[self._slack_row]

    def _forget_order(self) -> None:
        self._order, self._next = None, 0
        self._changed.clear()
        self._heap.clear()

    def _push(self, row: int) -> None:
        key = self._key(row) if self.replicas[row] else None
        self._changed[row] = key
        if key is not None:
            heapq.heappush(self._heap, key)

    def _key(self, row: int) -> NodeKey:
        return (
            -int(self.preference[row]),
            int(self.replicas[row]),
            float(self.slack[row]),
            row,
        )

    def _first_unchanged(self) -> NodeKey | None:
        if self._order is None:
            self._order = self._in_order().tolist()
        while self._next < len(self._order) and self._order[self._next] in self._changed:
            self._next += 1
        return self._key(self._order[self._next]) if self._next < len(self._order) else None

    def _in_order(self) -> Ints:
        """Feasible rows, by key."""
        rows = np.flatnonzero(self.replicas)
        keys = (rows, self.slack[rows], self.replicas[rows], -self.preference[rows])
        return rows[np.lexsort(keys)]

    def _first_changed(self) -> NodeKey | None:
        heap = self._heap
        while heap and self._changed[heap[0][-1]] != heap[0]:
            heapq.heappop(heap)
        return heap[0] if heap else None
