"""Proposals of cheaper sets of victims than the order of candidates leads to.

That order ignores where victims run: it may take eight small pods of one node although three larger
ones of another node would do. Here the candidates of each node are divided into steps
(``replica_steps``): the units to evict for one more replica, one more pod of the largest shape of
the request. There are three proposals; the search takes the cheapest set of all, and the set that
it had before if that costs no more:

    by_node_eviction_cost   the cheapest next step of all nodes, again and again until the units are
                            enough: greedy, O(n log n) for n units; if the pods must share a
                            domain, once for each domain, too
    by_total_cost           the cheapest steps by a knapsack over nodes, where lost work counts and
                            all pods have one shape
    cheapest_set            all subsets of a few candidates, if some have pods on several nodes
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import heappop, heappush

from kai_py.plan.placement.attempt import by_shape
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.victims.eviction_cost import EvictionCost, EvictionCosts
from kai_py.plan.victims.replica_steps import ReplicaSteps
from kai_py.plan.victims.units import VictimUnit
from kai_py.snapshot.resources import Ints
from kai_py.snapshot.topology import NO_DOMAIN

MAX_UNITS = 4096
"""Units that are considered for one gang."""

MAX_REPLICAS, MAX_NODES = 64, 512
"""The largest request of ``by_total_cost``: missing replicas, and nodes with candidates."""

MAX_DOMAINS = 16
"""Domains for which sets are proposed, of a gang that must be in one."""

MAX_CANDIDATES, MAX_SETS = 12, 1024
"""The most candidates of ``cheapest_set``, and the most subsets that it tries."""


def by_node_eviction_cost(replicas: ReplicaSteps, rows: Collection[int]) -> Iterator[VictimUnit]:
    """The units of the nodes ``rows``, replica by replica, those of the lowest cost first."""
    following = {row: replicas.of(row) for row in rows}
    queue = list[tuple[EvictionCost, int, list[VictimUnit]]]()

    def push_next(row: int) -> None:
        step = next(following[row], None)
        if step is not None:
            heappush(queue, (step.cost, row, step.units))

    for row in following:
        push_next(row)
    proposed = set[VictimUnit]()
    while queue:
        _, row, units = heappop(queue)
        yield from (unit for unit in units if unit not in proposed)
        proposed.update(units)
        push_next(row)


def rows_by_domain(replicas: ReplicaSteps, domains: Ints) -> list[list[int]]:
    """The nodes with candidates by domain, those first where most replicas fit already.

    ``domains``: (nodes,) as of ``shared_domains``. At most ``MAX_DOMAINS``.
    """
    found: dict[int, list[int]] = {}
    for row in replicas.rows:
        if domains[row] != NO_DOMAIN:
            found.setdefault(int(domains[row]), []).append(row)
    fitting = replicas.initial_by(domains)
    ordered = sorted(found, key=lambda domain: (-fitting[domain], domain))
    return [found[domain] for domain in ordered[:MAX_DOMAINS]]


def by_total_cost(
    request: PlacementRequest, replicas: ReplicaSteps, costs: EvictionCosts
) -> list[VictimUnit]:
    """The units that together release enough for a request of one shape at the lowest total cost.

    A knapsack over nodes, as an expensive unit may release capacity for several pods at once.
    Empty for other requests, and beyond ``MAX_REPLICAS`` or ``MAX_NODES``.
    O(nodes x pods x units).
    """
    if len(replicas.rows) > MAX_NODES or len(by_shape(request.members)) > 1:
        return []
    needed = len(request.members) - replicas.initial
    if not 0 < needed <= MAX_REPLICAS:
        return []
    # By the number of replicas gained so far: the lowest cost, and the units evicted for it.
    best: dict[int, tuple[EvictionCost, list[VictimUnit]]] = {0: ((0.0, 0, 0), [])}
    for row in replicas.rows:
        found, gained, taken = dict(best), 0, list[VictimUnit]()
        for step in replicas.of(row):
            gained += step.gained
            lost, gangs, pods = costs.of([*taken, *step.units]) if taken else step.cost
            taken += step.units
            for fitting, (before, others) in best.items():
                reached = min(fitting + gained, needed)
                cost = before[0] + lost, before[1] + gangs, before[2] + pods
                if reached not in found or cost < found[reached][0]:
                    found[reached] = cost, [*others, *taken]
            if gained >= needed:
                break
        best = found
    return list(dict.fromkeys(best[needed][1])) if needed in best else []


def is_cheapest(
    needed: Sequence[VictimUnit], units: Iterable[VictimUnit], costs: EvictionCosts
) -> bool:
    """Whether certainly no set made of ``units`` costs less than ``needed``.

    A set costs at least as much as each of its units. Only whole gangs can be compared like this:
    others may be evicted in smaller parts than their units.
    """
    cost = costs.of(needed)
    return all(
        len(unit.members) == len(unit.gang.bound) and cost <= costs.of_unit(unit) for unit in units
    )


def needs_all_subsets(request: PlacementRequest, units: Sequence[VictimUnit]) -> bool:
    """Whether ``cheapest_set`` may find what other proposals miss, and has few sets to try."""
    if not has_few_subsets(request, units):
        return False
    return any(len({member.node for member in unit.members}) > 1 for unit in units)


def has_few_subsets(request: PlacementRequest, units: Sequence[VictimUnit]) -> bool:
    """Whether ``cheapest_set`` tries all sets of ``units``, or many of them."""
    return len(units) <= MAX_CANDIDATES and len(by_shape(request.members)) == 1


def cheapest_set(
    request: PlacementRequest,
    units: Sequence[VictimUnit],
    replicas: ReplicaSteps,
    costs: EvictionCosts,
    *,
    max_cost: EvictionCost = (math.inf, 0, 0),
    is_refused: Callable[[Sequence[VictimUnit]], bool] = lambda _: False,
) -> list[VictimUnit]:
    """The cheapest set of ``units`` without which the request fits, by counting.

    Empty if no set that was tried costs less than ``max_cost``. A unit with pods on several nodes
    releases capacity on each, so it may replace two others; the other proposals count each node by
    itself and miss that. Subsets are tried depth first, cheapest units first; one that costs at
    least as much as the best so far, or that is refused, is not extended. O(2^units x pods), at
    most ``MAX_SETS`` subsets.
    """
    ordered, needed = sorted(units, key=costs.of_unit), len(request.members)
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
            chosen = list(dict.fromkeys((*taken, *replicas.evicted_with(unit), unit)))
            cost = costs.of(chosen)
            if cost >= max_cost:
                continue
            tried += 1
            if is_refused(chosen):
                continue
            if replicas.without(chosen) >= needed:
                best, max_cost = chosen, cost
            else:
                further.append((position + 1, chosen))
        sets += reversed(further)
    return best
