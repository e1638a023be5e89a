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

from kai_py.plan.placement.next_pods import Ask
from kai_py.plan.plan import Action
from kai_py.plan.session import CycleState
from kai_py.plan.state.capacity import Room
from kai_py.plan.state.statement import Evicted
from kai_py.plan.victims.count import Headroom, is_exact
from kai_py.plan.victims.minimise import MOST_WEIGHED, by_cheapest_nodes, loss
from kai_py.plan.victims.order import cost_of
from kai_py.plan.victims.relocate import place_again
from kai_py.plan.victims.units import (
    VictimUnit,
    elastic_losing_cores,
    keeps_floors,
    one_by_one,
    pods_of,
    stays_behind,
)
from kai_py.policy.queue_usage import exceeds, shared_depth
from kai_py.snapshot.gangs import Gang


class Choice:
    """The units taken for one ask, in the order in which they were offered."""

    def __init__(self, state: CycleState, gang: Gang, ask: Ask) -> None:
        """Nothing is taken yet."""
        self.units: list[VictimUnit] = []
        self._headroom = Headroom(state, gang, ask.members)
        self._bounds = _Bounds(state, gang, ask)
        self._banned: dict[str, list[VictimUnit]] = {}
        """By gang: nobody else is left behind by those who leave it."""

    @property
    def enough(self) -> bool:
        """Whether the gang could fit without the units."""
        return self._headroom.enough and self._bounds.hold

    def gather(self, supply: Iterator[VictimUnit], least: int) -> bool:
        """Take units until they are enough and at least ``least``; whether it is worth a try.

        Where the supply ends before there are ``least``, it is if any unit was added.
        """
        added = False
        while not (self.enough and len(self.units) >= least):
            unit = next(supply, None)
            if unit is None:
                return added and self.enough
            if any(stays_behind(each, [unit]) for each in self._banned.get(unit.gang.key, ())):
                continue
            self.units.append(unit)
            self.count(unit, 1.0)
            added = True
        return True

    def count(self, unit: VictimUnit, sign: float) -> None:
        """Count the unit as gone (or, with -1, as back again)."""
        self._headroom.release(unit.members, sign)
        self._bounds.release(unit, sign)

    def useless(self, units: Sequence[VictimUnit]) -> list[VictimUnit]:
        """Units of which each, alone of its gang, can stay whoever else does, as far as is counted.

        Copies on a node only grow with what is released there: where all of it made room for none,
        a part of it does not.
        """
        if not self._bounds.free_of_cost:
            return []
        gained = dict[str, bool]()
        for unit in units:
            for member in unit.members:
                if member.node not in gained:
                    gained[member.node] = self._headroom.gained(member.node)
        of_gang = Counter(unit.gang.key for unit in units)
        return [
            unit
            for unit in units
            if of_gang[unit.gang.key] == 1 and not any(gained[m.node] for m in unit.members)
        ]

    def ban(self, unit: VictimUnit) -> None:
        """The unit stays, whatever else is taken, and with it what would leave it behind."""
        self._banned.setdefault(unit.gang.key, []).append(unit)
        for gone in [u for u in self.units if u is unit or stays_behind(unit, [u])]:
            self.units.remove(gone)
            self.count(gone, -1.0)


class _Bounds:
    """The max of the gang's queue and of those above it; free of cost where none is in the way."""

    def __init__(self, state: CycleState, gang: Gang, ask: Ask) -> None:
        standing, queue = state.quota.standing, state.quota.queues.positions[gang.queue]
        self.hold = self.free_of_cost = True
        if not standing.queues.has_max[queue]:
            return
        line = standing.queues.ancestors(queue)
        self._state = state
        self._cost = state.quota.cost_of(ask.members)
        self._held = standing.allocated[:, line] + self._cost[:, None]
        self._max = standing.queues.max[:, line]
        self._shared = shared_depth(standing.queues, queue)
        self._check()
        self.free_of_cost = self.hold

    def release(self, unit: VictimUnit, sign: float) -> None:
        """The unit's queue, as far as it shares its line with the gang's, holds less."""
        if self.free_of_cost:
            return
        shared = self._shared[self._state.quota.queues.positions[unit.gang.queue]]
        self._held[:, :shared] -= sign * cost_of(self._state, unit)[:, None]
        self._check()

    def _check(self) -> None:
        asked = self._cost > 0
        self.hold = not exceeds(self._held[asked], self._max[asked]).any()


