"""The cheapest set of victims among all subsets of a few candidates.

A unit with pods on several nodes releases capacity on each of them, so one such gang may replace
two others. The greedy proposal and the knapsack (``minimise``) count each node by itself and miss
that. If there are few candidates, all subsets are tried depth first, cheapest units first; one that
costs at least as much as the best so far is not extended. O(2^units x pods), at most ``MAX_SETS``
subsets.
"""

from collections.abc import Sequence

from kai_py.plan.victims.minimise import EvictionCost, EvictionCosts, ReplicaSteps
from kai_py.plan.victims.units import VictimUnit

MAX_CANDIDATES = 12
MAX_SETS = 1024


def spans_nodes(units: Sequence[VictimUnit]) -> bool:
    """Whether any unit has pods on several nodes."""
    return any(len({member.node for member in unit.members}) > 1 for unit in units)


def cheapest_set(
    needed: int,
    units: Sequence[VictimUnit],
    replicas: ReplicaSteps,
    costs: EvictionCosts,
    max_cost: EvictionCost,
) -> list[VictimUnit]:
    """The cheapest set of ``units`` without which ``needed`` replicas fit, by counting.

    Empty if no set that was tried costs less than ``max_cost``.
    """
    ordered = sorted(units, key=costs.of_unit)
    best: list[VictimUnit] = []
    sets = [(0, list[VictimUnit]())]
    tried = 0
    while sets and tried < MAX_SETS:
        first, taken = sets.pop()
        further = list[tuple[int, list[VictimUnit]]]()
        for position in range(first, len(ordered)):
            unit = ordered[position]
            if unit in taken:
                continue
            chosen = list(dict.fromkeys((*taken, *replicas.orphaned(unit), unit)))
            cost = costs.of(chosen)
            if cost >= max_cost:
                continue
            tried += 1
            if replicas.without(chosen) >= needed:
                best, max_cost = chosen, cost
            else:
                further.append((position + 1, chosen))
        sets += reversed(further)
    return best
