"""The order of candidates: which eviction units a search takes first.

Inside a queue, the first difference decides: gangs that were evicted often come last, then low
priority first, elastic pods before minMember sets, least lost work first, youngest first. Where
lost work does not count, only priority, elastic pods and age decide. Between queues it is the
reverse of the order in which queues place their gangs (``policy.victim_queue_order``): the queue
that has most of what it is entitled to, the most saturated one, comes first. A unit counts as
evicted as soon as the search has taken it, so that queues end up equally saturated.

Units are generated one by one, as a search stops when it has enough of them. Building a queue's
units costs O(gangs log gangs) once per action, taking the next O(depth x siblings).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.victims.eviction_cost import EvictionCosts
from kai_py.plan.victims.refused_queues import RefusedQueues
from kai_py.plan.victims.survival import limit_of_whole
from kai_py.plan.victims.units import VictimUnit, is_evicted, keeping_protected, victim_units
from kai_py.plan.victims.units_by_node import UnitsByNode
from kai_py.policy.victim_queue_order import VictimQueueOrder
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.resources import Floats


class VictimPool:
    """Eviction units by queue, and what evicting them costs, for the length of one action.

    ``by_node``: those that may be relocated. ``changes``: by queue, how often its units changed.
    """

    by_node: UnitsByNode | None = None

    def __init__(
        self, state: CycleState, *, by_others: bool = False, changes: Counter[int] | None = None
    ) -> None:
        """The units of a queue are built when needed. ``by_others``: the pods are evicted for gangs
        of other queues, from which past evictions for gangs of the same queue do not protect them.
        """
        self._state, self._by_others = state, by_others
        self.changes: Counter[int] = Counter() if changes is None else changes
        self._units: dict[int, tuple[int, list[VictimUnit]]] = {}
        self._limits: dict[int, str] = {}
        self._evicted_count: dict[int, int] = {}

    @cached_property
    def costs(self) -> EvictionCosts:
        """What evicting the units costs; kept, as lost work is computed once per unit."""
        return EvictionCosts(self._state, by_others=self._by_others)

    @cached_property
    def refused_queues(self) -> RefusedQueues:
        """The queues of which fairness refuses all units."""
        return RefusedQueues(self._state)

    @property
    def for_others(self) -> "VictimPool":
        """The candidates for gangs of other queues."""
        if self._by_others or not self._state.eviction_limits.differs_by_others:
            return self  # not kept: with itself as a field it would outlive the cycle
        return self._of_others

    @cached_property
    def _of_others(self) -> "VictimPool":
        return VictimPool(self._state, by_others=True, changes=self.changes)

    def queues(self) -> list[int]:
        """The positions of the queues with preemptible running gangs, ascending."""
        return sorted(self._state.evictable)

    def gangs(self, queue: int) -> Sequence[Gang]:
        """Preemptible gangs of a queue that had running pods when the action began."""
        return self._state.evictable.get(queue, ())

    def units(self, queue: int, *, guaranteed: bool = False) -> Iterator[VictimUnit]:
        """Units of a queue in order, without those that were evicted or that a limit protects.

        ``guaranteed``: whether the preemptor's queue stays within what it deserves; then gangs that
        were evicted often are candidates as well, the last ones.
        """
        state, units, limits = self._state, self._remaining(queue), self._state.eviction_limits
        if limits.evicted_often(by_others=self._by_others) and not guaranteed:
            units = self._without_evicted_often(units)
        if limits.is_unlimited:
            return units
        evicted = state.statement.evicted
        evictable = limits.evictable(units, evicted, by_others=self._by_others)
        return keeping_protected(evictable, evicted)

    def _without_evicted_often(self, units: Iterator[VictimUnit]) -> Iterator[VictimUnit]:
        limits = self._state.eviction_limits
        often = limits.evicted_often(by_others=self._by_others)
        for unit in units:
            if unit.gang.key not in often:
                yield unit
            else:
                limits.protect_evicted_often(unit.gang.queue)

    def _remaining(self, queue: int) -> Iterator[VictimUnit]:
        if queue not in self._units or self._units[queue][0] != self.changes[queue]:
            self._units[queue] = self.changes[queue], self._in_eviction_order(self.gangs(queue))
            self._evicted_count[queue] = 0
            limited = [gang for gang in self.gangs(queue) if not gang.outlives_all_pods]
            self._limits[queue] = next(filter(None, map(limit_of_whole, limited)), "")
        limit = self._limits[queue]
        if limit:
            name = self._state.quota.queues.names[queue]
            self._state.eviction_limits.protected_by[name] = limit
        (_, units), evicted = self._units[queue], self._state.statement.evicted
        first = self._evicted_count[queue]
        while first < len(units) and units[first].members[0].pod.uid in evicted:
            first += 1
        self._evicted_count[queue] = first
        for position in range(first, len(units)):
            unit = units[position]
            if not evicted or not is_evicted(unit, evicted):
                yield unit

    def invalidate(self, queue: int) -> None:
        """Build the units of a queue again: some of its running gangs have got or lost pods."""
        self.changes[queue] += 1

    def _in_eviction_order(self, gangs: Iterable[Gang]) -> list[VictimUnit]:
        """The units of a queue's gangs in order; the units of one gang keep their own order."""
        ranked = [
            (self._eviction_rank(unit), unit)
            for gang in sorted(gangs, key=lambda g: g.key, reverse=True)
            for unit in _units_of(self._state, gang)
        ]
        return [unit for _, unit in sorted(ranked, key=lambda each: each[0])]

    def _eviction_rank(self, unit: VictimUnit) -> tuple[float, ...]:
        gang = unit.gang
        if not self._state.settings.loss_rules.by_loss:
            return gang.priority, not unit.is_elastic, -gang.created
        limits = self._state.eviction_limits
        often = gang.key in limits.evicted_often(by_others=self._by_others)
        return often, gang.priority, not unit.is_elastic, self.costs.lost_work(unit), -gang.created


def _units_of(state: CycleState, gang: Gang) -> Sequence[VictimUnit]:
    """The units of a gang; none if computing them fails, so that only this gang is affected."""
    if gang.key in state.turns.aside:
        return ()
    try:
        return victim_units(gang, state.statement)
    except Exception as error:
        state.turns.fail(gang, error)
        return ()


def most_saturated_first(
    state: CycleState,
    queues: Sequence[int],
    units_of: Callable[[int], Iterator[VictimUnit]],
    request: Floats,
    *,
    evicted: bool,
) -> Iterator[VictimUnit]:
    """The units of several queues: each time the next one of the most saturated queue.

    ``queues``: their positions; ``units_of``: the units of one in order, asked for when it is its
    turn. ``request`` (quota resources,): that of the reclaimer. A unit counts as evicted as soon as
    it was yielded; with ``evicted``, the caller evicts each before it takes the next, so what
    queues have allocated then counts.
    """
    if len(queues) == 1:
        yield from units_of(queues[0])
        return
    quota = state.quota
    order = VictimQueueOrder(quota.usage, quota.rules, queues, request)
    units: dict[int, Iterator[VictimUnit]] = {}
    while (queue := order.first()) is not None:
        if queue not in units:
            units[queue] = units_of(queue)
        unit = next(units[queue], None)
        if unit is None:
            order.remove(queue)
            continue
        yield unit
        if evicted:
            order.update(queue)
        else:
            order.release(queue, quota.cost_of(unit.members))
