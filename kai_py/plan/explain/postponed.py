"""Gangs that could start at the cost of other pods, which are not evicted yet.

Evictions are weighed against time (``plan.victims.timing``), and gangs may have a preemption delay.
Without a word about it such a gang would seem to lack capacity for good. The sentences name no
times, as these change with every cycle.
"""

from collections.abc import Iterable, Sequence

from kai_py.api.times import format_duration
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Action, Stage
from kai_py.plan.session.cycle_state import CycleState
from kai_py.snapshot.gangs import Gang

CAPACITY_STAGES = (Stage.RESOURCES, Stage.DEVICES)
LOST_WORK = (
    "No pod is evicted for it yet, because more work would be lost than it loses by waiting."
)
NOT_RELOCATED = (
    "No pod is relocated for it yet, because more work would be lost than it loses by waiting."
)

NEVER_PREEMPTS = "It evicts no pod, as its preemptionPolicy is Never."


def explain_postponed(state: CycleState, gangs: Iterable[Gang]) -> None:
    """Say of gangs whose victims stay for now that they wait, and why."""
    for gang in gangs:
        if gang.may_preempt and not (state.postponed or gang.preemption_delay):
            continue
        reason = state.unschedulable.get(gang.key)
        if reason is None:
            continue
        sentence = _sentence(state, gang) or _delay(state, gang, reason)
        if sentence:
            state.mark_unschedulable(gang, reason.with_sentence(sentence))


def without_victims(state: CycleState, gangs: Sequence[Gang]) -> Sequence[Gang]:
    """The gangs for which no pods were found that may be evicted later."""
    if not state.postponed:
        return gangs
    return [gang for gang in gangs if _sentence(state, gang) != LOST_WORK]


def _delay(state: CycleState, gang: Gang, reason: Unschedulable) -> str:
    """That a gang that lacks capacity may not evict others, or not yet."""
    if reason.stage not in CAPACITY_STAGES or reason.infeasible:
        return ""
    if not gang.may_preempt:
        return NEVER_PREEMPTS
    if state.snapshot.now >= gang.preempts_from:
        return ""
    delay = format_duration(gang.preemption_delay)
    return f"It evicts no pod until its preemption delay of {delay} has passed."


def _sentence(state: CycleState, gang: Gang) -> str:
    if any((action, gang.key) in state.postponed for action in (Action.PREEMPT, Action.RECLAIM)):
        return LOST_WORK
    return NOT_RELOCATED if (Action.CONSOLIDATE, gang.key) in state.postponed else ""
