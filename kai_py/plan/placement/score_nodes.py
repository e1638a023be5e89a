"""Where do pods of one shape go that are placed one by one by score, found without placing them?

A pod changes the level of its own node only. So the levels that a node has after one more copy,
two more, … are scored in one go, for many nodes at a time, and a heap merges the nodes: the next
pod goes to the first by (preference, level, row), and its node comes back with its next level. The
rows are those of picking and placing pod by pod. O(log n) a pod, and one score per node and copy.

Which node, and which GPU of it, has the highest level for the next pod of a shape?

Used when a placement strategy with scores is configured. Levels are kept per shape; the statement
lists the nodes that changed, and only those are scored again, nodes in a state that was seen before
not even then, so that a placement costs what has changed since the last pod of its shape, plus one
pass over the levels. Ties go to the first node by
name: an order that stays the same is part of why the strategies pack well.
"""

import heapq
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from kai_py.api.gpu_share import CARD
from kai_py.plan.state.capacity import Room
from kai_py.plan.state.statement import Statement
from kai_py.policy.fit import copies_that_fit
from kai_py.policy.score.node_capacity import (
    ANY_DEVICE,
    DECIMALS,
    WHOLE,
    GpuAsk,
    GpuRooms,
    Score,
    gpu_class,
    parts_by_node,
)
from kai_py.snapshot.resources import Bools, Floats, Ints
from kai_py.snapshot.shape import Shape

NO_ROOM = -np.inf

FEW = 8
"""So many changed nodes are looked up one by one, more of them scored as arrays."""

State = tuple[bytes, bytes, int, int]
"""Free room, free parts of GPUs, kind and GPU classes of a node: all that its level depends on."""


@dataclass(frozen=True, slots=True)
class Pick:
    """A node, and how much is free (0 to 1) of the GPU to share; None: no matter which."""

    row: int
    part: float | None


