"""Single pods that are alike, placed many at a time: whose turns are next, and where do they go?

The order of turns follows from what each costs (``policy.turns``), the nodes from how many fit on
each, or from their scores (``next_rows`` of the fit), so nothing is decided pod by pod. The plan is
that of placing them one by one:

    run = the next turns, as long as every queue has a gang like its first to offer,
          no max is passed, and there is room now
    place the run; whatever comes next is a turn like any other

Alike are preemptible gangs of one pod, of one shape and one cost, that nothing but room on a node
stops. Each queue may have a kind of its own; of several kinds, only room is found pod by pod. Only
so many gangs of each queue are looked at as the last run used, twice over, so looking costs no more
than placing did.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import takewhile

import numpy as np

from kai_py.plan.cycle_state import CycleState
from kai_py.plan.gang_line import GangLine
from kai_py.plan.room import Room
from kai_py.plan.running_fit import RunningFit
from kai_py.plan.scored_fit import ScoredFit
from kai_py.policy.turns import turns
from kai_py.snapshot.gangs import Gang, Member, PodState
from kai_py.snapshot.queues import Index
from kai_py.snapshot.resources import Floats
from kai_py.snapshot.shape import Shape

FIRST_REACH = 64
"""Gangs of each queue that are looked at first."""

LONGEST_PAUSE = 64
"""Turns after which a run is looked for again at the latest."""


class SinglePods:
    """Takes runs of alike single pods from ``line``."""

    def __init__(self, state: CycleState, line: GangLine) -> None:
        """Nothing is looked at yet."""
        self._state, self._line = state, line
        self._reach = FIRST_REACH
        self._pause = self._left = 0

    def place(self) -> bool:
        """Place the next run in free room; False where one gang is to be tried after the other."""
        if self._left:
            self._left -= 1
            return False
        taken = self._run()
        if taken:
            self._pause, self._reach = 0, 2 * max(taken.values())
            self._line.skip(taken)
            return True
        self._pause = min(LONGEST_PAUSE, 2 * self._pause + 1)
        self._left = self._pause - 1
        return False

    def _run(self) -> Counter[int]:
        """Place a run; how many of its turns each queue had."""
        quota, statement = self._state.quota, self._state.statement
        first = {queue: gangs[0] for queue, gangs in self._line.heads(1).items()}
        if not first or not all(self._is_plain(gang) for gang in first.values()):
            return Counter()
        kinds = {queue: gang.members[0] for queue, gang in first.items()}
        costs = np.zeros_like(quota.standing.allocated)
        costs[:, list(kinds)] = np.transpose([quota.cost(pod.charge) for pod in kinds.values()])
        if not self._have_room(kinds.values()) or not _ask_for_the_same(costs[:, list(kinds)]):
            return Counter()
        alike = {
            queue: list(takewhile(partial(self._is_like, pod=kinds[queue]), gangs))
            for queue, gangs in self._line.heads(self._reach).items()
        }
        counts = {queue: len(gangs) for queue, gangs in alike.items()}
        order = turns(quota.standing, counts, costs, quota.rules)
        order = order[: self._length(order, counts)]
        following = {queue: iter(gangs) for queue, gangs in alike.items()}
        run = [next(following[queue]) for queue in order.tolist()]
        rows = self._rows([gang.members[0].shape for gang in run])
        placed, order = run[: len(rows)], order[: len(rows)]
        statement.place_turns(placed, rows, order, costs)
        for gang in placed:
            self._state.clear(gang)
        return Counter(order.tolist())

    def _is_plain(self, gang: Gang) -> bool:
        return bool(gang.members) and self._is_like(gang, gang.members[0])

    def _is_like(self, gang: Gang, pod: Member) -> bool:
        placed = self._state.statement.placed
        return is_alike(gang, pod) and gang.members[0].pod.uid not in placed

    def _have_room(self, pods: Iterable[Member]) -> bool:
        """Whether nothing but room decides about pods of all these shapes, and there is some."""
        if self._state.placer.reservations.kept:
            return False
        fits = map(self._fit, {pod.shape.number: pod.shape for pod in pods}.values())
        return all(fit is not None and fit.has_room() for fit in fits)

    def _fit(self, shape: Shape) -> RunningFit | ScoredFit | None:
        placer, statement = self._state.placer, self._state.statement
        return placer.fit_for_singles(statement, shape, Room.NOW)

    def _rows(self, shapes: Sequence[Shape]) -> list[int]:
        """Take the room of the next pods, of these shapes; fewer rows if not all fit."""
        statement = self._state.statement
        if len({shape.number for shape in shapes}) == 1:
            fit = self._fit(shapes[0])
            rows = [] if fit is None else fit.next_rows(len(shapes))
            if rows:
                statement.occupy(shapes[0], rows, Room.NOW)
            return rows
        rows = []
        for shape in shapes:
            fit = self._fit(shape)
            row = None if fit is None else fit.first()
            if row is None:
                break
            statement.occupy(shape, [row], Room.NOW)
            rows.append(row)
        return rows

    def _length(self, order: Index, counts: dict[int, int]) -> int:
        """Turns until a queue comes to a gang that was not looked at or is of another kind."""
        end = len(order)
        for queue, count in counts.items():
            its_turns = np.flatnonzero(order == queue)
            if len(its_turns) == count and not self._line.ends_with(queue, count):
                end = min(end, int(its_turns[-1]) + 1)
        return end


def _ask_for_the_same(costs: Floats) -> bool:
    """Whether all costs (resources, n) are of the same resources."""
    asked = costs > 0
    return bool((asked == asked[:, :1]).all())


def is_alike(gang: Gang, pod: Member) -> bool:
    """Whether all that the gang asks for is one pod like ``pod``, wherever there is room."""
    if len(gang.members) != 1 or gang.awaited or gang.near:
        return False
    if not gang.can_give_back(gang.members):
        return False
    own, tree = gang.members[0], gang.tree
    return (
        own.shape.number == pod.shape.number
        and (own.charge is pod.charge or own.charge == pod.charge)
        and own.state is PodState.PENDING
        and not own.waiting
        and tree.min_members == 1
        and tree.is_unconstrained_leaf
    )
