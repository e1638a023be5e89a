"""The units selected so far in a search for victims, and whether they suffice, by counting.

They suffice if, without them, the nodes have capacity for the request (``count``), and the
preemptor's queue and every queue above it stay within ``max`` with the request. Selecting a unit
costs O(pods of the unit); nothing is placed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.victims.count import CapacityCount
from kai_py.plan.victims.strategy import VictimStrategy
from kai_py.plan.victims.units import VictimUnit, is_evicted_with, is_on, pods_of
from kai_py.policy.queue_usage import QuotaBound, exceeds, shared_depth
from kai_py.snapshot.gangs import Gang

READ_AHEAD = 0.25
"""How many candidates are counted at once, as a fraction of those that are selected."""


class VictimSelection:
    """``units``: those selected for one request, in the order of the candidates."""

    def __init__(self, strategy: VictimStrategy) -> None:
        """Select nothing yet."""
        state, gang, request = strategy.state, strategy.gang, strategy.request
        self.units: list[VictimUnit] = []
        self._read_ahead: list[VictimUnit] = []
        self._poll = state.turns.watch.poll
        self._capacity_count = CapacityCount(state, gang, request.members, strategy.possible_nodes)
        self._queue_limits = _QueueLimits(state, gang, request)
        self._min_units = self._min_replicas = 0
        self._excluded: dict[str, list[VictimUnit]] = {}
        """By gang key: units that must stay, so nothing that they are evicted with may be taken."""
        self._excluded_alike: list[Callable[[VictimUnit], bool]] = []

    @property
    def is_enough(self) -> bool:
        """Whether, by counting, the request fits once the selected units are evicted."""
        return self._capacity_count.is_enough and self._queue_limits.within_limits

    @property
    def units_read(self) -> list[VictimUnit]:
        """The units selected, and the candidates after them that were read already."""
        return self.units + self._read_ahead

    @property
    def only_gains_matter(self) -> bool:
        """Whether, by resources and queues, only units that gain replicas can be of use."""
        return self._queue_limits.never_exceeded and self._capacity_count.is_by_node

    def double(self, *, in_replicas: bool) -> None:
        """Take twice as many units next time, or units that gain twice as many replicas."""
        if in_replicas:
            self._min_replicas = 2 * self._capacity_count.replicas
        else:
            self._min_units = 2 * max(1, len(self.units))

    def take_until_enough(self, candidates: Iterator[VictimUnit]) -> bool:
        """Take candidates until they are enough, and as many as ``double`` asked for.

        Returns whether the selection is worth a trial placement: it is enough, and if there were
        fewer candidates than that, at least one was added.
        """
        added = False
        while not (self._has_min_replicas and len(self.units) >= self._min_units):
            next_units = self._next_units(candidates)
            if not next_units:
                return added and self.is_enough
            count = self._count_until_enough(next_units, self._min_units - len(self.units))
            self.units += next_units[:count]
            self._read_ahead = next_units[count:] + self._read_ahead
            added = True
        return True

    @property
    def _has_min_replicas(self) -> bool:
        return self.is_enough and self._capacity_count.replicas >= self._min_replicas

    def _next_units(self, candidates: Iterator[VictimUnit]) -> list[VictimUnit]:
        """The next candidates, as many as could be enough; empty if none is left.

        At least ``READ_AHEAD`` of the number of those that are selected.
        """
        found: list[VictimUnit] = []
        never_exceeded = self._queue_limits.never_exceeded
        missing = self._capacity_count.missing(self._min_replicas) if never_exceeded else 0
        least = max(1, int(len(self.units) * READ_AHEAD))
        read, self._read_ahead = iter(self._read_ahead), []
        for unit in chain(read, candidates):
            self._poll()
            if self._excluded and self._is_excluded(unit):
                continue
            if self._excluded_alike and any(alike(unit) for alike in self._excluded_alike):
                self._let_stay(unit)
                continue
            found.append(unit)
            if missing > 0:
                missing -= self._capacity_count.max_gained(unit.members)
            if missing <= 0 and len(found) >= least:
                break
        self._read_ahead = list(read)
        return found

    def _count_until_enough(self, units: Sequence[VictimUnit], min_count: int) -> int:
        """Count the shortest prefix of ``units`` as evicted that is enough, or all of them.

        Returns its length, which is at least ``min_count``. By bisection, as evicting more units
        never leaves less capacity: O(pods) for all steps together.
        """
        self.count(units, 1.0)
        if not self._has_min_replicas or len(units) == 1:
            return len(units)
        too_few, enough = max(0, min(min_count, len(units)) - 1), len(units)
        counted = enough
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            self._count_between(units, counted, middle)
            counted = middle
            if self._has_min_replicas:
                enough = middle
            else:
                too_few = middle
        self._count_between(units, counted, enough)
        return enough

    def _count_between(self, units: Sequence[VictimUnit], counted: int, count: int) -> None:
        """Count the first ``count`` of ``units`` instead of the first ``counted``."""
        if count < counted:
            self.count(units[count:counted], -1.0)
        else:
            self.count(units[counted:count], 1.0)

    def count(self, units: Sequence[VictimUnit], sign: float) -> None:
        """Count the units as evicted (or, with -1, as back again)."""
        self._capacity_count.release(pods_of(units), sign)
        if not self._queue_limits.never_exceeded:
            for unit in units:
                self._queue_limits.release(unit, sign)

    def _is_excluded(self, unit: VictimUnit) -> bool:
        stays = self._excluded.get(unit.gang.key, ())
        return any(is_evicted_with(each, [unit]) for each in stays)

    def must_leave(self, units: Iterable[VictimUnit]) -> set[VictimUnit]:
        """Those of ``units`` that are certainly needed: if one stays, the request does not fit."""
        known: dict[tuple[str, int], bool] = {}
        found: set[VictimUnit] = set()
        for unit in units:
            first = unit.members[0]
            kind = first.node, first.shape.number
            if len(unit.members) > 1:
                continue
            if kind not in known:
                known[kind] = self._capacity_count.must_leave(unit.members)
            if known[kind]:
                found.add(unit)
        return found

    def useless(self, units: Sequence[VictimUnit]) -> list[VictimUnit]:
        """Those of ``units`` whose eviction gains nothing.

        No more replicas fit on their nodes although all selected units there count as evicted. Only
        units that are the only one of their gang, as others may have to be evicted together.
        """
        if not self._queue_limits.never_exceeded:
            return []
        gaining = self._capacity_count.gaining_nodes()
        of_gang = Counter(unit.gang.key for unit in units)
        return [u for u in units if of_gang[u.gang.key] == 1 and not is_on(u, gaining)]

    def gaining(self) -> list[VictimUnit]:
        """The selected units of which a pod is on a node that fits more replicas without them."""
        gaining = self._capacity_count.gaining_nodes()
        return [unit for unit in self.units if is_on(unit, gaining)]

    def exclude(
        self, unit: VictimUnit, is_alike: Callable[[VictimUnit], bool] | None = None
    ) -> None:
        """Remove the unit, which must stay, and those that may not be evicted without it.

        They are not taken again (``is_evicted_with``). The same for all units to which ``is_alike``
        applies, also among later candidates.
        """
        staying = [unit]
        if is_alike is not None:
            self._excluded_alike.append(is_alike)
            staying += [each for each in self.units if each is not unit and is_alike(each)]
        for each in staying:
            self._let_stay(each)
        ids = {id(each) for each in staying}
        removed = [u for u in self.units if id(u) in ids or self._is_excluded(u)]
        ids.update(map(id, removed))
        self.units = [each for each in self.units if id(each) not in ids]
        self.count(removed, -1.0)

    def _let_stay(self, unit: VictimUnit) -> None:
        self._excluded.setdefault(unit.gang.key, []).append(unit)


class _QueueLimits:
    """Whether the preemptor's queue and those above it stay within ``max`` with the request.

    ``within_limits``: now; ``never_exceeded``: even if no unit leaves, so nothing is counted.
    """

    def __init__(self, state: CycleState, gang: Gang, request: PlacementRequest) -> None:
        queue = state.quota.queues.positions[gang.queue]
        usage = state.quota.usage_beside(gang, request.members)
        self.within_limits = self.never_exceeded = True
        if not usage.queues.has_max[queue]:
            return
        ancestors = usage.queues.ancestors(queue)
        self._state = state
        self._cost = state.charged_cost(gang, request.members)
        self._allocated = usage.counted(QuotaBound.MAX, ancestors) + self._cost[:, None]
        self._max = usage.queues.max[:, ancestors]
        self._shared = shared_depth(usage.queues, queue)
        self._check()
        self.never_exceeded = self.within_limits

    def release(self, unit: VictimUnit, sign: float) -> None:
        """Count the unit as evicted (-1: as back) in the queues above both it and the preemptor."""
        if self.never_exceeded:
            return
        quota = self._state.quota
        shared = self._shared[quota.queues.positions[unit.gang.queue]]
        self._allocated[:, :shared] -= sign * quota.cost_of(unit.members)[:, None]
        self._check()

    def _check(self) -> None:
        requested = self._cost > 0
        self.within_limits = not exceeds(self._allocated[requested], self._max[requested]).any()
