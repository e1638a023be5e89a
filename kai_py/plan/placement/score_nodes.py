"""Nodes by score: the best node, and the GPU to share there, for one pod of a shape or for many.

Scores are cached per shape. The statement lists the nodes that changed, and only these are scored
again, unless a node in the same state was scored before. Nodes in the same state are scored once.
So a placement costs what has changed since the last pod of its shape, plus one pass over the
scores. Ties go to the first node by name: a
stable order is part of why the scores pack well.

A pod changes the score of its own node only. For many pods, the scores of a node after one more
replica, two more, … are computed at once, for many nodes at a time, and a heap merges the nodes:
the next pod goes to the first by (preference, score, row), and its node is put back with its next
score. The result is that of placing pod by pod. O(log n) per pod, and one score per node and
replica.
"""

import heapq
from collections import Counter

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.statement import Statement
from kai_py.policy.fit import replicas_that_fit
from kai_py.policy.score.node_capacity import (
    ANY_DEVICE,
    DECIMALS,
    WHOLE_GPU,
    GpuRequest,
    NodeCapacity,
    Score,
    free_milli_by_node,
)
from kai_py.snapshot.resources import Bools, Floats, Ints
from kai_py.snapshot.shape import Shape

INFEASIBLE = -np.inf

FEW_CHANGES = 8
"""Up to so many changed nodes are looked up one by one, more of them scored as arrays."""

ScoreInputs = tuple[bytes, bytes, int]
"""All that the score of a node depends on: free capacity, free parts of GPUs, kind."""


class NodeChoice(Struct, frozen=True):
    """A node; ``gpu_fraction``: how much (0 to 1) is free of the GPU to share; None: any GPU."""

    row: int
    gpu_fraction: float | None


