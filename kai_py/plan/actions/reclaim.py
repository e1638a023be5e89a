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

from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.plan import Action
from kai_py.plan.session import CycleState
from kai_py.plan.victims.action import VictimStrategy, find_victims
from kai_py.plan.victims.batch import BatchCheck, VictimBatch
from kai_py.plan.victims.count import could_free_enough_gpus
from kai_py.plan.victims.order import (
    VictimPool,
    most_saturated_first,
    most_saturated_next,
    released_quota,
)
from kai_py.plan.victims.search import VictimSearch
from kai_py.plan.victims.units import VictimUnit, unprotected_units
from kai_py.policy.min_runtime import reclaim_min_runtime, within_min_runtime
from kai_py.policy.queue_usage import QueueUsage, copy_usage
from kai_py.policy.reclaim_batch import may_reclaim_batch
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
    def min_runtime(queue: int) -> list[float]:
        """How long a gang of each queue is safe from this one."""
        times: list[float] = reclaim_min_runtime(
            state.quota.queues, queue, state.quota.rules
        ).tolist()
        return times

    exchanges = VictimBatch(
        state,
        Action.RECLAIM,
        partial(_candidate_units, state, pool, min_runtime),
        partial(_batch_check, state),
        partial(_eviction_reason, state),
    )
    plea = partial(_start_search, state, pool, min_runtime)
    find_victims(state, gangs, VictimStrategy(Action.RECLAIM, pool, plea, exchanges.run))


def _start_search(
    state: CycleState,
    pool: VictimPool,
    min_runtime: Callable[[int], list[float]],
    gang: Gang,
    request: PlacementRequest,
) -> tuple[VictimSearch, Iterable[VictimUnit]] | None:
    quota = state.quota
    reclaimer = _reclaimer(state, gang, request.members)
    if may_reclaim(quota.usage, reclaimer, quota.rules) is not None:
        return None
    asked = reclaimable_queues(quota.usage, reclaimer, quota.rules)
    if not could_free_enough_gpus(state, pool, reclaimer, request, asked):
        return None
    search = VictimSearch(
        state,
        gang,
        request,
        Action.RECLAIM,
        partial(_eviction_reason, state, gang),
        partial(_first_rejected, state, reclaimer, copy_usage(quota.usage)),
    )
    units = _units_by_queue(state, pool, asked, min_runtime(reclaimer.queue))
    return search, most_saturated_first(state, units)


def _candidate_units(
    state: CycleState, pool: VictimPool, min_runtime: Callable[[int], list[float]], gang: Gang
) -> Iterator[VictimUnit]:
    reclaimer = _reclaimer(state, gang, gang.members)
    asked = reclaimable_queues(state.quota.usage, reclaimer, state.quota.rules)
    return most_saturated_next(
        state, _units_by_queue(state, pool, asked, min_runtime(reclaimer.queue))
    )


def _batch_check(state: CycleState, gang: Gang) -> BatchCheck:
    reclaimer = _reclaimer(state, gang, gang.members)
    before, rules = copy_usage(state.quota.usage), state.quota.rules

    def may_reclaim_all(count: int, units: Sequence[VictimUnit]) -> bool:
        return may_reclaim_batch(before, reclaimer, count, _as_victims(state, units), rules)

    return may_reclaim_all


def _reclaimer(state: CycleState, gang: Gang, members: Sequence[Member]) -> Reclaimer:
    queue, cost = state.quota.queues.positions[gang.queue], state.quota.cost_of(members)
    return Reclaimer(queue, cost, gang.is_preemptible(members))


def _units_by_queue(
    state: CycleState, pool: VictimPool, reclaimable: Bools, min_runtime: Sequence[float]
) -> dict[int, Iterator[VictimUnit]]:
    """The units of every queue that may be asked."""
    return {
        queue: _unprotected_units(state, pool, queue, min_runtime[queue])
        for queue in pool.queues()
        if reclaimable[queue]
    }


def _unprotected_units(
    state: CycleState, pool: VictimPool, queue: int, min_runtime: float
) -> Iterator[VictimUnit]:
    now = state.snapshot.now
    units = pool.units(queue)
    return unprotected_units(
        units, lambda g: within_min_runtime(g.started, min_runtime, now), state.statement
    )


def _first_rejected(
    state: CycleState, reclaimer: Reclaimer, usage_before: QueueUsage, lost: Sequence[VictimUnit]
) -> VictimUnit | None:
    """The end of the shortest beginning of ``lost`` that fairness refuses."""
    victims, rules = _as_victims(state, lost), state.quota.rules

    def is_rejected(count: int) -> bool:
        return check_reclaim(usage_before, reclaimer, victims.first(count), rules) is not None

    if not lost or not is_rejected(len(lost)):
        return None
    return lost[bisect_left(range(1, len(lost)), 1, key=is_rejected)]


def _as_victims(state: CycleState, units: Sequence[VictimUnit]) -> Victims:
    queues = [state.quota.queues.positions[unit.gang.queue] for unit in units]
    amounts = [released_quota(state, unit) for unit in units]
    shape = (len(state.quota.resources), len(units))
    return Victims(
        np.array(queues, dtype=np.int32),
        np.array(amounts).T.reshape(shape) if amounts else np.zeros(shape),
    )


def _eviction_reason(state: CycleState, preemptor: Gang, unit: VictimUnit) -> str:
    gpu = state.quota.resources.index("gpu")
    texts = []
    for name in (preemptor.queue, unit.gang.queue):
        at = state.quota.queues.positions[name]
        standing = state.quota.usage
        texts.append(
            f"{name} holds {standing.allocated[gpu, at]:g} GPUs of a fair share of "
            f"{standing.fair[gpu, at]:g}"
        )
    owner = preemptor.owner
    return f"reclaimed by workload {owner.namespace}/{owner.name}: {texts[0]}, {texts[1]}"
