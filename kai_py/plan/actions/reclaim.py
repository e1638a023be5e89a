"""Reclaim: a queue below its fair share takes room back from queues above theirs.

    for each pending gang that found no room, by the order of the queues:
        the gang's queue must stay within its fair share with it
        victims: running preemptible gangs of queues that may be asked, past their min runtime,
                 the queue that holds most of its due first
        take the fewest that make the whole gang fit, as far as fairness allows

Which queues may be asked, and for how much, is ``policy.reclaim_rules``; the last word has its
``check_reclaim`` on the chosen victims.
"""

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from kai_py.plan.actions.preempt import CURABLE
from kai_py.plan.candidates import next_ask
from kai_py.plan.cycle_state import CycleState
from kai_py.plan.decisions import Action
from kai_py.plan.victim_order import (
    bundled_by_node,
    cheapest_first,
    cost_of,
    most_saturated_first,
)
from kai_py.plan.victims import VictimSearch, VictimUnit, victim_units
from kai_py.policy.min_runtime import protected, reclaim_min_runtime
from kai_py.policy.reclaim_rules import (
    Reclaimer,
    Victims,
    check_reclaim,
    legal_prefix,
    may_reclaim,
    reclaimable_queues,
)
from kai_py.snapshot.accounting import total
from kai_py.snapshot.gangs import Gang


def reclaim(state: CycleState, gangs: Iterable[Gang]) -> None:
    """Run the action for those of ``gangs`` that are still pending."""
    pending = [gang for gang in gangs if _wants_room(state, gang)]
    for gang in sorted(pending, key=partial(_rank, state)):
        _reclaim(state, gang)


def _wants_room(state: CycleState, gang: Gang) -> bool:
    obstacle = state.obstacles.get(gang.key)
    return obstacle is not None and gang.may_preempt and obstacle.stage in CURABLE


def _rank(state: CycleState, gang: Gang) -> tuple[int, int, float, str]:
    queue = state.quota.queue_of(gang)
    priority = 0 if queue is None else int(state.quota.queues.priority[queue])
    return (-priority, -gang.priority, gang.created, gang.key)


def _reclaim(state: CycleState, gang: Gang) -> None:
    ask, queue = next_ask(gang, state.statement), state.quota.queue_of(gang)
    if ask is None or queue is None or not ask.all_or_none:
        return
    quota = state.quota
    cost = quota.cost(total(member.charge for member in ask.members))
    reclaimer = Reclaimer(queue, cost, gang.preemptible)
    if may_reclaim(quota.standing, reclaimer, quota.rules) is not None:
        return
    units = _units(state, reclaimer)
    units = bundled_by_node(state, ask.members, most_saturated_first(state, units))
    legal = units[: legal_prefix(quota.standing, reclaimer, _victims(state, units), quota.rules)]
    search = VictimSearch(
        state,
        gang,
        ask,
        Action.RECLAIM,
        partial(_reason, state, gang),
        legal=lambda chosen: (
            check_reclaim(quota.standing, reclaimer, _victims(state, chosen), quota.rules) is None
        ),
    )
    if search.run(legal) is not None:
        state.clear(gang)


def _units(state: CycleState, reclaimer: Reclaimer) -> list[VictimUnit]:
    quota = state.quota
    asked = reclaimable_queues(quota.standing, reclaimer, quota.rules)
    safe = reclaim_min_runtime(quota.queues, reclaimer.queue, quota.rules)
    leaving = frozenset(state.statement.evicted)
    units: list[VictimUnit] = []
    for gang in state.snapshot.gangs.values():
        queue = quota.queue_of(gang)
        if queue is None or not asked[queue] or not gang.preemptible or not gang.bound:
            continue
        offered = victim_units(gang, leaving)
        if protected(np.array([gang.started]), safe[queue : queue + 1], state.snapshot.now)[0]:
            offered = [unit for unit in offered if not unit.core]
        units += offered
    return cheapest_first(units)


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