class ScoredNodes:
    """Scores of nodes per shape, kept in step with the free capacity of a statement."""

    def __init__(
        self,
        statement: Statement,
        score: Score,
        capacity: Capacity,
        node_kinds: Ints,
    ) -> None:
        """``node_kinds``: (nodes,) numbers that tell apart nodes which scores treat differently."""
        self._statement = statement
        self._score = score
        self._capacity = capacity
        snapshot = statement.snapshot
        self._gpu_row = snapshot.resources.positions.get(GPU_RESOURCE)
        nodes = len(snapshot.nodes)
        devices = np.zeros(nodes)
        if self._gpu_row is not None:
            devices = snapshot.nodes.allocatable[self._gpu_row]
        self._devices = np.asarray(devices, dtype=np.int64)
        self._free_milli = self._all_free_milli(int(self._devices.max(initial=0)) or 1)
        self._node_kinds = self._distinct_kinds(node_kinds)
        self._state_numbers: dict[ScoreInputs, int] = {}
        self._states = self._states_of_all()
        self._shapes: dict[int, _ShapeScores] = {}
        self._seen = len(statement.changed_rows)

    def pick(self, shape: Shape, mask: Bools, preference: Ints | None) -> NodeChoice | None:
        """The best feasible node in ``mask``, by preference, then score; None if there is none.

        ``mask``: (nodes,) bool; ``preference``: (nodes,) int, higher first.
        """
        scores = self._shape_scores(shape)
        allowed = np.where(mask, scores.score, INFEASIBLE)
        row = int(allowed.argmax())
        if allowed[row] == INFEASIBLE:
            return None
        if preference is not None and scores.differ_in(preference):
            ranks = np.where(allowed > INFEASIBLE, preference, INFEASIBLE)
            row = int(np.where(ranks == ranks.max(), allowed, INFEASIBLE).argmax())
        device = int(scores.device[row])
        part = None if device == ANY_DEVICE else float(self._free_milli[row, device]) / WHOLE_GPU
        return NodeChoice(row, part)

    def scores(self, shape: Shape) -> Floats:
        """(nodes,) the score of every node for one more pod; ``INFEASIBLE`` where none fits."""
        return self._shape_scores(shape).score

    def scores_ahead(self, shape: Shape, rows: Ints, replicas: Ints, more: int) -> Floats:
        """(rows, more) scores with ``replicas`` (rows,) more pods on each, one more, and so on.

        The shape must request whole GPUs or none.
        """
        taken = (replicas[:, None] + np.arange(more)).reshape(-1)
        at = np.repeat(rows, more)
        free = self._free(at) - self._statement.request_vector(shape)[:, None] * taken
        parts = self._free_milli[at]
        whole = parts >= WHOLE_GPU
        taken_gpus = taken * int(shape.requests.get(GPU_RESOURCE, 0.0))
        parts[whole & (whole.cumsum(axis=1) <= taken_gpus[:, None])] = 0.0
        scores, _ = self._score_of(shape, at, free, parts)
        return scores.reshape(len(rows), more)

    def _shape_scores(self, shape: Shape) -> "_ShapeScores":
        self._sync()
        known = self._shapes.get(shape.number)
        changes = self._statement.changed_rows
        if known is None:
            nodes = len(self._devices)
            known = _ShapeScores(
                np.full(nodes, INFEASIBLE), np.full(nodes, ANY_DEVICE, dtype=np.int64)
            )
            self._shapes[shape.number] = known
            self._rescore(shape, known, np.arange(nodes))
        elif known.seen < len(changes):
            self._rescore(shape, known, np.array(sorted(set(changes[known.seen :]))))
        known.seen = len(changes)
        return known

    def _distinct_kinds(self, score_kinds: Ints) -> list[int]:
        """By node, a number shared by nodes that differ in nothing but their free capacity."""
        snapshot = self._statement.snapshot
        reported = snapshot.nodes.allocatable > 0
        memory = snapshot.gpu_sharing.memory
        columns = np.column_stack((score_kinds, reported.T, self._devices, memory))
        kinds = np.unique(columns, axis=0, return_inverse=True)[1]
        listed: list[int] = np.asarray(kinds).reshape(-1).tolist()
        return listed

    def _states_of_all(self) -> Ints:
        """(nodes,) a number for the state of each node; nodes in the same state score the same."""
        free = np.ascontiguousarray(self._free(np.arange(len(self._node_kinds))).T)
        inputs = zip(free, self._free_milli, self._node_kinds, strict=True)
        return np.array([self._state(*each) for each in inputs], dtype=np.int64)

    def _state(self, free: Floats, free_milli: Floats, kind: int) -> int:
        """The number of a node's state; ``free``: (resources,), ``free_milli``: (devices,)."""
        numbers = self._state_numbers
        return numbers.setdefault((free.tobytes(), free_milli.tobytes(), kind), len(numbers))

    def _sync(self) -> None:
        changes = self._statement.changed_rows
        for row in dict.fromkeys(changes[self._seen :]):
            self._refresh(row)
            free, parts = self._free(row), self._free_milli[row]
            self._states[row] = self._state(free, parts, self._node_kinds[row])
        self._seen = len(changes)

    def _all_free_milli(self, devices: int) -> Floats:
        """(nodes, devices) free milli-GPUs of each GPU; ``_refresh`` is the same for one node."""
        whole = np.zeros(len(self._devices))
        if self._gpu_row is not None:
            whole = self._statement.free(self._capacity)[self._gpu_row]
        rows, free = self._statement.gpu_parts.shared.all_free_fractions(self._capacity)
        return free_milli_by_node(rows, free, whole, devices)

    def _refresh(self, row: int) -> None:
        whole = 0
        if self._gpu_row is not None:
            whole = int(max(self._free(row)[self._gpu_row], 0.0))
        parts = self._free_milli[row]
        shared = self._statement.gpu_parts.shared.free_fractions(row, self._capacity)[: len(parts)]
        parts[:] = 0.0
        count = len(shared)
        parts[:count] = np.round(np.maximum(shared, 0.0) * WHOLE_GPU, DECIMALS)
        parts[count : count + whole] = WHOLE_GPU

    def _free(self, at: int | Ints) -> Floats:
        statement = self._statement
        if self._capacity is Capacity.FUTURE_IDLE:
            return np.asarray(statement.future_idle[:, at])
        return np.minimum(statement.idle[:, at], statement.future_idle[:, at])

    def _gpu_request(self, shape: Shape, rows: Ints) -> GpuRequest:
        cpu, memory = shape.requests.get("cpu", 0.0), shape.requests.get("memory", 0.0)
        share = shape.gpu_share
        if share is None:
            whole = np.full(len(rows), WHOLE_GPU)
            return GpuRequest(cpu, memory, int(shape.requests.get(GPU_RESOURCE, 0.0)), whole)
        of_gpus = self._statement.snapshot.gpu_sharing.memory[rows]
        required = self._statement.gpu_parts.shared.required_mib(share)[rows]
        milli = np.round(required / of_gpus * WHOLE_GPU, DECIMALS)
        return GpuRequest(cpu, memory, share.devices, milli)

    def _rescore(self, shape: Shape, scores: "_ShapeScores", rows: Ints) -> None:
        if len(rows) > FEW_CHANGES:
            self._score_rows(shape, scores, rows)
            return
        new = [row for row in rows.tolist() if self._states[row] not in scores.by_state]
        if new:
            self._score_rows(shape, scores, np.array(new))
        for row in rows.tolist():
            state = int(self._states[row])
            if row in new:
                scores.by_state[state] = float(scores.score[row]), int(scores.device[row])
            else:
                scores.score[row], scores.device[row] = scores.by_state[state]

    def _score_rows(self, shape: Shape, scores: "_ShapeScores", rows: Ints) -> None:
        """Score one node of each state for all of them."""
        _, first, of_row = np.unique(self._states[rows], return_index=True, return_inverse=True)
        distinct = rows[first]
        found = self._score_of(shape, distinct, self._free(distinct), self._free_milli[distinct])
        scores.score[rows], scores.device[rows] = (each[of_row.reshape(-1)] for each in found)

    def _score_of(
        self, shape: Shape, rows: Ints, free: Floats, free_milli: Floats
    ) -> tuple[Floats, Ints]:
        """(rows,) score, and GPU to share, of nodes by free resources and free parts of GPUs.

        ``free``: (resources, rows); ``free_milli``: (rows, devices).
        """
        score = np.full(len(rows), INFEASIBLE)
        device = np.full(len(rows), ANY_DEVICE, dtype=np.int64)
        snapshot = self._statement.snapshot
        everywhere = np.ones(len(rows), dtype=np.bool_)
        allocatable = snapshot.nodes.allocatable[:, rows]
        feasible = replicas_that_fit(shape, snapshot.resources, free, everywhere, allocatable) > 0
        request = self._gpu_request(shape, rows)
        if shape.gpu_share is not None:
            feasible &= (free_milli >= request.milli[:, None]).sum(axis=1) >= request.devices
        if not feasible.any():
            return score, device
        at = rows[feasible]
        capacity = NodeCapacity(
            rows=at,
            cpu=free[snapshot.resources.positions["cpu"], feasible],
            memory=free[snapshot.resources.positions["memory"], feasible],
            free_milli=free_milli[feasible],
            devices=self._devices[at],
        )
        found = self._score(replace(request, milli=request.milli[feasible]), capacity)
        score[feasible], device[feasible] = found.score, found.gpu
        return score, device


