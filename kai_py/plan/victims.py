"""The fewest victims that make room for a gang, taken in a given order.

Victims come in units: a surplus pod alone, or all that is left of a gang, because a gang without
its floor is worth nothing. Whether the gang fits is monotone in how many units of the order leave,
so the smallest prefix is found by doubling and bisection instead of by trying combinations. Units
of that prefix that turn out not to be needed are given back, the dearest first, until removing any
one more would leave the gang without room.

A search costs O(log units) probes for the prefix plus one probe per unit that touches a node the
gang was placed on; a probe is one placement.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kai_py.plan.candidates import Ask
from kai_py.plan.cycle_state import CycleState
from kai_py.plan.decisions import Action
from kai_py.plan.room import Room
from kai_py.plan.statement import Evicted
from kai_py.policy.limits import check_limits
from kai_py.snapshot.accounting import total
from kai_py.snapshot.gangs import Gang, Member

Legal = Callable[[Sequence["VictimUnit"]], bool]


@dataclass(frozen=True, slots=True)
class VictimUnit:
    """Pods that leave together, of one gang. ``core`` when the gang's floor goes with them."""

    gang: Gang
    members: tuple[Member, ...]
    core: bool


def victim_units(gang: Gang, already: frozenset[str] = frozenset()) -> list[VictimUnit]:
    """The units of a running gang, cheapest first: surplus pods, last placed first, then the core.

    ``already``: uids of pods that leave anyway.
    """
    bound = [m for m in gang.bound if m.pod.uid not in already]
    kept: dict[str, int] = {leaf.name: leaf.min_members for leaf in gang.tree.leaves()}
    core: list[Member] = []
    surplus: list[Member] = []
    for member in bound:
        if kept.get(member.leaf, 0) > 0:
            kept[member.leaf] -= 1
            core.append(member)
        else:
            surplus.append(member)
    units = [VictimUnit(gang, (member,), core=False) for member in reversed(surplus)]
    return [*units, VictimUnit(gang, tuple(core), core=True)] if core else units


@dataclass(frozen=True, slots=True)
class VictimSearch:
    """Makes room for ``ask`` of ``gang``. ``legal`` judges the units taken together."""

    state: CycleState
    gang: Gang
    ask: Ask
    action: Action
    reason: Callable[[VictimUnit], str]
    legal: Legal | None = None

    def run(self, units: Sequence[VictimUnit]) -> tuple[VictimUnit, ...] | None:
        """Place the gang and evict the fewest of ``units``; None, and nothing done, if it fails."""
        if not units or self._nodes(units) is None:
            return None
        prefix = units[: self._smallest_prefix(units)]
        chosen = self._without_needless(prefix)
        if self.legal is not None and not self.legal(chosen):
            return None
        with self.state.statement.trial() as trial:
            if self._probe(chosen):
                trial.keep()
                return tuple(chosen)
        return None

    def _smallest_prefix(self, units: Sequence[VictimUnit]) -> int:
        """All units together suffice; find the least number that does."""
        high = 1
        while high < len(units) and self._nodes(units[:high]) is None:
            high *= 2
        low, high = high // 2 + 1, min(high, len(units))
        while low < high:
            middle = (low + high) // 2
            if self._nodes(units[:middle]) is None:
                low = middle + 1
            else:
                high = middle
        return high

    def _without_needless(self, units: Sequence[VictimUnit]) -> list[VictimUnit]:
        chosen = list(units)
        used = self._nodes(chosen)
        near = [unit for unit in chosen if used and any(m.node in used for m in unit.members)]
        if len(near) < len(chosen) and self._nodes(near) is not None:
            chosen = near
        for unit in list(reversed(chosen)):
            fewer = [kept for kept in chosen if kept is not unit]
            if self._is_orphaned_surplus(unit, fewer) or self._nodes(fewer) is None:
                continue
            chosen = fewer
        return chosen

    @staticmethod
    def _is_orphaned_surplus(unit: VictimUnit, others: Sequence[VictimUnit]) -> bool:
        """Surplus can't stay when the core of its gang goes."""
        return not unit.core and any(o.core and o.gang.key == unit.gang.key for o in others)

    def _nodes(self, units: Sequence[VictimUnit]) -> frozenset[str] | None:
        """The nodes the gang would be placed on if ``units`` left; None if it would not fit."""
        statement = self.state.statement
        with statement.trial():
            if not self._probe(units):
                return None
            names = statement.snapshot.nodes.names
            return frozenset(names[statement.placed[m.pod.uid].row] for m in self.ask.members)

    def _probe(self, units: Sequence[VictimUnit]) -> bool:
        statement, quota = self.state.statement, self.state.quota
        for unit in units:
            for member in unit.members:
                reason = self.reason(unit)
                statement.evict(Evicted(member, unit.gang, self.action, self.gang, reason))
        queue = quota.queue_of(self.gang)
        cost = quota.cost(total(member.charge for member in self.ask.members))
        if queue is None or check_limits(
            quota.standing, queue, cost, preemptible=self.gang.preemptible
        ):
            return False
        return (
            self.state.placer.place(
                statement, self.gang, self.ask.members, self.action, room=Room.LATER
            )
            is None
        )
