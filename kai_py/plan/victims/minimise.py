"""Minimising victims: a second proposal, node by node, so that fewer pods are evicted.

The order of candidates takes the youngest first wherever they run: eight small pods of one node
though three larger ones of another would do. Here the same units are proposed node by node:

    cost = (work that is lost, gangs that fall below minMember, pods that are evicted)
    until no node has any unit left: of the node where capacity for one more replica of the largest
        pod of the request costs least, the units that release it

On a node elastic pods come first, then the units that release most of what is scarcest there.
Choosing the fewest is a knapsack, so this is a proposal: the search takes the cheaper of the two.
O(n log n) for n units.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from kai_py.plan.placement.fit import by_shape
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.session import CycleState
from kai_py.plan.victims.count import FreedResources, ShapeCount
from kai_py.plan.victims.order import lost_work
from kai_py.plan.victims.units import VictimUnit, is_orphaned
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.gangs import Member

MAX_UNITS = 4096
"""Units that are considered for one gang."""

EvictionCost = tuple[float, int, int]
"""Work that is lost, gangs that fall below minMember, pods that are evicted."""


class EvictionCosts:
    """What it costs to evict units; the lost work of each is computed once."""

    def __init__(self, state: CycleState) -> None:
        """Lost work counts where the cycle weighs it."""
        self._state, self._lost = state, dict[int, float]()

    def of(self, units: Iterable[VictimUnit]) -> EvictionCost:
        """The cost of all of ``units``."""
        gangs, pods, lost = set[str](), 0, 0.0
        for unit in units:
            pods += len(unit.members)
            lost += self.lost_work(unit)
            if not unit.is_elastic:
                gangs.add(unit.gang.key)
        return lost, len(gangs), pods

    def lost_work(self, unit: VictimUnit) -> float:
        """Seconds of the whole cluster that its eviction destroys; 0 where they don't count."""
        if not self._state.loss_rules.by_loss:
            return 0.0
        if id(unit) not in self._lost:
            self._lost[id(unit)] = lost_work(self._state, unit)
        return self._lost[id(unit)]


def by_node_eviction_cost(
    state: CycleState,
    request: PlacementRequest,
    units: Sequence[VictimUnit],
    costs: EvictionCosts | None = None,
) -> list[VictimUnit]:
    """Those of ``units`` that release capacity for pods of the request, the lowest cost first."""
    costs = costs or EvictionCosts(state)
    replicas = _ReplicaSteps(state, request, units, costs)
    steps = {row: list(replicas.steps(row, there)) for row, there in _by_node(state, units).items()}
    queue = [(costs.of(made[0]), row, 0) for row, made in steps.items() if made]
    heapify(queue)
    proposed: dict[VictimUnit, None] = {}
    while queue:
        _, row, step = heappop(queue)
        proposed |= dict.fromkeys(steps[row][step])
        if step + 1 < len(steps[row]):
            heappush(queue, (costs.of(steps[row][step + 1]), row, step + 1))
    return list(proposed)


def _by_node(state: CycleState, units: Iterable[VictimUnit]) -> dict[int, list[VictimUnit]]:
    positions = state.snapshot.nodes.positions
    by_node: dict[int, list[VictimUnit]] = {}
    for unit in units:
        for node in dict.fromkeys(member.node for member in unit.members):
            if node in positions:
                by_node.setdefault(positions[node], []).append(unit)
    return by_node


class _ReplicaSteps:
    """Replicas of the largest pod of a request, and the units that release capacity for them."""

    def __init__(
        self,
        state: CycleState,
        request: PlacementRequest,
        units: Iterable[VictimUnit],
        costs: EvictionCosts,
    ) -> None:
        self._state, self._costs = state, costs
        self._shape = ShapeCount(state, by_shape(request.members)[0])
        self._freed = FreedResources(state)
        self._units_by_gang: dict[str, list[VictimUnit]] = {}
        for unit in units:
            self._units_by_gang.setdefault(unit.gang.key, []).append(unit)

    def steps(self, row: int, there: Iterable[VictimUnit]) -> Iterator[list[VictimUnit]]:
        """The units that let one more replica fit on the node, then a further one, and so on."""
        free, released = self._state.statement.future_idle[:, row].tolist(), 0.0
        fitting, scarcest = (
            self._shape.replicas(row, free, 0.0),
            self._shape.scarcest_resource(row, free),
        )
        pods = {unit: self._pods_on(unit, row) for unit in there}
        step: dict[VictimUnit, None] = {}
        for unit in sorted(pods, key=lambda u: self._rank(u, pods[u], scarcest)):
            for member in pods[unit]:
                for position, amount in self._freed.of(member):
                    free[position] += amount
                released += member.charge.get(GPU, 0.0) if member.claims else 0.0
            step |= dict.fromkeys([*self._orphaned_units(unit), unit])
            now = self._shape.replicas(row, free, released)
            if now > fitting:
                fitting = now
                yield list(step)
                step.clear()

    def _rank(
        self, unit: VictimUnit, pods: Iterable[Member], scarcest: int | None
    ) -> tuple[bool, float]:
        """Elastic pods first, then what releases most, or loses least for what it releases."""
        freed, lost = self._freed_amount(pods, scarcest), self._costs.lost_work(unit)
        if not self._state.loss_rules.by_loss:
            return not unit.is_elastic, -freed
        return not unit.is_elastic, lost / freed if freed > 0 else math.inf

    def _pods_on(self, unit: VictimUnit, row: int) -> list[Member]:
        node = self._state.snapshot.nodes.names[row]
        return [member for member in unit.members if member.node == node]

    def _freed_amount(self, pods: Iterable[Member], resource: int | None) -> float:
        """What these pods release of a resource; of GPUs, if None."""
        if resource is None:
            return sum(member.charge.get(GPU, 0.0) for member in pods)
        freed = (each for member in pods for each in self._freed.of(member))
        return sum(amount for position, amount in freed if position == resource)

    def _orphaned_units(self, unit: VictimUnit) -> list[VictimUnit]:
        peers = self._units_by_gang[unit.gang.key]
        if len(peers) == 1 or unit.is_elastic:
            return []
        return [each for each in peers if is_orphaned(each, [unit])]
