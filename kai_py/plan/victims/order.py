"""In which order units are offered as victims.

Inside a queue: low priority first, surplus before cores, the youngest first. Between queues the
reverse of the order in which queues place: the queue that is over its share gives before the one
that is not, the one without guarantee left before the one within it, low priority before high, and
then the one that holds most of its due, counting what was offered already. So queues end level.

Units come one by one, because a search that found enough does not want the rest. Building a queue's
units costs O(gangs log gangs) once per action, taking the next O(depth x siblings).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from kai_py.plan.session import CycleState
from kai_py.plan.victims.units import VictimUnit, victim_units
from kai_py.policy.queue_order import QueueOrder
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.resources import Floats


class VictimPool:
    """Who could leave, by queue; kept for the length of one action."""

    def __init__(self, state: CycleState) -> None:
        """Nobody's units are built before they are asked for."""
        self._state = state
        self._lowest_priority: dict[int, int | None] = {}
        self._units: dict[int, list[VictimUnit]] = {}
        self._evicted_count: dict[int, int] = {}
        self._released_ranges: dict[int, tuple[Floats, Floats, Floats]] = {}

    def queues(self) -> list[int]:
        """Queues with anybody who could leave."""
        return sorted(self._state.evictable)

    def gangs(self, queue: int) -> Sequence[Gang]:
        """Preemptible gangs of a queue that had running pods when the action began."""
        return self._state.evictable.get(queue, ())

    def lowest_priority(self, queue: int) -> int | None:
        """The lowest priority among them; None where nobody runs."""
        if queue not in self._lowest_priority:
            self._lowest_priority[queue] = min(
                (gang.priority for gang in self.gangs(queue)), default=None
            )
        return self._lowest_priority[queue]

    def units(self, queue: int) -> Iterator[VictimUnit]:
        """Units of a queue that are still there and may go now, in order."""
        return self._state.eviction_limits.evictable(
            self._remaining(queue), self._state.statement.evicted
        )

    def _remaining(self, queue: int) -> Iterator[VictimUnit]:
        if queue not in self._units:
            self._units[queue] = in_eviction_order(
                self._state, self._state.evictable.get(queue, ())
            )
        units, evicted = self._units[queue], self._state.statement.evicted
        at = self._evicted_count.get(queue, 0)
        while at < len(units) and units[at].members[0].pod.uid in evicted:
            at += 1
        self._evicted_count[queue] = at
        for position in range(at, len(units)):
            if not any(member.pod.uid in evicted for member in units[position].members):
                yield units[position]

    def released_range(self, queue: int) -> tuple[Floats, Floats, Floats]:
        """(resources,) three times: the least and the most that a unit gives back, and all do.

        Of the units that were there when the action began.
        """
        known = self._released_ranges.get(queue)
        if known is None:
            costs = np.array([released_quota(self._state, unit) for unit in self.units(queue)])
            if not len(costs):
                costs = np.zeros((1, len(self._state.quota.resources)))
            known = self._released_ranges[queue] = (
                costs.min(axis=0),
                costs.max(axis=0),
                costs.sum(axis=0),
            )
        return known

    def invalidate(self, queue: int) -> None:
        """A gang of the queue that has running pods was given more: its units differ now."""
        self._units.pop(queue, None)
        self._evicted_count.pop(queue, None)
        self._released_ranges.pop(queue, None)


def in_eviction_order(state: CycleState, gangs: Iterable[Gang]) -> list[VictimUnit]:
    """The order inside one queue; the units of a gang keep theirs."""
    ranked = [
        ((unit.gang.priority, not unit.is_elastic, -unit.gang.created), unit)
        for gang in sorted(gangs, key=lambda g: g.key, reverse=True)
        for unit in victim_units(gang, state.statement)
    ]
    return [unit for _, unit in sorted(ranked, key=lambda each: each[0])]


def most_saturated_first(
    state: CycleState, by_queue: Mapping[int, Iterator[VictimUnit]]
) -> Iterator[VictimUnit]:
    """The order between queues, through the tree."""
    if len(by_queue) == 1:
        yield from next(iter(by_queue.values()))
        return
    line = QueueOrder(state.quota.usage, state.quota.rules, reverse=True)
    nothing = np.zeros(len(state.quota.resources))
    following = {queue: next(units, None) for queue, units in sorted(by_queue.items())}
    for queue, unit in following.items():
        line.update(queue, None if unit is None else nothing)
    while (giver := line.first()) is not None and (unit := following[giver]) is not None:
        yield unit
        line.release(giver, released_quota(state, unit))
        following[giver] = next(by_queue[giver], None)
        line.update(giver, None if following[giver] is None else nothing)


def most_saturated_next(
    state: CycleState, by_queue: Mapping[int, Iterator[VictimUnit]]
) -> Iterator[VictimUnit]:
    """The first by ``most_saturated_first`` as things stand whenever one is asked for.

    Whoever was offered has left by then.
    """
    if len(by_queue) == 1:
        yield from next(iter(by_queue.values()))
        return
    line = QueueOrder(state.quota.usage, state.quota.rules, reverse=True)
    nothing = np.zeros(len(state.quota.resources))
    following = {queue: next(units, None) for queue, units in sorted(by_queue.items())}
    while True:
        for queue, unit in following.items():
            line.update(queue, None if unit is None else nothing)
        giver = line.first()
        unit = None if giver is None else following[giver]
        if giver is None or unit is None:
            return
        yield unit
        following[giver] = next(by_queue[giver], None)


def released_quota(state: CycleState, unit: VictimUnit) -> Floats:
    """(quota resources,) what a unit gives back to its queue."""
    return state.quota.cost_of(unit.members)
