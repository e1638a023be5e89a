"""Preempt: inside a queue, a gang may take the room of gangs with a lower priority.

    for each pending gang that found no room, in the order of the gangs:
        victims: running preemptible gangs of the same queue with a lower priority, past their
                 min runtime or as far as they keep their floors;
                 low priority first, surplus pods before cores, youngest first
        take the fewest that make the whole gang fit; of those with no higher priority, rather
        others if fewer gangs, or pods, have to leave (``rules: native``)

The room is held for the gang until its victims have left. ``preemptionPolicy: Never`` is honoured.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import takewhile

from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.plan import Action
from kai_py.plan.session import CycleState
from kai_py.plan.victims.action import VictimStrategy, find_victims
from kai_py.plan.victims.order import VictimPool
from kai_py.plan.victims.search import VictimSearch
from kai_py.plan.victims.units import VictimUnit, unprotected_units
from kai_py.policy.fairness_rules import VictimPreference
from kai_py.policy.min_runtime import preempt_min_runtime, within_min_runtime
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.resources import Floats


def preempt(state: CycleState, gangs: Iterable[Gang], pool: VictimPool | None = None) -> None:
    """Run the action for those of ``gangs`` that are still pending; ``pool``: of the moment."""
    pool = pool or VictimPool(state)
    safe = preempt_min_runtime(state.quota.queues, state.quota.rules)
    plea = partial(_start_search, state, pool, safe)
    find_victims(state, gangs, VictimStrategy(Action.PREEMPT, pool, plea))


def _start_search(
    state: CycleState, pool: VictimPool, min_runtime: Floats, gang: Gang, request: PlacementRequest
) -> tuple[VictimSearch, Iterable[VictimUnit]]:
    queue = state.quota.queues.positions[gang.queue]
    reason = partial(_eviction_reason, gang)
    units = partial(_lower_priority_units, state, pool, gang, queue, float(min_runtime[queue]))
    anew = partial(_up_to_priority, units) if _minimises_victims(state) else None
    search = VictimSearch(
        state, gang, request, Action.PREEMPT, reason, _all_may_be_lost, second_proposal=anew
    )
    return search, units()


def _minimises_victims(state: CycleState) -> bool:
    return state.quota.rules.victim_preference is VictimPreference.FEWEST


def _up_to_priority(
    units: Callable[[], Iterator[VictimUnit]], priority: int
) -> Iterator[VictimUnit]:
    """The units of gangs up to ``priority`` that may leave whole."""
    lower = takewhile(lambda unit: unit.gang.priority <= priority, units())
    return (unit for unit in lower if not unit.is_partial)


def _lower_priority_units(
    state: CycleState, pool: VictimPool, gang: Gang, queue: int, min_runtime: float
) -> Iterator[VictimUnit]:
    lower = takewhile(lambda unit: unit.gang.priority < gang.priority, pool.units(queue))
    now = state.snapshot.now
    return unprotected_units(
        lower, lambda g: within_min_runtime(g.started, min_runtime, now), state.statement
    )


def _all_may_be_lost(_: Sequence[VictimUnit]) -> VictimUnit | None:
    """Who is offered may be lost."""
    return None


def _eviction_reason(preemptor: Gang, unit: VictimUnit) -> str:
    return (
        f"preempted by higher priority workload {preemptor.owner.namespace}/{preemptor.owner.name} "
        f"(priority {preemptor.priority} > {unit.gang.priority}) in queue {preemptor.queue}"
    )
