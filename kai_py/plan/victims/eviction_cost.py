"""What evictions cost: lost work, gangs that fall below minMember, pods.

The work lost by an eviction is the time since the pods last saved their work, times the part of the
cluster that is allocated to them, in seconds of the whole cluster. It counts under
``rules: native`` only.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.victims.units import VictimUnit
from kai_py.policy.lost_work import lost_seconds
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Floats

EvictionCost = tuple[float, int, int]
"""Lost work, gangs that fall below minMember, evicted pods; compared in this order."""


class ReplicaStep(NamedTuple):
    """How many more replicas fit on a node, the units to evict for them, and what these cost."""

    gained: int
    units: list[VictimUnit]
    cost: EvictionCost


StepsOfNode = tuple[list[ReplicaStep], Iterator[ReplicaStep]]
"""The steps of a node that were computed, and those that follow."""


class EvictionCosts:
    """The costs of evicting units now; ``by_loss``: whether lost work counts."""

    def __init__(self, state: CycleState, *, by_others: bool = False) -> None:
        """Nothing is computed yet; ``by_others``: for gangs of other queues."""
        self.by_loss, self._by_others = state.settings.loss_rules.by_loss, by_others
        self._state = state
        self._lost_work: dict[VictimUnit, float] = {}
        self.steps_of_nodes: dict[Hashable, StepsOfNode] = {}
        """Cache of ``ReplicaSteps``, by all that they are computed from but these costs."""

    def of(self, units: Sequence[VictimUnit]) -> EvictionCost:
        """The cost of evicting all of ``units``."""
        gangs = {unit.gang.key for unit in units if unit.leaves_below_min}
        pods = sum([len(unit.members) for unit in units])
        lost = sum(map(self.lost_work, units), 0.0) if self.by_loss else 0.0
        return lost, len(gangs), pods

    def of_unit(self, unit: VictimUnit) -> EvictionCost:
        """The cost of evicting one unit."""
        return self.lost_work(unit), 0 if unit.is_elastic else 1, len(unit.members)

    def lost_work(self, unit: VictimUnit) -> float:
        """``lost_work_at`` now, computed once; 0 where lost work does not count."""
        if not self.by_loss:
            return 0.0
        lost = self._lost_work.get(unit)
        if lost is None:
            lost = sum([self._lost_now(unit.gang, member) for member in unit.members], 0.0)
            lost = self._lost_work[unit] = lost * self._weight(unit.gang)
        return lost

    def lost_work_at(self, unit: VictimUnit, at: float) -> float:
        """Seconds of the whole cluster's work that are lost if the unit is evicted at ``at``.

        Multiplied by one more than the number of times that its gang was evicted lately. ``at``:
        seconds since the epoch; pods that are expected to have ended by then lose nothing. The work
        of one pod: ``policy.lost_work``.
        """
        if at <= self._state.snapshot.now:
            return self.lost_work(unit)
        ends, gang = self._state.expected_ends, unit.gang
        staying = [member for member in unit.members if ends.end_of(gang, member) > at]
        lost = sum([self._lost_at(gang, member, at) for member in staying], 0.0)
        return lost * self._weight(gang)

    def _lost_now(self, gang: Gang, member: Member) -> float:
        known = self._state.lost_work_of_pods
        lost = known.get(id(member))
        if lost is None:
            lost = known[id(member)] = self._lost_at(gang, member, self._state.snapshot.now)
        return lost

    def _lost_at(self, gang: Gang, member: Member, at: float) -> float:
        state = self._state
        part = part_of_cluster(state, state.quota.cost(member.charge))
        return part * lost_seconds(gang, member, at, state.settings.loss_rules.restart_cost)

    def _weight(self, gang: Gang) -> int:
        return 1 + self._state.eviction_limits.evictions_of(gang, by_others=self._by_others)


def part_of_cluster(state: CycleState, cost: Floats) -> float:
    """The dominant share, at least 0, that ``cost`` (quota resources,) is of the whole cluster."""
    known = state.parts_of_cluster.get(id(cost))
    if known is not None and known[0] is cost:
        return known[1]
    pairs = zip(cost.tolist(), state.quota.usage.total.tolist(), strict=True)
    part = max([amount / total for amount, total in pairs if total > 0], default=0.0)
    part = max(part, 0.0)
    if not cost.flags.writeable:
        # The entry keeps the array alive, so its id can't be used by another one.
        state.parts_of_cluster[id(cost)] = cost, part
    return part
