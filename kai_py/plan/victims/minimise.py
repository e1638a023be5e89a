"""Who else could leave for a gang, so that fewer have to?

The order of victims takes the youngest first wherever they run: eight small pods of one node though
three larger ones of another would do. Here the same units are offered node by node instead:

    loss = (gangs that lose their floor, pods that leave)
    until no node has anything to give: of the node where room for one more copy of the largest pod
        of the ask is the smallest loss, the units that make it

On a node surplus comes first, then who frees most of what is scarcest there. Choosing the fewest is
a knapsack, so this is a second proposal: the search takes the smaller loss of the two. O(n log n)
for n units.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from kai_py.plan.placement.fit import by_shape
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.session import CycleState
from kai_py.plan.victims.count import FreedResources, ShapeCount
from kai_py.plan.victims.units import VictimUnit, is_orphaned
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.gangs import Member

MAX_UNITS = 4096
"""Units that are looked at for one gang."""

EvictionCost = tuple[int, int]
"""Gangs that lose their floor, pods that leave."""


def eviction_cost(units: Iterable[VictimUnit]) -> EvictionCost:
    """What it costs that these units leave."""
    gangs, pods = set[str](), 0
    for unit in units:
        pods += len(unit.members)
        if not unit.is_elastic:
            gangs.add(unit.gang.key)
    return len(gangs), pods


def by_node_eviction_cost(
    state: CycleState, request: PlacementRequest, units: Sequence[VictimUnit]
) -> list[VictimUnit]:
    """Those of ``units`` that make room for pods of ``ask``, the smallest loss first."""
    copies = _ReplicaSteps(state, request, units)
    steps = {row: list(copies.steps(row, there)) for row, there in _by_node(state, units).items()}
    line = [(eviction_cost(made[0]), row, 0) for row, made in steps.items() if made]
    heapify(line)
    offered: dict[VictimUnit, None] = {}
    while line:
        _, row, step = heappop(line)
        offered |= dict.fromkeys(steps[row][step])
        if step + 1 < len(steps[row]):
            heappush(line, (eviction_cost(steps[row][step + 1]), row, step + 1))
    return list(offered)


def _by_node(state: CycleState, units: Iterable[VictimUnit]) -> dict[int, list[VictimUnit]]:
    positions = state.snapshot.nodes.positions
    by_node: dict[int, list[VictimUnit]] = {}
    for unit in units:
        for node in dict.fromkeys(member.node for member in unit.members):
            if node in positions:
                by_node.setdefault(positions[node], []).append(unit)
    return by_node


class _ReplicaSteps:
    """Copies of the largest pod of an ask, and which units make room for them."""

    def __init__(
        self, state: CycleState, request: PlacementRequest, units: Iterable[VictimUnit]
    ) -> None:
        self._state = state
        self._shape = ShapeCount(state, by_shape(request.members)[0])
        self._freed = FreedResources(state)
        self._units_by_gang: dict[str, list[VictimUnit]] = {}
        for unit in units:
            self._units_by_gang.setdefault(unit.gang.key, []).append(unit)

    def steps(self, row: int, there: Iterable[VictimUnit]) -> Iterator[list[VictimUnit]]:
        """Who makes room for one copy on the node, then for one more, and so on."""
        free, released = self._state.statement.future_idle[:, row].tolist(), 0.0
        copies, scarcest = (
            self._shape.replicas(row, free, 0.0),
            self._shape.scarcest_resource(row, free),
        )
        pods = {unit: self._pods_on(unit, row) for unit in there}
        step: dict[VictimUnit, None] = {}
        for unit in sorted(
            pods, key=lambda u: (not u.is_elastic, -self._freed_amount(pods[u], scarcest))
        ):
            for member in pods[unit]:
                for position, amount in self._freed.of(member):
                    free[position] += amount
                released += member.charge.get(GPU, 0.0) if member.claims else 0.0
            step |= dict.fromkeys([*self._orphaned_units(unit), unit])
            now = self._shape.replicas(row, free, released)
            if now > copies:
                copies = now
                yield list(step)
                step.clear()

    def _pods_on(self, unit: VictimUnit, row: int) -> list[Member]:
        node = self._state.snapshot.nodes.names[row]
        return [member for member in unit.members if member.node == node]

    def _freed_amount(self, pods: Iterable[Member], resource: int | None) -> float:
        """What the node has again of a resource without these pods; of its GPUs, if None."""
        if resource is None:
            return sum(member.charge.get(GPU, 0.0) for member in pods)
        given = (each for member in pods for each in self._freed.of(member))
        return sum(amount for position, amount in given if position == resource)

    def _orphaned_units(self, unit: VictimUnit) -> list[VictimUnit]:
        peers = self._units_by_gang[unit.gang.key]
        if len(peers) == 1 or unit.is_elastic:
            return []
        return [each for each in peers if is_orphaned(each, [unit])]
