"""The fewest victims that make room for a gang, taken in the order in which they are offered.

    until the gang is placed:
        take offered units until counting says that the gang could fit
        give back, the dearest first, every unit that is not needed for that; of a gang that would
        lose its core, every pod, if those that are needed are no more than its surplus
        where the action offers them anew (``fewer_victims``): the same once more, node by node; the
        smaller loss of the two counts
        place the gang for real, and every victim that finds room elsewhere again: it is moved
        the caller judges the lost ones; the first it refuses is taken no more
    where all of that is refused:
        one of the first few sets again, with a helper of its refused unit that leaves too

Nothing is done unless all of it succeeds, and every unit that was taken was needed: without any one
of them the gang does not fit. Where counting is exact (``headroom.is_exact``) one placement is made
per round. Elsewhere twice as many units are taken after each placement that failed, and whether a
unit is needed is tried out where counting can't tell. Every placement costs a probe; without probes
left the search ends and says so.

Units taken so far in a search for victims, and whether counting says that they suffice.

Two things must hold: the nodes have room for the gang once the units have left (``headroom``), and
its queue and every queue above it stay within ``max`` once it has come. Both are counted, O(pods of
the unit) each; nothing is placed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import islice

from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.plan import Action
from kai_py.plan.session import CycleState
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.statement import Evicted
from kai_py.plan.victims.count import CapacityCount, is_exact
from kai_py.plan.victims.minimise import MAX_UNITS, by_node_eviction_cost, eviction_cost
from kai_py.plan.victims.order import released_quota
from kai_py.plan.victims.relocate import relocate
from kai_py.plan.victims.units import (
    VictimUnit,
    elastic_gangs_below_min,
    is_orphaned,
    keeps_min_members,
    pods_of,
    split_by_pod,
)
from kai_py.policy.queue_usage import exceeds, shared_depth
from kai_py.snapshot.gangs import Gang


class VictimSelection:
    """The units taken for one ask, in the order in which they were offered."""

    def __init__(self, state: CycleState, gang: Gang, request: PlacementRequest) -> None:
        """Nothing is taken yet."""
        self.units: list[VictimUnit] = []
        self._capacity_count = CapacityCount(state, gang, request.members)
        self._queue_limits = _QueueLimits(state, gang, request)
        self._excluded: dict[str, list[VictimUnit]] = {}
        """By gang: nobody else is left behind by those who leave it."""

    @property
    def is_enough(self) -> bool:
        """Whether the gang could fit without the units."""
        return self._capacity_count.is_enough and self._queue_limits.within_limits

    def take_until_enough(self, candidates: Iterator[VictimUnit], min_units: int) -> bool:
        """Take units until they are enough and at least ``least``; whether it is worth a try.

        Where the supply ends before there are ``least``, it is if any unit was added.
        """
        added = False
        while not (self.is_enough and len(self.units) >= min_units):
            unit = next(candidates, None)
            if unit is None:
                return added and self.is_enough
            if any(is_orphaned(each, [unit]) for each in self._excluded.get(unit.gang.key, ())):
                continue
            self.units.append(unit)
            self.count(unit, 1.0)
            added = True
        return True

    def count(self, unit: VictimUnit, sign: float) -> None:
        """Count the unit as gone (or, with -1, as back again)."""
        self._capacity_count.release(unit.members, sign)
        self._queue_limits.release(unit, sign)

    def unneeded(self, units: Sequence[VictimUnit]) -> list[VictimUnit]:
        """Units of which each, alone of its gang, can stay whoever else does, as far as is counted.

        Copies on a node only grow with what is released there: where all of it made room for none,
        a part of it does not.
        """
        if not self._queue_limits.never_exceeded:
            return []
        gained = dict[str, bool]()
        for unit in units:
            for member in unit.members:
                if member.node not in gained:
                    gained[member.node] = self._capacity_count.has_gained(member.node)
        of_gang = Counter(unit.gang.key for unit in units)
        return [
            unit
            for unit in units
            if of_gang[unit.gang.key] == 1 and not any(gained[m.node] for m in unit.members)
        ]

    def exclude(self, unit: VictimUnit) -> None:
        """The unit stays, whatever else is taken, and with it what would leave it behind."""
        self._excluded.setdefault(unit.gang.key, []).append(unit)
        for gone in [u for u in self.units if u is unit or is_orphaned(unit, [u])]:
            self.units.remove(gone)
            self.count(gone, -1.0)


class _QueueLimits:
    """The max of the gang's queue and of those above it; free of cost where none is in the way."""

    def __init__(self, state: CycleState, gang: Gang, request: PlacementRequest) -> None:
        standing, queue = state.quota.usage, state.quota.queues.positions[gang.queue]
        self.within_limits = self.never_exceeded = True
        if not standing.queues.has_max[queue]:
            return
        line = standing.queues.ancestors(queue)
        self._state = state
        self._cost = state.quota.cost_of(request.members)
        self._allocated = standing.allocated[:, line] + self._cost[:, None]
        self._max = standing.queues.max[:, line]
        self._shared = shared_depth(standing.queues, queue)
        self._check()
        self.never_exceeded = self.within_limits

    def release(self, unit: VictimUnit, sign: float) -> None:
        """The unit's queue, as far as it shares its line with the gang's, holds less."""
        if self.never_exceeded:
            return
        shared = self._shared[self._state.quota.queues.positions[unit.gang.queue]]
        self._allocated[:, :shared] -= sign * released_quota(self._state, unit)[:, None]
        self._check()

    def _check(self) -> None:
        asked = self._cost > 0
        self.within_limits = not exceeds(self._allocated[asked], self._max[asked]).any()