class _ShapeScores(Struct):
    """Scores of a shape and GPUs to share, (nodes,) each.

    ``seen``: how many changes of the statement they include; ``by_state``: known scores.
    """

    score: Floats
    device: Ints
    seen: int = 0
    by_state: dict[int, tuple[float, int]] = field(default_factory=dict)
    _preference: Ints | None = None
    _differs: bool = False

    def differ_in(self, preference: Ints) -> bool:
        """Whether ``preference`` (nodes,) prefers some nodes to others; cached for one array."""
        if preference is not self._preference:
            self._preference = preference
            self._differs = bool(preference.min() != preference.max())
        return self._differs


NODES_AT_ONCE, REPLICAS_AT_ONCE = 64, 8
"""How many nodes are scored ahead at a time, and for how many replicas on each."""


class ScoredFit(Struct, frozen=True):
    """The order of nodes for a shape, if only resources and scores decide.

    ``mask``: (nodes,) bool, where its pods may go. ``preference``: (nodes,) ranks, higher is
    better; scores decide among equal ranks.
    """

    scored: ScoredNodes
    shape: Shape
    mask: Bools
    preference: Ints

    def is_feasible(self) -> bool:
        """Whether one pod fits."""
        return bool((self.scored.scores(self.shape)[self.mask] > INFEASIBLE).any())

    def first_row(self) -> int | None:
        """The row for a single pod; None when it fits nowhere."""
        pick = self.scored.pick(self.shape, self.mask, self.preference)
        return None if pick is None else pick.row

    def next_rows(self, count: int) -> list[int]:
        """The rows of the next ``count`` pods; fewer if not all fit."""
        scores = np.where(self.mask, self.scored.scores(self.shape), INFEASIBLE)
        order = self._best(scores, count)
        ranks, highest = self.preference[order].tolist(), scores[order].tolist()
        heap = [
            (-rank, -score, row)
            for rank, score, row in zip(ranks, highest, order.tolist(), strict=True)
        ]
        ahead = _ScoresAhead(self.scored, self.shape, order, min(count, REPLICAS_AT_ONCE))
        chosen: list[int] = []
        while heap:
            negated_rank, _, row = heap[0]
            chosen.append(row)
            if len(chosen) == count:
                break
            score = ahead.next_score(row)
            if score == INFEASIBLE:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (negated_rank, -score, row))
        return chosen

    def _best(self, scores: Floats, count: int) -> Ints:
        """The best feasible rows in order, at most ``count``, as that many pods need no more."""
        rows = np.flatnonzero(scores > INFEASIBLE)
        return rows[np.lexsort((rows, -scores[rows], -self.preference[rows]))[:count]]


class _ScoresAhead:
    """Scores of nodes with one more replica each time, computed for ``more`` replicas at once.

    ``order``: the rows in the order in which they are first reached.
    """

    def __init__(self, scored: ScoredNodes, shape: Shape, order: Ints, more: int) -> None:
        self._scored, self._shape, self._more = scored, shape, more
        self._order, self._reached = order, 0
        self._replicas: Counter[int] = Counter()
        self._known: dict[int, list[float]] = {}

    def next_score(self, row: int) -> float:
        """The score of a node with one more replica than at the last call."""
        if not self._known.get(row):
            self._score_ahead(row)
        self._replicas[row] += 1
        return self._known[row].pop()

    def _score_ahead(self, row: int) -> None:
        rows = [row]
        if not self._replicas[row]:
            rows = self._order[self._reached : self._reached + NODES_AT_ONCE].tolist()
            self._reached += len(rows)
        had = np.array([self._replicas[each] for each in rows])
        scores = self._scored.scores_ahead(self._shape, np.array(rows), had + 1, self._more)
        for each, of_row in zip(rows, scores[:, ::-1].tolist(), strict=True):
            self._known[each] = of_row
