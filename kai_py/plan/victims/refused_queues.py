"""Queues that can lose no pod to reclaimers of a queue, as earlier searches of an action showed.

What a reclaimer may take depends on the usage of queues and on what it requests, not on the nodes
it may use. So if fairness refuses every candidate of a queue, it also refuses them to all later
reclaimers of the same queue that request no less, until something is decided.
"""

from collections.abc import Callable, Set

import numpy as np

from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.victims.units import VictimUnit
from kai_py.policy.reclaim_rules import Reclaimer, Victims
from kai_py.snapshot.resources import Floats

_Kind = tuple[int, bool, bytes]
"""The reclaimer's queue; whether it is preemptible; which resources it requests."""


class RefusedQueues:
    """The positions of the queues that refused a request, and that request."""

    def __init__(self, state: CycleState) -> None:
        """Nothing is refused yet; all is forgotten once the cycle has decided more."""
        self._state = state
        self._decided = (0, 0)
        self._refused: dict[_Kind, tuple[Reclaimer, set[int]]] = {}
        self._least_released: dict[int, Floats] = {}

    def of(self, reclaimer: Reclaimer) -> Set[int]:
        """The queues that can lose no pod to the reclaimer, as far as that is known."""
        statement = self._state.statement
        decided = len(statement.placed), len(statement.evicted)
        if decided != self._decided:
            self._decided, self._refused = decided, {}
        smaller, queues = self._refused.get(_kind(reclaimer), (None, frozenset[int]()))
        if smaller is None or (reclaimer.request < smaller.request).any():
            return frozenset()
        return queues

    def units_like(
        self, refused: VictimUnit, reclaimer: Reclaimer, refuses: Callable[[Victims], bool]
    ) -> Callable[[VictimUnit], bool]:
        """Which units are refused because ``refused`` alone is: those that release no less.

        All units of the queue if even the least that any of them can release is refused
        (``refuses``). A refused set stays refused when victims are added (reclaim_rules, rule 3).
        """
        quota, name = self._state.quota, refused.gang.queue
        queue, cost = quota.queues.positions[name], quota.cost_of(refused.members)
        if refuses(Victims(np.array([queue], np.int32), self._least(queue)[:, None])):
            self._refused[_kind(reclaimer)] = reclaimer, {*self.of(reclaimer), queue}
            return lambda unit: unit.gang.queue == name
        return lambda unit: (
            unit.gang.queue == name and bool((quota.cost_of(unit.members) >= cost).all())
        )

    def _least(self, queue: int) -> Floats:
        """(quota resources,) of each, no more than what any pod of the queue releases."""
        if queue not in self._least_released:
            gangs, quota = self._state.evictable[queue], self._state.quota
            costs = [quota.cost_of((member,)) for gang in gangs for member in gang.bound]
            self._least_released[queue] = np.min(costs, axis=0)
        return self._least_released[queue]


def _kind(reclaimer: Reclaimer) -> _Kind:
    return reclaimer.queue, reclaimer.preemptible, (reclaimer.request > 0).tobytes()
