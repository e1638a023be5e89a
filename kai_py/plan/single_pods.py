"""Single pods that are alike, placed many at a time: whose turns are next, and where do they go?

The order of turns follows from what each costs (``policy.turns``), the nodes from how many fit on
each, or from their scores (``next_rows`` of the fit), so nothing is decided pod by pod. The plan is
that of placing them one by one:

    run = the next turns, as long as every queue has a gang of this one kind to offer,
          no max is passed, and there is room now
    place the run; whatever comes next is a turn like any other

Alike are preemptible gangs of one pod, of one shape and one cost, that nothing but room on a node
stops. Only so many gangs of each queue are looked at as the last run used, twice over, so looking
costs no more than placing did.
"""

from collections import Counter
from itertools import takewhile

import numpy as np

from kai_py.plan.cycle_state import CycleState
from kai_py.plan.decisions import Action
from kai_py.plan.gang_line import GangLine
from kai_py.plan.room import Room
from kai_py.plan.running_fit import RunningFit
from kai_py.plan.scored_fit import ScoredFit
from kai_py.policy.turns import turns
from kai_py.snapshot.gangs import Gang, Member, PodState
from kai_py.snapshot.queues import Index

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
        first = [gangs[0] for gangs in self._line.heads(1).values()]
        pod = next((gang.members[0] for gang in first if gang.members), None)
        if pod is None or not all(is_alike(gang, pod) for gang in first):
            return Counter()
        fit = self._fit(pod)
        if fit is None or not fit.has_room():
            return Counter()
        alike = {
            queue: list(takewhile(lambda gang: is_alike(gang, pod), gangs))
            for queue, gangs in self._line.heads(self._reach).items()
        }
        quota = self._state.quota
        counts = {queue: len(gangs) for queue, gangs in alike.items()}
        order = turns(quota.standing, counts, quota.cost(pod.charge), quota.rules)
        rows = fit.next_rows(self._length(order, counts))
        taken = order[: len(rows)].tolist()
        following = {queue: iter(gangs) for queue, gangs in alike.items()}
        run = [next(following[queue]) for queue in taken]
        if run:
            pods = [(gang, gang.members[0]) for gang in run]
            self._state.statement.place_plain(pods, rows, Action.ALLOCATE, Room.NOW)
        for gang in run:
            self._state.clear(gang)
        return Counter(taken)

    def _fit(self, pod: Member) -> RunningFit | ScoredFit | None:
        """The room for pods like ``pod``; None where more than room decides."""
        placer, statement = self._state.placer, self._state.statement
        if placer.reservations.kept or pod.pod.uid in statement.placed:
            return None
        return placer.fit_for_singles(statement, pod.shape, Room.NOW)

    def _length(self, order: Index, counts: dict[int, int]) -> int:
        """Turns until a queue comes to a gang that was not looked at or is of another kind."""
        end = len(order)
        for queue, count in counts.items():
            its_turns = np.flatnonzero(order == queue)
            if len(its_turns) == count and not self._line.ends_with(queue, count):
                end = min(end, int(its_turns[-1]) + 1)
        return end


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
