"""The loop of the actions that evict pods for pending gangs: preempt, reclaim and consolidate.

    for each gang in the order of ``gang_queue``:
        take its next request: the pods to place together now, with what they cost the queue
        go on with the next gang if the request exceeds a limit that no eviction changes
        search for victims with the strategy of the action (``solver``, ``search``)
        if it was placed, reorder the queues that lost pods; else record the gang's reason

A gang is placed once per action. Where no gang may bypass another (``bypass_policy``), one that was
placed is tried again for its remaining pods. A gang for whose elastic pod no victims are found is
tried with the next one, as in allocate. No gang is tried before its preemption delay has passed.
Equivalent gangs are skipped once one has failed, and placed in batches after a single pod that took
one victim (``batch``). Gangs whose search spent its budget of trial placements (probes) in an
earlier cycle come after all others.

A claim with alternatives that is not allocated yet is charged with its most expensive one; without
victims at that cost, the search is repeated with only the cheapest, at their cost. So a gang gets
the second of two if the first would bring its queue above its fair share or its limit.
"""

from collections.abc import Iterable, Sequence

from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.placement.reasons import out_of_budget
from kai_py.plan.plan import Action
from kai_py.plan.search_cache.cache import SearchFailure
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.gang_queue import GangQueue
from kai_py.plan.session.quota_check import check_reserved_quota, waits_for_leaving
from kai_py.plan.victims.batch import VictimBatch, reorder
from kai_py.plan.victims.eligible import EligibleGangs
from kai_py.plan.victims.order import VictimPool
from kai_py.plan.victims.solver import ClaimVariant, VictimSolver
from kai_py.plan.victims.strategy import VictimStrategy
from kai_py.plan.victims.survival import running_pods
from kai_py.plan.victims.units import VictimUnit
from kai_py.policy.fairness_rules import BypassPolicy
from kai_py.policy.queue_limits import check_deserved
from kai_py.policy.queue_order import in_rotation
from kai_py.snapshot.gangs import Gang


def find_victims(
    state: CycleState,
    gangs: Iterable[Gang],
    strategy_class: type[VictimStrategy],
    pool: VictimPool | None = None,
) -> None:
    """Place those of ``gangs`` that can be placed at the cost of victims, by the strategy.

    ``pool``: the candidates, where they were collected already.
    """
    pool = pool or VictimPool(state)
    if strategy_class.action is Action.RECLAIM:
        pool = pool.for_others
    eligible = EligibleGangs(state, gangs, strategy_class, pool)
    solver = VictimSolver(state, strategy_class)
    for group in in_rotation(eligible.gangs, state.search_budgets.out_of_probes_before):
        if not eligible:
            break
        gang_queue = GangQueue(state, group)
        while eligible and (gang := gang_queue.pop()) is not None:
            with state.turns.of(gang):
                request = state.next_request(gang)
                if request is None:
                    continue
                strategy = strategy_class(state, pool, gang, request)
                if not _search(gang_queue, solver, strategy):
                    _search_with_cheapest_claims(gang_queue, solver, strategy)
                if _is_tried_again(state, gang, request):
                    gang_queue.push(gang)
                elif solver.is_proven(strategy):
                    gang_queue.skip_equivalent(gang)
                    eligible.has_failed(gang)
    for gang in eligible.gangs:
        state.stop_skipping(gang)


def _search(gang_queue: GangQueue, solver: VictimSolver, strategy: VictimStrategy) -> bool:
    """Place the request at the cost of victims; whether it was placed."""
    state, gang = strategy.state, strategy.gang
    if not _within_quota(state, gang, strategy.request):
        return False
    found = solver.solve(strategy)
    if not isinstance(found, SearchFailure):
        _record_placed(gang_queue, strategy, found)
        return True
    if found.out_of_budget:
        state.mark_unschedulable(gang, out_of_budget(found.budget, backs_off=found.backs_off))
    return False


def _is_tried_again(state: CycleState, gang: Gang, request: PlacementRequest) -> bool:
    """Whether a gang is tried for other pods in the same action.

    Otherwise others might start on capacity that its remaining pods need, and be evicted later.
    """
    if request.members[0].pod.uid in state.statement.placed:
        return request.has_more and state.quota.rules.bypass_policy is BypassPolicy.PREEMPT_FIRST
    reason, budgets = state.unschedulable.get(gang.key), state.search_budgets
    if reason is None or budgets.searched.get(gang.key, False) or gang.key in budgets.cut_short:
        return False
    return state.skip_elastic(gang, request, reason)


def _search_with_cheapest_claims(
    gang_queue: GangQueue, solver: VictimSolver, strategy: VictimStrategy
) -> None:
    """Repeat a failed search with the cheapest alternatives of claims, at their cost, if any."""
    state, gang, request = strategy.state, strategy.gang, strategy.request
    out_of_budget = state.search_budgets.searched.get(gang.key, False)
    cheapest = None if out_of_budget else solver.cheapest_claims(gang, request)
    if cheapest is None:
        return
    with state.charging(gang, cheapest.cost), state.statement.devices.narrowed(cheapest.specs):
        if not _within_quota(state, gang, request):
            return
        again = type(strategy)(state, strategy.pool, gang, request)
        found = solver.solve(again, ClaimVariant.CHEAPEST)
        if not isinstance(found, SearchFailure):
            _record_placed(gang_queue, again, found)


def _within_quota(state: CycleState, gang: Gang, request: PlacementRequest) -> bool:
    """Whether the request is within those limits of its queue that no eviction changes.

    False also if it will be once terminating pods have gone: then no pod has to be evicted.
    """
    quota, cost = state.quota, state.request_cost(gang)
    if waits_for_leaving(quota, gang, request.members, cost):
        return False
    if not gang.is_preemptible(request.members):
        usage = quota.usage_beside(gang, request.members)
        if check_deserved(usage, quota.queues.positions[gang.queue], cost) is not None:
            return False
    return check_reserved_quota(state, gang, cost) is None


def _record_placed(
    gang_queue: GangQueue, strategy: VictimStrategy, victims: Sequence[VictimUnit]
) -> None:
    """Update the order of queues and the units of gangs: the request was placed."""
    state, gang = strategy.state, strategy.gang
    state.mark_placed(gang)
    reorder(gang_queue, state, victims)
    # What is left of a gang may depend on pods that were elastic before.
    remaining = [unit.gang for unit in victims if running_pods(unit.gang, state.statement)]
    for each in [gang, *remaining] if gang.bound else remaining:
        strategy.pool.invalidate(state.quota.queues.positions[each.queue])
    if strategy.batches and len(victims) == len(gang.members) == 1:
        VictimBatch(strategy, gang_queue).run()
    gang_queue.resume_first()