FirstRejected = Callable[[Sequence[VictimUnit]], VictimUnit | None]
"""The first of these units that may not be lost together with those before it, if any."""

MAX_HELPED_SETS = 2
"""Refused sets that are tried again with a helper."""

Helpers = Callable[[VictimUnit], Iterable[VictimUnit]]
"""Units whose leaving could give this one, which may not be lost, room to move to."""

SecondProposal = Callable[[int], Iterable[VictimUnit]]
"""All that may be offered of gangs with at most this priority."""

REJECTION_PROBES = 8
"""What a refused set of victims costs beside its placement: choosing starts anew."""


def _no_helpers(_: VictimUnit) -> Iterable[VictimUnit]:
    return ()


class SearchOutcome(Enum):
    """How a search ended."""

    PLACED = auto()
    NO_CAPACITY = auto()
    REJECTED = auto()
    OUT_OF_BUDGET = auto()


@dataclass
class VictimSearch:
    """Makes room for ``ask`` of ``gang`` at the cost of units that ``judge`` allows to lose.

    ``helpers``: asked where a unit is refused. ``anew``: where fewer victims are looked for.
    ``probes``: placements it may try; what was not used is left. ``taken``: the units that leave.
    """

    state: CycleState
    gang: Gang
    request: PlacementRequest
    action: Action
    reason: Callable[[VictimUnit], str]
    first_rejected: FirstRejected
    max_pods: int | None = None
    helpers: Helpers = _no_helpers
    second_proposal: SecondProposal | None = None
    probes: int = 0
    victims: tuple[VictimUnit, ...] = ()
    _exact: bool = field(init=False)

    def __post_init__(self) -> None:
        """Whether counting settles it depends on the ask alone."""
        self._exact = is_exact(self.state, self.gang, self.request.members)

    def run(self, candidates: Iterable[VictimUnit]) -> SearchOutcome:
        """Place the gang, evict what must leave; nothing is done unless the outcome is PLACED."""
        choice = VictimSelection(self.state, self.gang, self.request)
        supply, least = iter(candidates), 0
        refused_any = False
        stuck: list[tuple[list[VictimUnit], VictimUnit]] = []
        while choice.take_until_enough(supply, least):
            if self.probes <= 0:
                return SearchOutcome.OUT_OF_BUDGET
            if not self._exact and not self._fits(choice.units):
                least = 2 * max(1, len(choice.units))
                continue
            needed = self._needed_units(choice)
            whole = next((unit for unit in needed if unit.is_partial), None)
            if whole is not None:
                choice.exclude(whole)
                self.probes -= REJECTION_PROBES
                refused_any = True
                continue
            needed = self._minimise(needed)
            settled = self._try_victims(needed)
            if settled is None:
                self._exact = False
                continue
            if settled.rejected is None:
                return SearchOutcome.PLACED
            stuck.append((needed, settled.rejected))
            choice.exclude(settled.rejected)
            self.probes -= REJECTION_PROBES
            refused_any = True
        if any(self._try_with_helper(*each) for each in stuck[:MAX_HELPED_SETS]):
            return SearchOutcome.PLACED
        return SearchOutcome.REJECTED if refused_any else SearchOutcome.NO_CAPACITY

    def _try_with_helper(self, units: Sequence[VictimUnit], rejected: VictimUnit) -> bool:
        """Do it with one more unit that makes room for the one that was refused, if any does."""
        leaving = {member.pod.uid for member in pods_of(units)}
        for helper in self.helpers(rejected):
            if self.probes <= 0:
                break
            if any(member.pod.uid in leaving for member in helper.members):
                continue
            settled = self._try_victims([*units, helper])
            if settled is not None and settled.rejected is None:
                return True
        return False

    def _minimise(self, needed: list[VictimUnit]) -> list[VictimUnit]:
        """``needed``, or others of no higher priority that are a smaller loss."""
        if self.second_proposal is None or len(pods_of(needed)) < 2:
            return needed
        offered = self.second_proposal(max(unit.gang.priority for unit in needed))
        units = list(islice(offered, min(MAX_UNITS, self.state.minimisation_budget)))
        self.state.minimisation_budget -= len(units)
        other = VictimSelection(self.state, self.gang, self.request)
        supply, least = iter(by_node_eviction_cost(self.state, self.request, units)), 0
        while other.take_until_enough(supply, least):
            if self._exact or self._fits(other.units):
                return min(needed, self._needed_units(other), key=eviction_cost)
            least = 2 * len(other.units)
        return needed

    def _needed_units(self, selection: VictimSelection) -> list[VictimUnit]:
        """The units without those that can stay; ``choice`` is as before afterwards."""
        kept, spared = self._drop_unneeded(selection, selection.units)
        for gang in elastic_gangs_below_min(kept, self.state.statement):
            apart = split_by_pod(kept, gang)
            fewer, stay = self._drop_unneeded(selection, apart)
            if keeps_min_members(gang, fewer, self.state.statement):
                kept, spared = fewer, [*spared, *stay]
            else:
                for unit in stay:
                    selection.count(unit, 1.0)
        for unit in spared:
            selection.count(unit, 1.0)
        return kept

    def _drop_unneeded(
        self, selection: VictimSelection, units: Sequence[VictimUnit]
    ) -> tuple[list[VictimUnit], list[VictimUnit]]:
        """Those of ``units`` that are needed, and those that can stay and are counted as back.

        Who can stay without a count is in neither.
        """
        if self._exact and len(units) == 1:
            return list(units), []
        spared = [] if self._exact else self._units_elsewhere(selection, units)
        useless = selection.unneeded(units) if self._exact else []
        kept = {id(unit): unit for unit in units}
        for unit in (*spared, *useless):
            del kept[id(unit)]
        by_gang: dict[str, list[VictimUnit]] = {}
        for unit in kept.values():
            by_gang.setdefault(unit.gang.key, []).append(unit)
        for unit in reversed(list(kept.values())):
            peers = by_gang[unit.gang.key]
            if is_orphaned(unit, peers):
                continue
            selection.count(unit, -1.0)
            del kept[id(unit)]
            if selection.is_enough and (self._exact or self._fits(list(kept.values()))):
                peers.remove(unit)
                spared.append(unit)
                continue
            selection.count(unit, 1.0)
            kept[id(unit)] = unit
        return [unit for unit in units if id(unit) in kept], spared

    def _units_elsewhere(
        self, selection: VictimSelection, units: Sequence[VictimUnit]
    ) -> list[VictimUnit]:
        """Units on nodes that the gang does not go to, counted as back, if all of them can stay."""
        names = self.state.snapshot.nodes.names
        with self.state.statement.trial():
            self._place(units, explain=False)
            placed = self.state.statement.placed
            used = {
                names[placed[m.pod.uid].row] for m in self.request.members if m.pod.uid in placed
            }
        near = [u for u in units if any(member.node in used for member in u.members)]
        far = [u for u in units if u not in near and not is_orphaned(u, near)]
        for unit in far:
            selection.count(unit, -1.0)
        if selection.is_enough and self._fits([unit for unit in units if unit not in far]):
            return far
        for unit in far:
            selection.count(unit, 1.0)
        return []

    def _fits(self, units: Sequence[VictimUnit]) -> bool:
        if self.probes <= 0:
            return False
        self.probes -= 1
        with self.state.statement.trial():
            return self._place(units, explain=False)

    def _try_victims(self, units: Sequence[VictimUnit]) -> "_TriedVictims | None":
        """Do it, unless one of the units may not be lost; None if the gang does not fit."""
        self.probes -= 1
        if self.max_pods is not None and len(pods_of(units)) > self.max_pods:
            return _TriedVictims(units[-1])
        with self.state.statement.trial() as trial:
            if not self._place(units, explain=True):
                return None
            refused = self.first_rejected(relocate(self.state, units, self.action))
            if refused is None:
                self.victims = tuple(units)
                trial.keep()
        return _TriedVictims(refused)

    def _place(self, units: Sequence[VictimUnit], *, explain: bool) -> bool:
        """Evict the units and place the gang; ``told``: with the reason, for it may stand."""
        statement = self.state.statement
        for unit in units:
            reason = self.reason(unit) if explain else ""
            for member in unit.members:
                statement.evict(Evicted(member, unit.gang, self.action, self.gang, reason))
        blocked = self.state.placer.place(
            statement,
            self.gang,
            self.request.members,
            self.action,
            capacity=Capacity.FUTURE_IDLE,
            explain=False,
        )
        return blocked is None


@dataclass(frozen=True, slots=True)
class _TriedVictims:
    """The gang fits; ``refused``: the unit that may not be lost for it, None when it was placed."""

    rejected: VictimUnit | None
