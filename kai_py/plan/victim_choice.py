"""Units taken so far in a search for victims, and whether counting says that they suffice.

Two things must hold: the nodes have room for the gang once the units have left (``headroom``), and
its queue and every queue above it stay within ``max`` once it has come. Both are counted, O(pods of
the unit) each; nothing is placed.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from kai_py.plan.placement.next_pods import Ask
from kai_py.plan.session import CycleState
from kai_py.plan.victims.count import Headroom
from kai_py.plan.victims.order import cost_of
from kai_py.plan.victims.units import VictimUnit, stays_behind
from kai_py.policy.standing import exceeds, shared_depth
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
