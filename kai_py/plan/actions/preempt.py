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

from kai_py.plan.placement.next_pods import Ask
from kai_py.plan.plan import Action
from kai_py.plan.session import CycleState
from kai_py.plan.victims.action import Seeking, seek_room
from kai_py.plan.victims.order import VictimPool
from kai_py.plan.victims.search import VictimSearch
from kai_py.plan.victims.units import VictimUnit, as_far_as_safe
from kai_py.policy.fairness_rules import Preempted
from kai_py.policy.min_runtime import preempt_min_runtime, protected
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.resources import Floats


def preempt(state: CycleState, gangs: Iterable[Gang], pool: VictimPool | None = None) -> None:
    """Run the action for those of ``gangs`` that are still pending; ``pool``: of the moment."""
    pool = pool or VictimPool(state)
    safe = preempt_min_runtime(state.quota.queues, state.quota.rules)
    plea = partial(_plea, state, pool, safe)
    seek_room(state, gangs, Seeking(Action.PREEMPT, pool, plea))


def _plea(
    state: CycleState, pool: VictimPool, safe: Floats, gang: Gang, ask: Ask
) -> tuple[VictimSearch, Iterable[VictimUnit]]:
    queue = state.quota.queues.positions[gang.queue]
    reason = partial(_reason, gang)
    units = partial(_units, state, pool, gang, queue, float(safe[queue]))
    anew = partial(_no_higher, units) if _seeks_fewest(state) else None
    search = VictimSearch(state, gang, ask, Action.PREEMPT, reason, _anybody, anew=anew)
    return search, units()


def _seeks_fewest(state: CycleState) -> bool:
    return state.quota.rules.preempted is Preempted.FEWEST


def _no_higher(units: Callable[[], Iterator[VictimUnit]], priority: int) -> Iterator[VictimUnit]:
    """The units of gangs up to ``priority`` that may leave whole."""
    lower = takewhile(lambda unit: unit.gang.priority <= priority, units())
    return (unit for unit in lower if not unit.in_part)


def _units(
    state: CycleState, pool: VictimPool, gang: Gang, queue: int, safe: float
) -> Iterator[VictimUnit]:
    lower = takewhile(lambda unit: unit.gang.priority < gang.priority, pool.units(queue))
    now = state.snapshot.now
    return as_far_as_safe(lower, lambda g: protected(g.started, safe, now), state.statement)


def _anybody(_: Sequence[VictimUnit]) -> VictimUnit | None:
    """Who is offered may be lost."""
    return None


def _reason(winner: Gang, unit: VictimUnit) -> str:
    return (
        f"preempted by higher priority workload {winner.owner.namespace}/{winner.owner.name} "
        f"(priority {winner.priority} > {unit.gang.priority}) in queue {winner.queue}"
    )
