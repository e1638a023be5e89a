"""Batches of equivalent single pods, each placed at the cost of at most one victim.

If the search for a single pod ended with one victim, those for the next equivalent pods mostly end
in the same way. Each step of a batch does what such a search would do:

    if there is capacity, place the pod; else evict the next candidate, then place the pod
    stop if the victim fits elsewhere, or if its eviction should wait (``timing``)

but fairness is checked once for all steps of a batch. Each batch is twice as large as the one
before. A step that fails is undone and ends the batch, and the steps before it are kept. If
fairness refuses a batch, all of it is undone. For each of the remaining gangs victims are searched
separately.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from msgspec import Struct, structs

from kai_py.plan.placement.running_fit import RunningFit
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.equivalent_gangs import is_equivalent
from kai_py.plan.session.gang_queue import GangQueue
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.victims.count import is_exact
from kai_py.plan.victims.postponed_ahead import has_postponed_ahead
from kai_py.plan.victims.relocate import may_fit_elsewhere
from kai_py.plan.victims.strategy import VictimStrategy
from kai_py.plan.victims.timing import postponed_until
from kai_py.plan.victims.units import VictimUnit
from kai_py.snapshot.gangs import Gang


class VictimBatch(Struct, frozen=True):
    """Places gangs that are equivalent to that of ``strategy``, which was placed last."""

    strategy: VictimStrategy
    gang_queue: GangQueue

    def run(self) -> None:
        """Place the gangs that come next in ``gang_queue`` as long as they are equivalent."""
        fit = self._fit()
        size = 1
        while fit is not None and self._place_batch(fit, size):
            size *= 2

    def _fit(self) -> RunningFit | None:
        """Where equivalent pods fit, kept up to date; None if more than capacity decides."""
        state, gang = self.strategy.state, self.strategy.gang
        pod, queue = gang.members[0], state.quota.queues.positions[gang.queue]
        if (
            len(gang.members) != 1
            or not is_equivalent(gang, gang)
            or pod.shape.has_claims
            or not is_exact(state, gang, gang.members)
            or state.quota.queues.has_max[queue]
            or state.placer.reservations.close_nodes
            or not state.eviction_limits.is_unlimited
            or has_postponed_ahead(self.strategy)
        ):
            return None
        return state.placer.shapes.packed_fit(state.statement, pod.shape, Capacity.FUTURE_IDLE)

    def _place_batch(self, fit: RunningFit, size: int) -> bool:
        """Place up to ``size`` gangs; whether that many were placed."""
        state, gang_queue = self.strategy.state, self.gang_queue
        placed, victims = list[Gang](), list[VictimUnit]()
        candidates = self.strategy.batch_candidates()
        with state.statement.trial() as trial:
            while len(placed) < min(size, state.search_budgets.probes):
                gang = gang_queue.pop()
                if gang is None:
                    break
                if not (
                    self._is_equivalent(gang) and self._place_one(gang, fit, candidates, victims)
                ):
                    gang_queue.requeue([gang])
                    break
                placed.append(gang)
            if placed and self.strategy.may_evict_batch(len(placed), victims):
                trial.keep()
        if not trial.kept:
            gang_queue.requeue(placed)
            reorder(gang_queue, state, victims)
            return False
        for each in placed:
            state.mark_placed(each)
            state.search_budgets.searched.setdefault(each.key, False)
        state.search_budgets.probes -= len(placed)
        return len(placed) == size

    def _is_equivalent(self, other: Gang) -> bool:
        gang = self.strategy.gang
        return other.queue == gang.queue and is_equivalent(other, gang)

    def _place_one(
        self,
        gang: Gang,
        fit: RunningFit,
        candidates: Iterator[VictimUnit],
        victims: list[VictimUnit],
    ) -> bool:
        """Place the gang, if need be by evicting the next unit, which is added to ``victims``.

        Returns whether it was placed.
        """
        statement, action = self.strategy.state.statement, self.strategy.action
        row = fit.first_row()
        if row is not None:
            return (
                statement.place(gang, gang.members, row, action, capacity=Capacity.FUTURE_IDLE) == 1
            )
        unit = next(candidates, None)
        if unit is None or unit.is_partial:
            return False
        with statement.trial() as trial:
            request = structs.replace(self.strategy.request, members=gang.members)
            strategy = replace(self.strategy, gang=gang, request=request)
            strategy.evict(unit, strategy.reason(unit))
            row = fit.first_row()
            if row is None:
                return False
            statement.place(gang, gang.members, row, action, capacity=Capacity.FUTURE_IDLE)
            if may_fit_elsewhere(self.strategy.state, unit):
                return False
            if postponed_until(strategy, [unit]) is not None:
                return False
            trial.keep()
        victims.append(unit)
        reorder(self.gang_queue, self.strategy.state, [unit])
        return True


def reorder(gang_queue: GangQueue, state: CycleState, victims: Sequence[VictimUnit]) -> None:
    """Update the places of the queues that lost ``victims``, or got them back."""
    positions = state.quota.queues.positions
    for queue in dict.fromkeys(positions[unit.gang.queue] for unit in victims):
        gang_queue.update(queue)
