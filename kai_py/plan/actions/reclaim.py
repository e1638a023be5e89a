"""Reclaim: a queue below its fair share takes room back from queues above theirs.

    for each pending gang that found no room, in the order of the gangs:
        the gang's queue must stay within its fair share with it
        victims: running preemptible gangs of queues that may be asked, past their min runtime or
                 as far as they keep their floors; the queue that holds most of its due first
        take the fewest that make the whole gang fit, as far as fairness allows;
        those that find room elsewhere are moved and count as no loss

Which queues may be asked, and for how much, is ``policy.reclaim_rules``; the last word has its
``check_reclaim`` on the victims that are lost.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial

import numpy as np

from kai_py.plan.placement.next_pods import Ask
from kai_py.plan.plan import Action
from kai_py.plan.session import CycleState
from kai_py.plan.victims.action import Seeking, seek_room
from kai_py.plan.victims.batch import Exchanges, Verdict
from kai_py.plan.victims.count import may_suffice
from kai_py.plan.victims.order import (
    VictimPool,
    cost_of,
    most_saturated_first,
    one_after_the_other,
)
from kai_py.plan.victims.search import VictimSearch
from kai_py.plan.victims.units import VictimUnit, as_far_as_safe
from kai_py.policy.min_runtime import protected, reclaim_min_runtime
from kai_py.policy.queue_usage import Standing, as_it_stands
from kai_py.policy.reclaim_batch import may_reclaim_in_turn
from kai_py.policy.reclaim_rules import (
    Reclaimer,
    Victims,
    check_reclaim,
    may_reclaim,
    reclaimable_queues,
)
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Bools


def reclaim(state: CycleState, gangs: Iterable[Gang], pool: VictimPool | None = None) -> None:
    """Run the action for those of ``gangs`` that are still pending; ``pool``: of the moment."""
    pool = pool or VictimPool(state)

    @cache
    def safe(queue: int) -> list[float]:
        """How long a gang of each queue is safe from this one."""
        times: list[float] = reclaim_min_runtime(
            state.quota.queues, queue, state.quota.rules
        ).tolist()
        return times

    exchanges = Exchanges(
        state,
        Action.RECLAIM,
        partial(_supply, state, pool, safe),
        partial(_verdict, state),
        partial(_reason, state),
    )
    plea = partial(_plea, state, pool, safe)
    seek_room(state, gangs, Seeking(Action.RECLAIM, pool, plea, exchanges.follow))


def _plea(
    state: CycleState, pool: VictimPool, safe: Callable[[int], list[float]], gang: Gang, ask: Ask
) -> tuple[VictimSearch, Iterable[VictimUnit]] | None:
    quota = state.quota
    reclaimer = _reclaimer(state, gang, ask.members)
    if may_reclaim(quota.standing, reclaimer, quota.rules) is not None:
        return None
    asked = reclaimable_queues(quota.standing, reclaimer, quota.rules)
    if not may_suffice(state, pool, reclaimer, ask, asked):
        return None
    search = VictimSearch(
        state,
        gang,
        ask,
        Action.RECLAIM,
        partial(_reason, state, gang),
        partial(_first_refused, state, reclaimer, as_it_stands(quota.standing)),
    )
    units = _units(state, pool, asked, safe(reclaimer.queue))
    return search, most_saturated_first(state, units)


def _supply(
    state: CycleState, pool: VictimPool, safe: Callable[[int], list[float]], gang: Gang
) -> Iterator[VictimUnit]:
    reclaimer = _reclaimer(state, gang, gang.members)
    asked = reclaimable_queues(state.quota.standing, reclaimer, state.quota.rules)
    return one_after_the_other(state, _units(state, pool, asked, safe(reclaimer.queue)))


def _verdict(state: CycleState, gang: Gang) -> Verdict:
    reclaimer = _reclaimer(state, gang, gang.members)
    before, rules = as_it_stands(state.quota.standing), state.quota.rules

    def may_take(count: int, units: Sequence[VictimUnit]) -> bool:
        return may_reclaim_in_turn(before, reclaimer, count, _victims(state, units), rules)

    return may_take


def _reclaimer(state: CycleState, gang: Gang, members: Sequence[Member]) -> Reclaimer:
    queue, cost = state.quota.queues.positions[gang.queue], state.quota.cost_of(members)
    return Reclaimer(queue, cost, gang.can_give_back(members))


def _units(
    state: CycleState, pool: VictimPool, asked: Bools, safe: Sequence[float]
) -> dict[int, Iterator[VictimUnit]]:
    """The units of every queue that may be asked."""
    return {
        queue: _unprotected(state, pool, queue, safe[queue])
        for queue in pool.queues()
        if asked[queue]
    }


def _unprotected(
    state: CycleState, pool: VictimPool, queue: int, safe: float
) -> Iterator[VictimUnit]:
    now = state.snapshot.now
    units = pool.units(queue)
    return as_far_as_safe(units, lambda g: protected(g.started, safe, now), state.statement)


def _first_refused(
    state: CycleState, reclaimer: Reclaimer, before: Standing, lost: Sequence[VictimUnit]
) -> VictimUnit | None:
    """The end of the shortest beginning of ``lost`` that fairness refuses."""
    victims, rules = _victims(state, lost), state.quota.rules

    def refused(count: int) -> bool:
        return check_reclaim(before, reclaimer, victims.first(count), rules) is not None

    if not lost or not refused(len(lost)):
        return None
    return lost[bisect_left(range(1, len(lost)), 1, key=refused)]


def _victims(state: CycleState, units: Sequence[VictimUnit]) -> Victims:
    queues = [state.quota.queues.positions[unit.gang.queue] for unit in units]
    amounts = [cost_of(state, unit) for unit in units]
    shape = (len(state.quota.resources), len(units))
    return Victims(
        np.array(queues, dtype=np.int32),
        np.array(amounts).T.reshape(shape) if amounts else np.zeros(shape),
    )


def _reason(state: CycleState, winner: Gang, unit: VictimUnit) -> str:
    gpu = state.quota.resources.index("gpu")
    texts = []
    for name in (winner.queue, unit.gang.queue):
        at = state.quota.queues.positions[name]
        standing = state.quota.standing
        texts.append(
            f"{name} holds {standing.allocated[gpu, at]:g} GPUs of a fair share of "
            f"{standing.fair[gpu, at]:g}"
        )
    owner = winner.owner
    return f"reclaimed by workload {owner.namespace}/{owner.name}: {texts[0]}, {texts[1]}"