Judge = Callable[[Sequence[VictimUnit]], VictimUnit | None]
"""The first of these units that may not be lost together with those before it, if any."""

MOST_HELPED = 2
"""Refused sets that are tried again with a helper."""

Helpers = Callable[[VictimUnit], Iterable[VictimUnit]]
"""Units whose leaving could give this one, which may not be lost, room to move to."""

Anew = Callable[[int], Iterable[VictimUnit]]
"""All that may be offered of gangs with at most this priority."""

REFUSAL_PROBES = 8
"""What a refused set of victims costs beside its placement: choosing starts anew."""


def _nobody(_: VictimUnit) -> Iterable[VictimUnit]:
    return ()


class Outcome(Enum):
    """How a search ended."""

    PLACED = auto()
    NO_ROOM = auto()
    REFUSED = auto()
    OUT_OF_BUDGET = auto()


@dataclass
class VictimSearch:
    """Makes room for ``ask`` of ``gang`` at the cost of units that ``judge`` allows to lose.

    ``helpers``: asked where a unit is refused. ``anew``: where fewer victims are looked for.
    ``probes``: placements it may try; what was not used is left. ``taken``: the units that leave.
    """

    state: CycleState
    gang: Gang
    ask: Ask
    action: Action
    reason: Callable[[VictimUnit], str]
    judge: Judge
    most_pods: int | None = None
    helpers: Helpers = _nobody
    anew: Anew | None = None
    probes: int = 0
    taken: tuple[VictimUnit, ...] = ()
    _exact: bool = field(init=False)

    def __post_init__(self) -> None:
        """Whether counting settles it depends on the ask alone."""
        self._exact = is_exact(self.state, self.gang, self.ask.members)

    def run(self, offered: Iterable[VictimUnit]) -> Outcome:
        """Place the gang, evict what must leave; nothing is done unless the outcome is PLACED."""
        choice = Choice(self.state, self.gang, self.ask)
        supply, least = iter(offered), 0
        refused_any = False
        stuck: list[tuple[list[VictimUnit], VictimUnit]] = []
        while choice.gather(supply, least):
            if self.probes <= 0:
                return Outcome.OUT_OF_BUDGET
            if not self._exact and not self._fits(choice.units):
                least = 2 * max(1, len(choice.units))
                continue
            needed = self._needed(choice)
            whole = next((unit for unit in needed if unit.in_part), None)
            if whole is not None:
                choice.ban(whole)
                self.probes -= REFUSAL_PROBES
                refused_any = True
                continue
            needed = self._fewer(needed)
            settled = self._settle(needed)
            if settled is None:
                self._exact = False
                continue
            if settled.refused is None:
                return Outcome.PLACED
            stuck.append((needed, settled.refused))
            choice.ban(settled.refused)
            self.probes -= REFUSAL_PROBES
            refused_any = True
        if any(self._with_help(*each) for each in stuck[:MOST_HELPED]):
            return Outcome.PLACED
        return Outcome.REFUSED if refused_any else Outcome.NO_ROOM

    def _with_help(self, units: Sequence[VictimUnit], refused: VictimUnit) -> bool:
        """Do it with one more unit that makes room for the one that was refused, if any does."""
        leaving = {member.pod.uid for member in pods_of(units)}
        for helper in self.helpers(refused):
            if self.probes <= 0:
                break
            if any(member.pod.uid in leaving for member in helper.members):
                continue
            settled = self._settle([*units, helper])
            if settled is not None and settled.refused is None:
                return True
        return False

    def _fewer(self, needed: list[VictimUnit]) -> list[VictimUnit]:
        """``needed``, or others of no higher priority that are a smaller loss."""
        if self.anew is None or len(pods_of(needed)) < 2:
            return needed
        offered = self.anew(max(unit.gang.priority for unit in needed))
        units = list(islice(offered, min(MOST_WEIGHED, self.state.weighable)))
        self.state.weighable -= len(units)
        other = Choice(self.state, self.gang, self.ask)
        supply, least = iter(by_cheapest_nodes(self.state, self.ask, units)), 0
        while other.gather(supply, least):
            if self._exact or self._fits(other.units):
                return min(needed, self._needed(other), key=loss)
            least = 2 * len(other.units)
        return needed

    def _needed(self, choice: Choice) -> list[VictimUnit]:
        """The units without those that can stay; ``choice`` is as before afterwards."""
        kept, spared = self._fewest(choice, choice.units)
        for gang in elastic_losing_cores(kept, self.state.statement):
            apart = one_by_one(kept, gang)
            fewer, stay = self._fewest(choice, apart)
            if keeps_floors(gang, fewer, self.state.statement):
                kept, spared = fewer, [*spared, *stay]
            else:
                for unit in stay:
                    choice.count(unit, 1.0)
        for unit in spared:
            choice.count(unit, 1.0)
        return kept

    def _fewest(
        self, choice: Choice, units: Sequence[VictimUnit]
    ) -> tuple[list[VictimUnit], list[VictimUnit]]:
        """Those of ``units`` that are needed, and those that can stay and are counted as back.

        Who can stay without a count is in neither.
        """
        if self._exact and len(units) == 1:
            return list(units), []
        spared = [] if self._exact else self._far_away(choice, units)
        useless = choice.useless(units) if self._exact else []
        kept = {id(unit): unit for unit in units}
        for unit in (*spared, *useless):
            del kept[id(unit)]
        by_gang: dict[str, list[VictimUnit]] = {}
        for unit in kept.values():
            by_gang.setdefault(unit.gang.key, []).append(unit)
        for unit in reversed(list(kept.values())):
            peers = by_gang[unit.gang.key]
            if stays_behind(unit, peers):
                continue
            choice.count(unit, -1.0)
            del kept[id(unit)]
            if choice.enough and (self._exact or self._fits(list(kept.values()))):
                peers.remove(unit)
                spared.append(unit)
                continue
            choice.count(unit, 1.0)
            kept[id(unit)] = unit
        return [unit for unit in units if id(unit) in kept], spared

    def _far_away(self, choice: Choice, units: Sequence[VictimUnit]) -> list[VictimUnit]:
        """Units on nodes that the gang does not go to, counted as back, if all of them can stay."""
        names = self.state.snapshot.nodes.names
        with self.state.statement.trial():
            self._place(units, told=False)
            placed = self.state.statement.placed
            used = {names[placed[m.pod.uid].row] for m in self.ask.members if m.pod.uid in placed}
        near = [u for u in units if any(member.node in used for member in u.members)]
        far = [u for u in units if u not in near and not stays_behind(u, near)]
        for unit in far:
            choice.count(unit, -1.0)
        if choice.enough and self._fits([unit for unit in units if unit not in far]):
            return far
        for unit in far:
            choice.count(unit, 1.0)
        return []

    def _fits(self, units: Sequence[VictimUnit]) -> bool:
        if self.probes <= 0:
            return False
        self.probes -= 1
        with self.state.statement.trial():
            return self._place(units, told=False)

    def _settle(self, units: Sequence[VictimUnit]) -> "_Settled | None":
        """Do it, unless one of the units may not be lost; None if the gang does not fit."""
        self.probes -= 1
        if self.most_pods is not None and len(pods_of(units)) > self.most_pods:
            return _Settled(units[-1])
        with self.state.statement.trial() as trial:
            if not self._place(units, told=True):
                return None
            refused = self.judge(place_again(self.state, units, self.action))
            if refused is None:
                self.taken = tuple(units)
                trial.keep()
        return _Settled(refused)

    def _place(self, units: Sequence[VictimUnit], *, told: bool) -> bool:
        """Evict the units and place the gang; ``told``: with the reason, for it may stand."""
        statement = self.state.statement
        for unit in units:
            reason = self.reason(unit) if told else ""
            for member in unit.members:
                statement.evict(Evicted(member, unit.gang, self.action, self.gang, reason))
        blocked = self.state.placer.place(
            statement, self.gang, self.ask.members, self.action, room=Room.LATER, told=False
        )
        return blocked is None


@dataclass(frozen=True, slots=True)
class _Settled:
    """The gang fits; ``refused``: the unit that may not be lost for it, None when it was placed."""

    refused: VictimUnit | None
