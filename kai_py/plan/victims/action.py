"""The loop of the actions that evict pods for pending gangs: preempt, reclaim and consolidate.

    for each gang in the order of ``gang_queue``:
        its next request, unless a bound that no eviction changes refuses it
        solve it: search for victims by the strategy of the action (``solver``, ``search``)
        apply the result: queues that lost pods are reordered, or the gang gets its reason

A gang that was placed is tried again for the pods that it has left where no gang may bypass another
(``bypass_policy``); else a gang is tried once per action. None is tried before its preemption delay
has passed. Gangs whose search ran out of probes in an earlier cycle come after all others.

A claim that lists alternatives and is without an allocation is charged with the alternative that
costs most. Where no victims are found at that price, the search is repeated with those alternatives
alone that cost least, and is judged by their cost. So a reclaimer gets the second of two
alternatives though the first would bring its queue above its fair share or its limit.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from kai_py.api.records.resource import ResourceClaimSpec
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Stage
from kai_py.plan.search_cache.cache import SearchResult
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.device_options import ClaimChoices
from kai_py.plan.session.gang_queue import GangQueue
from kai_py.plan.session.quota_check import check_reserved_quota, waits_for_leaving
from kai_py.plan.victims.order import VictimPool
from kai_py.plan.victims.search import VictimSearch
from kai_py.plan.victims.solver import VictimSolver
from kai_py.plan.victims.strategy import VictimStrategy
from kai_py.policy.fairness_rules import BypassPolicy
from kai_py.policy.min_runtime import preemption_delay
from kai_py.policy.queue_order import in_rotation
from kai_py.policy.queue_usage import check_deserved
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.resources import Floats


def find_victims(
    state: CycleState, gangs: Iterable[Gang], pool: VictimPool, strategy_class: type[VictimStrategy]
) -> None:
    """Place pending gangs at the cost of victims."""
    able = [gang for gang in gangs if _may_preempt(state, gang)]
    in_turn = in_rotation(able, state.out_of_budget)
    solver = VictimSolver(state, strategy_class)
    for group in in_turn:
        gang_queue = GangQueue(state, group)
        while (gang := gang_queue.pop()) is not None:
            with state.turns.of(gang):
                request = state.next_request(gang)
                if request is None:
                    continue
                strategy = strategy_class(state, pool, gang, request)
                if not _search(gang_queue, solver, strategy):
                    _search_cheapest(gang_queue, solver, strategy)
                elif _goes_on(state, request):
                    gang_queue.push(gang)


def _search(gang_queue: GangQueue, solver: VictimSolver, strategy: VictimStrategy) -> bool:
    """Place the request at the cost of victims; whether that was possible."""
    state, gang = strategy.state, strategy.gang
    if not _within_quota(state, gang, strategy.request):
        return False
    result = solver.solve(strategy)
    if isinstance(result, VictimSearch):
        _apply(gang_queue, strategy, result)
        return True
    if result.out_of_budget:
        _report_out_of_budget(state, gang, result)
    return False


def _goes_on(state: CycleState, request: PlacementRequest) -> bool:
    """Whether the gang is tried again at once.

    A cycle later others would have started on what it takes next, and lose it again.
    """
    in_order = state.quota.rules.bypass_policy is BypassPolicy.PREEMPT_FIRST
    return request.has_more and in_order


def _search_cheapest(gang_queue: GangQueue, solver: VictimSolver, strategy: VictimStrategy) -> None:
    """Search again with the alternatives of claims that cost least, at their price, if any do."""
    state, gang, request = strategy.state, strategy.gang, strategy.request
    out_of_budget = state.searched.get(gang.key, False)
    cheapest = None if out_of_budget else cheapest_claims(state, gang, request)
    if cheapest is None:
        return
    with state.charging(gang, cheapest.cost), state.statement.devices.narrowed(cheapest.specs):
        if not _within_quota(state, gang, request):
            return
        again = type(strategy)(state, strategy.pool, gang, request)
        result = solver.solve_without_cache(again)
        if isinstance(result, VictimSearch):
            _apply(gang_queue, again, result)


def _may_preempt(state: CycleState, gang: Gang) -> bool:
    if gang.key in state.searched_in_allocate or gang.key in state.waiting or not gang.may_preempt:
        return False
    if state.precondition(gang) is not None:
        return False
    delay = preemption_delay(
        gang.created, gang.last_evicted, gang.preemption_delay, state.snapshot.now
    )
    return delay is None


def _within_quota(state: CycleState, gang: Gang, request: PlacementRequest) -> bool:
    """Whether no bound is exceeded that stays so whatever is evicted, or needs no eviction."""
    cost = state.request_cost(gang)
    if waits_for_leaving(state.quota, gang, request.members, cost):
        return False
    if not gang.is_preemptible(request.members):
        quota = state.quota
        queue = quota.queues.positions[gang.queue]
        if check_deserved(quota.usage, queue, cost) is not None:
            return False
    return check_reserved_quota(state, gang, cost) is None


def _apply(gang_queue: GangQueue, strategy: VictimStrategy, search: VictimSearch) -> None:
    """Record a placement: queues that lost pods are reordered, the preemptor has other units."""
    state, gang = strategy.state, strategy.gang
    positions = state.quota.queues.positions
    state.mark_placed(gang)
    for queue in dict.fromkeys(positions[unit.gang.queue] for unit in search.victims):
        gang_queue.update(queue)
    if gang.bound:
        strategy.pool.invalidate(positions[gang.queue])
    strategy.placed(gang_queue, search.victims)


def _report_out_of_budget(state: CycleState, gang: Gang, result: SearchResult) -> None:
    """Set the reason of a gang whose search ran out of probes."""
    tried = f"no preemption victims found within {result.budget} trial placements"
    again = (
        "once a pod has ended or a node has been added" if result.backs_off else "in the next cycle"
    )
    state.mark_unschedulable(
        gang, Unschedulable(Stage.SEARCH_BUDGET, f"{tried}; the search is repeated {again}.")
    )


@dataclass(frozen=True, slots=True)
class CheapestClaims:
    """``specs``: by the id of the claims' own; ``cost``: (quota resources,) of the request then."""

    specs: Mapping[int, ResourceClaimSpec]
    cost: Floats


def cheapest_claims(
    state: CycleState, gang: Gang, request: PlacementRequest
) -> CheapestClaims | None:
    """The claims of a request with the alternatives that cost least; None where that is no less.

    Alternatives beyond a bound, were its queues empty, do not count. Claims whose cost would still
    depend on the devices found are left as they are.
    """
    accounting, quota = state.accounting, state.quota
    nothing = np.zeros_like(quota.usage.allocated)
    usage = replace(quota.usage, allocated=nothing, non_preemptible=nothing)
    choices = ClaimChoices.of(state, gang, request.members, usage)
    options = choices.within({}) if choices.own else None
    if options is None:
        return None
    cheapest = choices.cheapest(options).specs
    specs: dict[int, ResourceClaimSpec] = {}
    cost = quota.cost_of(request.members).copy()
    for spec in choices.own.values():
        narrowed = cheapest[id(spec)]
        most = accounting.claim_spec(narrowed)
        if accounting.claim_spec(spec) == most or most != accounting.least_of_claim(narrowed):
            continue
        specs[id(spec)] = narrowed
        cost -= quota.cost_vector(accounting.claim_spec(spec))
        cost += quota.cost_vector(most)
    return CheapestClaims(specs, cost) if specs else None