class ScoredNodes:
    """The room of all nodes as a statement changes it, and levels per shape; one per room."""

    def __init__(
        self,
        statement: Statement,
        score: Score,
        room: Room,
        *,
        sees_classes: bool,
        kinds: Ints | None = None,
    ) -> None:
        """``sees_classes``: whether the score asks which GPU classes are on a node.

        ``kinds``: (nodes,) numbers, all that it asks of a node beside its room; None: more.
        """
        self._statement = statement
        self._score = score
        self._room = room
        snapshot = statement.snapshot
        self._card = snapshot.resources.positions.get(CARD)
        nodes = len(snapshot.nodes)
        devices = np.zeros(nodes)
        if self._card is not None:
            devices = snapshot.nodes.allocatable[self._card]
        self._devices = np.asarray(devices, dtype=np.int64)
        self._parts = self._all_parts(int(self._devices.max(initial=0)) or 1)
        self._classes = np.zeros(nodes, dtype=np.int64)
        self._kinds = None if kinds is None else self._kinds_of_nodes(kinds)
        self._shapes: dict[int, _Levels] = {}
        self._seen = len(statement.changes)
        if sees_classes:
            self._note_bound()

    def _note_bound(self) -> None:
        positions = self._statement.snapshot.nodes.positions
        for gang in self._statement.snapshot.gangs.values():
            for member in gang.bound:
                if member.node in positions:
                    self.note(member.shape, positions[member.node])

    def note(self, shape: Shape, row: int) -> None:
        """Remember the GPU class of a pod on a node; it stays until the cycle ends."""
        self._classes[row] |= gpu_class(self._ask(shape, np.array([row])))

    def pick(self, shape: Shape, mask: Bools, preference: Floats | None) -> Pick | None:
        """The best of the nodes in ``mask``, of those with the highest preference; None if full."""
        levels = self._levels(shape)
        able = np.where(mask, levels.level, NO_ROOM)
        row = int(able.argmax())
        if able[row] == NO_ROOM:
            return None
        if preference is not None and levels.prefers(preference):
            wanted = np.where(able > NO_ROOM, preference, NO_ROOM)
            row = int(np.where(wanted == wanted.max(), able, NO_ROOM).argmax())
        device = int(levels.device[row])
        part = None if device == ANY_DEVICE else float(self._parts[row, device]) / WHOLE
        return Pick(row, part)

    def levels(self, shape: Shape) -> Floats:
        """(nodes,) the level of every node for one more pod; ``NO_ROOM`` where it has none."""
        return self._levels(shape).level

    def levels_ahead(self, shape: Shape, rows: Ints, copies: Ints, more: int) -> Floats:
        """(rows, more) levels once ``copies`` (rows,) of the shape are placed, one more, and so on.

        The shape asks for whole GPUs or none.
        """
        taken = (copies[:, None] + np.arange(more)).reshape(-1)
        at = np.repeat(rows, more)
        free = self._free(at) - self._statement.vector(shape)[:, None] * taken
        parts = self._parts[at]
        whole = parts >= WHOLE
        gone = taken * int(shape.requests.get(CARD, 0.0))
        parts[whole & (whole.cumsum(axis=1) <= gone[:, None])] = 0.0
        level, _ = self._scores(shape, at, free, parts)
        return level.reshape(len(rows), more)

    def _levels(self, shape: Shape) -> "_Levels":
        self._sync()
        known = self._shapes.get(shape.number)
        changes = self._statement.changes
        if known is None:
            nodes = len(self._devices)
            known = _Levels(np.full(nodes, NO_ROOM), np.full(nodes, ANY_DEVICE, dtype=np.int64))
            self._shapes[shape.number] = known
            self._rescore(shape, known, np.arange(nodes))
        elif known.seen < len(changes):
            self._rescore(shape, known, np.array(sorted(set(changes[known.seen :]))))
        known.seen = len(changes)
        return known

    def _kinds_of_nodes(self, asked: Ints) -> list[int]:
        """By node, a number that nodes share which differ in nothing but their room."""
        snapshot = self._statement.snapshot
        reported = snapshot.nodes.allocatable > 0
        memory = snapshot.gpu_sharing.memory
        columns = np.column_stack((asked, reported.T, self._devices, memory))
        kinds = np.unique(columns, axis=0, return_inverse=True)[1]
        listed: list[int] = np.asarray(kinds).reshape(-1).tolist()
        return listed

    def _state(self, row: int, kind: int) -> State:
        room = self._free(row).tobytes(), self._parts[row].tobytes()
        return (*room, kind, int(self._classes[row]))

    def _sync(self) -> None:
        changes = self._statement.changes
        for row in dict.fromkeys(changes[self._seen :]):
            self._refresh(row)
        self._seen = len(changes)

    def _all_parts(self, devices: int) -> Floats:
        """(nodes, devices) of every node what ``_refresh`` finds of one."""
        whole = np.zeros(len(self._devices))
        if self._card is not None:
            whole = self._statement.free(self._room)[self._card]
        rows, free = self._statement.shared.all_parts(self._room)
        return parts_by_node(rows, free, whole, devices)

    def _refresh(self, row: int) -> None:
        whole = 0
        if self._card is not None:
            whole = int(max(self._free(row)[self._card], 0.0))
        shared = self._statement.shared.parts(row, self._room)
        parts = self._parts[row]
        parts[:] = 0.0
        held = len(shared)
        parts[:held] = np.round(np.maximum(shared, 0.0) * WHOLE, DECIMALS)
        parts[held : held + whole] = WHOLE

    def _free(self, at: int | Ints) -> Floats:
        statement = self._statement
        if self._room is Room.LATER:
            return np.asarray(statement.later[:, at])
        return np.minimum(statement.idle[:, at], statement.later[:, at])

    def _ask(self, shape: Shape, rows: Ints) -> GpuAsk:
        cpu, memory = shape.requests.get("cpu", 0.0), shape.requests.get("memory", 0.0)
        share = shape.gpu_share
        if share is None:
            whole = np.full(len(rows), WHOLE)
            return GpuAsk(cpu, memory, int(shape.requests.get(CARD, 0.0)), whole)
        of_gpus = self._statement.snapshot.gpu_sharing.memory[rows]
        milli = np.round(self._statement.shared.need(share)[rows] / of_gpus * WHOLE, DECIMALS)
        return GpuAsk(cpu, memory, share.devices, milli)

    def _rescore(self, shape: Shape, levels: "_Levels", rows: Ints) -> None:
        if self._kinds is None or len(rows) > FEW:
            self._score_rows(shape, levels, rows)
            return
        new: dict[State, list[int]] = {}
        for row in rows.tolist():
            state = self._state(row, self._kinds[row])
            known = levels.by_state.get(state)
            if known is None:
                new.setdefault(state, []).append(row)
            else:
                levels.level[row], levels.device[row] = known
        if not new:
            return
        self._score_rows(shape, levels, np.array([row for rows in new.values() for row in rows]))
        for state, (row, *_) in new.items():
            levels.by_state[state] = float(levels.level[row]), int(levels.device[row])

    def _score_rows(self, shape: Shape, levels: "_Levels", rows: Ints) -> None:
        found = self._scores(shape, rows, self._free(rows), self._parts[rows])
        levels.level[rows], levels.device[rows] = found

    def _scores(self, shape: Shape, rows: Ints, free: Floats, parts: Floats) -> tuple[Floats, Ints]:
        """(rows,) level and GPU to share, of rows with so much ``free`` and such ``parts``."""
        level, device = np.full(len(rows), NO_ROOM), np.full(len(rows), ANY_DEVICE, dtype=np.int64)
        snapshot = self._statement.snapshot
        everywhere = np.ones(len(rows), dtype=np.bool_)
        allocatable = snapshot.nodes.allocatable[:, rows]
        able = copies_that_fit(shape, snapshot.resources, free, everywhere, allocatable) > 0
        ask = self._ask(shape, rows)
        if shape.gpu_share is not None:
            able &= (parts >= ask.milli[:, None]).sum(axis=1) >= ask.devices
        if not able.any():
            return level, device
        at = rows[able]
        rooms = GpuRooms(
            rows=at,
            cpu=free[snapshot.resources.positions["cpu"], able],
            memory=free[snapshot.resources.positions["memory"], able],
            parts=parts[able],
            devices=self._devices[at],
            classes=self._classes[at],
        )
        scores = self._score(replace(ask, milli=ask.milli[able]), rooms)
        level[able], device[able] = scores.level, scores.device
        return level, device


@dataclass(slots=True)
class _Levels:
    """(nodes,) levels of a shape, the GPU to share, and how many changes they know of."""

    level: Floats
    device: Ints
    seen: int = 0
    by_state: dict[State, tuple[float, int]] = field(default_factory=dict)
    _preference: Floats | None = None
    _differs: bool = False

    def prefers(self, preference: Floats) -> bool:
        """Whether some nodes are preferred to others; mostly asked of the same array again."""
        if preference is not self._preference:
            self._preference = preference
            self._differs = bool(preference.min() != preference.max())
        return self._differs


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
