"""Preempt: inside a queue, a gang may evict gangs with a lower priority.

    for each pending gang that was not placed, in the order of the gangs:
        candidates: running preemptible gangs of the same queue with a lower priority, past their
                    min runtime or as far as they keep minMember; low priority first, elastic pods
                    before minMember sets, youngest first
        victims: the fewest candidates that make the request fit; under ``rules: native`` others
                 of no higher priority, if fewer gangs, or fewer pods, are evicted that way

The capacity is nominated for the gang until its victims have terminated. A gang with
``preemptionPolicy: Never`` evicts none.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.victims.action import find_victims
from kai_py.plan.victims.order import VictimPool
from kai_py.plan.victims.strategy import VictimStrategy
from kai_py.plan.victims.units import VictimUnit, unprotected_units
from kai_py.policy.fairness_rules import VictimPreference
from kai_py.snapshot.gangs import Gang


def preempt(state: CycleState, gangs: Iterable[Gang], pool: VictimPool | None = None) -> None:
    """Run the action for those of ``gangs`` that are still pending.

    ``pool``: the candidates, where they were collected already.
    """
    find_victims(state, gangs, Preemption, pool)


class Preemption(VictimStrategy):
    """Victims of the preemptor's own queue and lower priority."""

    action = Action.PREEMPT

    def may_find_victims(self) -> bool:
        """Whether a gang of lower priority ran in the queue, or no victims may be needed."""
        queue = self.state.quota.queues.positions[self.gang.queue]
        lowest = self.state.lowest_evictable_priority(queue)
        has_lower = lowest is not None and lowest < self.gang.priority
        return has_lower or not self.needs_victims

    def candidates(self) -> Iterator[VictimUnit]:
        """Units of lower priority that no min runtime protects."""
        queue, priority = self.state.quota.queues.positions[self.gang.queue], self.gang.priority
        lower = takewhile(lambda unit: unit.gang.priority < priority, self.pool.units(queue))
        min_runtime = self.state.preempt_min_runtime[queue]
        return unprotected_units(lower, min_runtime, self.state.snapshot.now, self.state.statement)

    def may_evict(self, gang: Gang) -> bool:
        """Whether the gang is in the same queue, with a lower priority."""
        return gang.queue == self.gang.queue and gang.priority < self.gang.priority

    def refused_unit(self, units: Sequence[VictimUnit]) -> None:
        """None: every candidate may be lost."""
        del units

    def reason(self, unit: VictimUnit) -> str:
        """Names the preempting workload and both priorities."""
        owner, gang = self.gang.owner, self.gang
        return (
            f"preempted by higher priority workload {owner.namespace}/{owner.name} "
            f"(priority {gang.priority} > {unit.gang.priority}) in queue {gang.queue}"
        )

    def other_candidates(self, max_priority: int) -> Iterator[VictimUnit] | None:
        """The candidates that are not partial."""
        if self.state.quota.rules.victim_preference is not VictimPreference.FEWEST:
            return None
        lower = takewhile(lambda unit: unit.gang.priority <= max_priority, self.candidates())
        return (unit for unit in lower if not unit.is_partial)
