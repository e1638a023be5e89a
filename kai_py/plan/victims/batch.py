"""One victim for one waiting pod, many times over: searches of single pods that are alike.

Where a search ended with one victim, those of the pods that come next and are like it mostly end
so, too. Each step here is what such a search would do:

    take the room that is there for one more pod; without any, the next victim leaves and gives it
    the pod goes there, and the victim finds no room elsewhere

but whether the steps may be taken is asked once for all of them, twice as many as the time before.
Where a step goes another way those before it stand, where they may not be taken all are undone,
and searching goes on from there.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kai_py.plan.gang_queue import GangQueue, is_equivalent
from kai_py.plan.placement.running_fit import RunningFit
from kai_py.plan.plan import Action
from kai_py.plan.session import CycleState
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.statement import Evicted
from kai_py.plan.victims.count import is_exact
from kai_py.plan.victims.relocate import may_fit_elsewhere
from kai_py.plan.victims.units import VictimUnit
from kai_py.snapshot.gangs import Gang

BatchCheck = Callable[[int, Sequence[VictimUnit]], bool]
"""Whether so many gangs may take these units, one after the other."""


@dataclass(frozen=True, slots=True)
class VictimBatch:
    """Goes on where a search for a single pod ended.

    Asked before the first of several steps for gangs like the one given: ``supply``, which units
    are offered if every one of them leaves, and ``judge``, what may be taken. ``reason``: why the
    pods of a unit leave for a gang.
    """

    state: CycleState
    action: Action
    candidates: Callable[[Gang], Iterator[VictimUnit]]
    check: Callable[[Gang], BatchCheck]
    reason: Callable[[Gang, VictimUnit], str]

    def run(self, gang_queue: GangQueue, gang: Gang) -> None:
        """Serve the gangs that come next in ``line`` as long as they are like ``gang``."""
        fit = self._fit(gang)
        size = 1
        while fit is not None and self._place_batch(gang_queue, gang, fit, size):
            size *= 2

    def _fit(self, gang: Gang) -> RunningFit | None:
        """The room for pods like that of ``gang``; None where more than room decides."""
        state = self.state
        pod, queue = gang.members[0], state.quota.queues.positions[gang.queue]
        if (
            len(gang.members) != 1
            or not is_equivalent(gang, gang)
            or not is_exact(state, gang, gang.members)
            or state.quota.queues.has_max[queue]
            or state.placer.reservations.active
            or not state.eviction_limits.is_unlimited
        ):
            return None
        return state.placer.shapes.packed_fit(state.statement, pod.shape, Capacity.FUTURE_IDLE)

    def _place_batch(self, gang_queue: GangQueue, gang: Gang, fit: RunningFit, size: int) -> bool:
        """Up to ``size`` steps; whether as many were taken."""
        state, served, taken = self.state, list[Gang](), list[VictimUnit]()
        supply, may_take = self.candidates(gang), self.check(gang)
        with state.statement.trial() as trial:
            while len(served) < min(size, state.probes):
                following = gang_queue.pop()
                if following is None:
                    break
                if not self._is_equivalent(following, gang) or not self._place_one(
                    gang_queue, following, fit, supply, taken
                ):
                    gang_queue.requeue([following])
                    break
                served.append(following)
            if served and may_take(len(served), taken):
                trial.keep()
        if not trial.kept:
            gang_queue.requeue(served)
            self._update_queues(gang_queue, taken)
            return False
        for each in served:
            state.mark_placed(each)
            state.searched.setdefault(each.key, False)
        state.probes -= len(served)
        return len(served) == size

    def _is_equivalent(self, other: Gang, gang: Gang) -> bool:
        return other.queue == gang.queue and is_equivalent(other, gang)

    def _place_one(
        self,
        gang_queue: GangQueue,
        gang: Gang,
        fit: RunningFit,
        candidates: Iterator[VictimUnit],
        victims: list[VictimUnit],
    ) -> bool:
        """Place the gang, at the cost of the next unit if there is no room; whether it was so."""
        statement, row = self.state.statement, fit.first_row()
        if row is not None:
            return (
                statement.place(gang, gang.members, row, self.action, capacity=Capacity.FUTURE_IDLE)
                == 1
            )
        unit = next(candidates, None)
        if unit is None or unit.is_partial:
            return False
        with statement.trial() as trial:
            reason = self.reason(gang, unit)
            for member in unit.members:
                statement.evict(Evicted(member, unit.gang, self.action, gang, reason))
            row = fit.first_row()
            if row is None:
                return False
            statement.place(gang, gang.members, row, self.action, capacity=Capacity.FUTURE_IDLE)
            if may_fit_elsewhere(self.state, unit):
                return False
            trial.keep()
        victims.append(unit)
        self._update_queues(gang_queue, [unit])
        return True

    def _update_queues(self, gang_queue: GangQueue, victims: Sequence[VictimUnit]) -> None:
        positions = self.state.quota.queues.positions
        for queue in dict.fromkeys(positions[unit.gang.queue] for unit in victims):
            gang_queue.update(queue)
