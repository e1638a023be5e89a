"""Batches of small equivalent gangs, placed at once where the round-robin order is known.

The order of gangs follows from their costs (``policy.round_robin``), so it is computed for many at
once. For single pods of one class all nodes are found at once, too, by the replicas or scores of
each node (``next_rows`` of the fit); otherwise nodes are found gang by gang. The plan is that of
placing gang by gang:

    batch = the next gangs in order, as long as every queue has a gang equivalent to its first one,
            no limit is exceeded, and there is idle capacity
    place the batch; the next gang is placed by itself

Gangs are equivalent if they are preemptible, have the same number of pods, all of one shape and
cost, that start together and only need resources of nodes. The lookahead is twice what the last
batch used and shrinks if no batch was found, so looking ahead costs no more than placing did.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import takewhile

import numpy as np

from kai_py.plan.placement.running_fit import RunningFit
from kai_py.plan.placement.score_nodes import ScoredFit
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.equivalent_gangs import is_equivalent
from kai_py.plan.session.gang_queue import GangQueue
from kai_py.plan.state.capacity import Capacity
from kai_py.policy.round_robin import GangCosts, round_robin_order
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.tables.queue_tree import Index

FIRST_LOOKAHEAD = 128
"""Gangs of each queue that the first batch may take."""

MAX_PAUSE = 64
"""Turns after which a batch is tried again at the latest."""

SMALL_BATCH = 4
"""This few gangs are placed one by one as fast."""


class EquivalentGangs:
    """Takes batches of equivalent gangs from ``gang_queue``."""

    def __init__(self, state: CycleState, gang_queue: GangQueue) -> None:
        """Start with the first lookahead."""
        self._state, self._gang_queue = state, gang_queue
        self._lookahead = FIRST_LOOKAHEAD
        self._pause = self._pause_left = 0

    def place_batch(self) -> bool:
        """Place the next batch in idle capacity; False where the next gang is to be tried alone."""
        if self._pause_left or self._state.turns.over:
            self._pause_left -= 1
            return False
        try:
            with self._state.statement.trial() as trial:
                taken = self._place_next()
                trial.keep()
        except Exception:
            # Placing gang by gang will show which gang fails, and set only that one aside.
            self._pause_left = sys.maxsize
            return False
        if taken:
            self._pause, self._lookahead = 0, 2 * max(taken.values())
            self._gang_queue.advance(taken)
            return True
        self._lookahead = 1 + max(SMALL_BATCH, self._lookahead // 2)
        self._pause = min(MAX_PAUSE, 2 * self._pause + 1)
        self._pause_left = self._pause - 1
        return False

    def _place_next(self) -> Counter[int]:
        """Place a batch; how many of its turns each queue had."""
        first = self._first_gangs()
        if not first:
            return Counter()
        costs = self._costs(first)
        classes = {(g.members[0].shape.number, len(g.members)): g for g in first.values()}
        if not costs.request_same_resources(list(first)):
            return Counter()
        if not self._have_capacity(classes.values()):
            return Counter()
        equivalent = {
            queue: list(takewhile(partial(self._is_equivalent, other=first[queue]), gangs))
            for queue, gangs in self._gang_queue.peek(self._lookahead)
        }
        order = self._round_robin({queue: len(gangs) for queue, gangs in equivalent.items()}, costs)
        if not order.size:
            return Counter()
        following = {queue: iter(gangs) for queue, gangs in equivalent.items()}
        batch = [next(following[queue]) for queue in order.tolist()]
        count, rows = self._assume_capacity(batch, one_class=len(classes) == 1)
        batch, order = batch[:count], order[:count]
        self._state.statement.place_batch(batch, rows, order, costs)
        for gang in batch:
            self._state.mark_placed(gang)
        return Counter(order.tolist())

    def _first_gangs(self) -> Mapping[int, Gang]:
        """The first gang of each queue; none if one cannot be batched or the first has no capacity.

        Without capacity, as after most failures, the other queues are not even looked at.
        """
        first: dict[int, Gang] = {}
        for queue, [gang] in self._gang_queue.peek(1):
            if not self._is_equivalent(gang, gang):
                return {}
            if not first and not self._have_capacity([gang]):
                return {}
            first[queue] = gang
        return first

    def _is_equivalent(self, gang: Gang, other: Gang) -> bool:
        """Whether the gang is equivalent to ``other`` and still pending."""
        placed = self._state.statement.placed
        return is_equivalent(gang, other) and gang.members[0].pod.uid not in placed

    def _costs(self, first: Mapping[int, Gang]) -> GangCosts:
        """The cost of gangs equivalent to the first of their queues."""
        quota, queues = self._state.quota, list(first)
        pod = np.zeros_like(quota.usage.allocated)
        pods = np.zeros(len(quota.queues), np.int64)
        pod[:, queues] = np.transpose([quota.cost(g.members[0].charge) for g in first.values()])
        pods[queues] = [len(gang.members) for gang in first.values()]
        return GangCosts(pod, pods)

    def _round_robin(self, counts: Mapping[int, int], costs: GangCosts) -> Index:
        """The next turns, up to the first gang beyond the lookahead or of another class."""
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
        """Whether capacity alone decides where the pods of these gangs go, and there is some."""
        if self._state.placer.reservations.close_nodes:
            return False
        fits = map(self._fit, gangs)
        return all(fit is not None and fit.is_feasible() for fit in fits)

    def _fit(self, gang: Gang) -> RunningFit | ScoredFit | None:
        shapes, statement = self._state.placer.shapes, self._state.statement
        fit = shapes.single_pod_fit if len(gang.members) == 1 else shapes.gang_fit
        return fit(statement, gang.members[0].shape, Capacity.IDLE)

    def _assume_capacity(self, batch: Sequence[Gang], *, one_class: bool) -> tuple[int, list[int]]:
        """Take capacity for the next gangs as far as they fit: how many do, and a row for each pod.

        ``one_class``: the gangs of all queues are equivalent.
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
        """The rows of a gang's pods; empty if not all of them fit."""
        fit, pods = self._fit(gang), gang.members
        if isinstance(fit, RunningFit) and len(pods) > 1:
            return fit.rows_together(len(pods), self._state.placer.shapes.strategy(pods[0].shape))
        row = None if fit is None else fit.first_row()
        return [] if row is None else [row]
