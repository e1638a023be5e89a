"""Reclaim: a queue below its fair share takes resources back from queues above theirs.

    for each pending gang that was not placed, in the order of the gangs:
        the gang's queue must stay within its fair share with it
        candidates: running preemptible gangs of reclaimable queues; within their min runtime only
                    their elastic pods; the most saturated queue first
        victims: the fewest candidates that make the request fit and that fairness lets be lost;
                 those that fit elsewhere are relocated and are not lost

``policy.reclaim_rules`` says which queues are reclaimable; its ``check_reclaim`` decides whether
the victims that are lost may be evicted.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.victims.action import find_victims
from kai_py.plan.victims.order import VictimPool, most_saturated_first
from kai_py.plan.victims.strategy import VictimStrategy
from kai_py.plan.victims.units import VictimUnit, unprotected_units
from kai_py.policy.queue_limits import display_amount, display_unit
from kai_py.policy.queue_usage import QueueUsage, copy_usage, exceeds_any
from kai_py.policy.reclaim_batch import may_reclaim_batch
from kai_py.policy.reclaim_rules import (
    ReclaimAllowance,
    Reclaimer,
    Victims,
    check_reclaim,
    check_reclaimer,
    compared_rows,
    is_guaranteed,
    reclaimable_queues,
    resource_to_name,
)
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.resources import Bools


def reclaim(state: CycleState, gangs: Iterable[Gang], pool: VictimPool | None = None) -> None:
    """Run the action for those of ``gangs`` that are still pending.

    ``pool``: the candidates, where they were collected already.
    """
    find_victims(state, gangs, Reclaim, pool)


@dataclass
class Reclaim(VictimStrategy):
    """Victims of other queues, judged by the usage of queues before any of them is evicted."""

    action = Action.RECLAIM
    batches = True
    _usage_before: QueueUsage = field(init=False)
    """A copy of the usage of queues, made when candidates were last listed."""

    def may_find_victims(self) -> bool:
        """Whether the queue stays within its fair share with the request."""
        quota = self.state.quota
        return check_reclaimer(quota.usage, self._reclaimer, quota.rules) is None

    def candidates(self) -> Iterator[VictimUnit]:
        """Units of reclaimable queues, the most saturated first."""
        return self._most_saturated_first()

    def may_evict(self, gang: Gang) -> bool:
        """Whether the gang is in another queue."""
        return gang.queue != self.gang.queue

    def refused_unit(self, units: Sequence[VictimUnit]) -> VictimUnit | None:
        """The last unit of the shortest prefix of ``units`` that ``check_reclaim`` refuses."""
        victims = self._as_victims(units)

        def is_refused(count: int) -> bool:
            return self._refuses(victims.first(count))

        if not units or not is_refused(len(units)):
            return None
        # A refused prefix stays refused when victims are added (reclaim_rules, rule 3).
        return units[bisect_left(range(1, len(units)), 1, key=is_refused)]

    def refused_like(self, refused: VictimUnit) -> Callable[[VictimUnit], bool] | None:
        """If the unit alone is refused: those of its queue that release no less."""
        if self.refused_unit([refused]) is None:
            return None
        return self.pool.refused_queues.units_like(refused, self._reclaimer, self._refuses)

    def reason(self, unit: VictimUnit) -> str:
        """Names the reclaiming workload, and what both queues have allocated of their share."""
        quota, texts = self.state.quota, []
        usage, at = quota.usage, quota.queues.positions[unit.gang.queue]
        row = resource_to_name(usage, self._reclaimer, at, quota.resources.index(GPU))
        resource = quota.resources[row]
        _, per_unit = display_unit(resource)
        for name in (self.gang.queue, unit.gang.queue):
            at = usage.queues.positions[name]
            allocated = display_amount(usage.allocated.item(row, at), resource)
            fair = usage.fair.item(row, at) / per_unit
            texts.append(f"queue {name} has {allocated} allocated, fair share {fair:g}")
        owner = self.gang.owner
        return f"reclaimed by workload {owner.namespace}/{owner.name}: {texts[0]}; {texts[1]}"

    def other_candidates(self, max_priority: int) -> Iterator[VictimUnit] | None:
        """If lost work counts, the units of queues above their fair share that are not partial.

        If no queue is above its fair share, those of all reclaimable queues.
        """
        if not self.state.settings.loss_rules.by_loss:
            return None
        reclaimable, usage = self._reclaimable_queues(), self._usage_before
        rows = compared_rows(self._reclaimer.request, self.state.quota.rules)
        above = exceeds_any(usage.allocated[rows], usage.allocatable[rows])
        above &= reclaimable
        units_of, listed = self._units_by_queue(), above if above.any() else reclaimable
        return (
            unit
            for queue in self.pool.queues()
            if listed[queue]
            for unit in units_of(queue)
            if unit.gang.priority <= max_priority and not unit.is_partial
        )

    def allowance(self) -> ReclaimAllowance:
        """What queues may lose by their usage when candidates were last listed."""
        return ReclaimAllowance(self._usage_before, self._reclaimer, self.state.quota.rules)

    def batch_candidates(self) -> Iterator[VictimUnit]:
        """As ``candidates``, by the usage of queues after the eviction of each unit."""
        return self._most_saturated_first(evicted=True)

    def may_evict_batch(self, count: int, units: Sequence[VictimUnit]) -> bool:
        """Whether fairness lets ``count`` gangs like this one evict ``units`` in turn."""
        rules = self.state.quota.rules
        return may_reclaim_batch(
            self._usage_before, self._reclaimer, count, self._as_victims(units), rules
        )

    @cached_property
    def _reclaimer(self) -> Reclaimer:
        gang, members = self.gang, self.request.members
        queue = self.state.quota.queues.positions[gang.queue]
        cost = self.state.charged_cost(gang, members)
        return Reclaimer(queue, cost, gang.is_preemptible(members))

    def _reclaimable_queues(self) -> Bools:
        """(queues,) those that may lose pods to the gang at their usage now, which is copied."""
        quota = self.state.quota
        self._usage_before = copy_usage(quota.usage)
        return reclaimable_queues(quota.usage, self._reclaimer, quota.rules)

    def _most_saturated_first(self, *, evicted: bool = False) -> Iterator[VictimUnit]:
        reclaimable = self._reclaimable_queues()
        refused = self.pool.refused_queues.of(self._reclaimer)
        queues = [q for q in self.pool.queues() if reclaimable[q] and q not in refused]
        units_of, request = self._units_by_queue(), self._reclaimer.request
        return most_saturated_first(self.state, queues, units_of, request, evicted=evicted)

    def _units_by_queue(self) -> Callable[[int], Iterator[VictimUnit]]:
        """The candidates of a queue in order, by its position."""
        min_runtimes = self.state.reclaim_min_runtimes(self._reclaimer.queue)
        now, statement = self.state.snapshot.now, self.state.statement
        guaranteed = is_guaranteed(self._usage_before, self._reclaimer, self.state.quota.rules)
        return lambda queue: unprotected_units(
            self.pool.units(queue, guaranteed=guaranteed), min_runtimes[queue], now, statement
        )

    def _refuses(self, victims: Victims) -> bool:
        rules = self.state.quota.rules
        return check_reclaim(self._usage_before, self._reclaimer, victims, rules) is not None

    def _as_victims(self, units: Sequence[VictimUnit]) -> Victims:
        quota = self.state.quota
        queues = [quota.queues.positions[unit.gang.queue] for unit in units]
        amounts = [quota.cost_of(unit.members) for unit in units]
        amount = np.array(amounts).T if amounts else np.zeros((len(quota.resources), 0))
        return Victims(np.array(queues, dtype=np.int32), amount)
