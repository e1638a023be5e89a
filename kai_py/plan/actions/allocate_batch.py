"""Small gangs that are alike, placed many at a time: whose turns are next, and where do they go?

The order of turns follows from what each costs (``policy.turns``), so queues are not asked gang by
gang. Single pods of one kind find their nodes at once too, by how many fit on each or by their
scores (``next_rows`` of the fit); else room is found for one gang after the other. The plan is that
of placing them one by one:

    run = the next turns, as long as every queue has a gang like its first to offer,
          no max is passed, and there is room now
    place the run; whatever comes next is a turn like any other

Alike are preemptible gangs of equally many pods, all of one shape and one cost, that start together
and that nothing but room on nodes stops. Only so many gangs of each queue are looked at as the last
run used, twice over, and fewer after none was found, so looking costs no more than placing did.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import takewhile

import numpy as np

from kai_py.plan.gang_queue import GangQueue, is_equivalent
from kai_py.plan.placement.running_fit import RunningFit
from kai_py.plan.placement.score_nodes import ScoredFit
from kai_py.plan.session import CycleState
from kai_py.plan.state.capacity import Capacity
from kai_py.policy.round_robin import GangCosts, round_robin_order
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.tables.queue_tree import Index

FIRST_LOOKAHEAD = 128
"""Gangs of each queue that are looked at first."""

MAX_PAUSE = 64
"""Turns after which a run is looked for again at the latest."""

SMALL_BATCH = 4
"""So many gangs are placed one by one as fast."""


class EquivalentGangs:
    """Takes runs of alike gangs from ``line``."""

    def __init__(self, state: CycleState, gang_queue: GangQueue) -> None:
        """Nothing is looked at yet."""
        self._state, self._gang_queue = state, gang_queue
        self._lookahead = FIRST_LOOKAHEAD
        self._pause = self._pause_left = 0

    def place_batch(self) -> bool:
        """Place the next run in free room; False where one gang is to be tried after the other."""
        if self._pause_left:
            self._pause_left -= 1
            return False
        taken = self._place_next()
        if taken:
            self._pause, self._lookahead = 0, 2 * max(taken.values())
            self._gang_queue.advance(taken)
            return True
        self._lookahead = 1 + max(SMALL_BATCH, self._lookahead // 2)
        self._pause = min(MAX_PAUSE, 2 * self._pause + 1)
        self._pause_left = self._pause - 1
        return False

    def _place_next(self) -> Counter[int]:
        """Place a run; how many of its turns each queue had."""
        first = {queue: gangs[0] for queue, gangs in self._gang_queue.peek(1).items()}
        if not first or not all(self._is_equivalent(gang, gang) for gang in first.values()):
            return Counter()
        costs, kinds = (
            self._costs(first),
            {_equivalence_class(gang): gang for gang in first.values()},
        )
        if not costs.request_same_resources(list(first)) or not self._have_capacity(kinds.values()):
            return Counter()
        alike = {
            queue: list(takewhile(partial(self._is_equivalent, other=first[queue]), gangs))
            for queue, gangs in self._gang_queue.peek(self._lookahead).items()
        }
        order = self._round_robin({queue: len(gangs) for queue, gangs in alike.items()}, costs)
        if not order.size:
            return Counter()
        following = {queue: iter(gangs) for queue, gangs in alike.items()}
        run = [next(following[queue]) for queue in order.tolist()]
        count, rows = self._assume_capacity(run, one_class=len(kinds) == 1)
        run, order = run[:count], order[:count]
        self._state.statement.place_batch(run, rows, order, costs)
        for gang in run:
            self._state.mark_placed(gang)
        return Counter(order.tolist())

    def _is_equivalent(self, gang: Gang, other: Gang) -> bool:
        """Whether the gang is like ``other``, and waits; all of such a gang is placed, or none."""
        placed = self._state.statement.placed
        return is_equivalent(gang, other) and gang.members[0].pod.uid not in placed

    def _costs(self, first: Mapping[int, Gang]) -> GangCosts:
        """What gangs cost that are like the first of their queues."""
        quota, queues = self._state.quota, list(first)
        pod = np.zeros_like(quota.usage.allocated)
        pods = np.zeros(len(quota.queues), np.int64)
        pod[:, queues] = np.transpose([quota.cost(g.members[0].charge) for g in first.values()])
        pods[queues] = [len(gang.members) for gang in first.values()]
        return GangCosts(pod, pods)

    def _round_robin(self, counts: Mapping[int, int], costs: GangCosts) -> Index:
        """The next turns, until a queue comes to a gang not looked at or of another kind."""
        if sum(counts.values()) <= SMALL_BATCH:
            return np.empty(0, np.int32)
        quota = self._state.quota
        order = round_robin_order(quota.usage, counts, costs, quota.rules)
        end = len(order)
        for queue, count in counts.items():
            its_turns = np.flatnonzero(order == queue)
            if len(its_turns) == count and not self._gang_queue.has_at_most(queue, count):
                end = min(end, int(its_turns[-1]) + 1)
        return order[:end]

    def _have_capacity(self, gangs: Iterable[Gang]) -> bool:
        """Whether nothing but room decides about the pods of all these gangs, and there is some."""
        if self._state.placer.reservations.active:
            return False
        fits = map(self._fit, gangs)
        return all(fit is not None and fit.is_feasible() for fit in fits)

    def _fit(self, gang: Gang) -> RunningFit | ScoredFit | None:
        shapes, statement = self._state.placer.shapes, self._state.statement
        fit = shapes.single_pod_fit if len(gang.members) == 1 else shapes.gang_fit
        return fit(statement, gang.members[0].shape, Capacity.IDLE)

    def _assume_capacity(self, batch: Sequence[Gang], *, one_class: bool) -> tuple[int, list[int]]:
        """Take the room of the next gangs, as far as they fit; how many do, a row for each pod.

        ``alike``: across queues, too.
        """
        statement, rows = self._state.statement, list[int]()
        if one_class and len(batch[0].members) == 1:
            fit = self._fit(batch[0])
            rows = [] if fit is None else fit.next_rows(len(batch))
            statement.assume_rows(batch[0].members[0].shape, rows, Capacity.IDLE)
            return len(rows), rows
        for count, gang in enumerate(batch):
            found = self._rows_for(gang)
            if not found:
                return count, rows
            statement.assume_rows(gang.members[0].shape, found, Capacity.IDLE)
            rows += found
        return len(batch), rows

    def _rows_for(self, gang: Gang) -> list[int]:
        """Where the pods of a gang go; nowhere if not all of them fit."""
        fit, pods = self._fit(gang), gang.members
        if isinstance(fit, RunningFit) and len(pods) > 1:
            return fit.rows_together(len(pods), self._state.placer.shapes.strategy(pods[0].shape))
        row = None if fit is None else fit.first_row()
        return [] if row is None else [row]


def _equivalence_class(gang: Gang) -> tuple[int, int]:
    return gang.members[0].shape.number, len(gang.members)
