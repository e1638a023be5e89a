"""Gangs that could start at the cost of other pods, which are not evicted yet.

Evictions are weighed against time (``plan.victims.timing``). Without a word about it such a gang
would seem to lack capacity for good. The sentences name no times, as these change with every cycle.
"""

from collections.abc import Iterable, Sequence

from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.snapshot.gangs import Gang

LOST_WORK = (
    "No pod is evicted for it yet, because more work would be lost than it loses by waiting."
)
NOT_RELOCATED = (
    "No pod is relocated for it yet, because more work would be lost than it loses by waiting."
)


def explain_postponed(state: CycleState, gangs: Iterable[Gang]) -> None:
    """Say of gangs whose victims stay for now that they wait, and why."""
    if not state.postponed:
        return
    for gang in gangs:
        reason, sentence = state.unschedulable.get(gang.key), _sentence(state, gang)
        if reason is not None and sentence:
            state.mark_unschedulable(gang, reason.with_sentence(sentence))


def without_victims(state: CycleState, gangs: Sequence[Gang]) -> Sequence[Gang]:
    """Those of ``gangs`` for which no pods were found that may be evicted, though not yet."""
    if not state.postponed:
        return gangs
    return [gang for gang in gangs if _sentence(state, gang) != LOST_WORK]


def _sentence(state: CycleState, gang: Gang) -> str:
    if any((action, gang.key) in state.postponed for action in (Action.PREEMPT, Action.RECLAIM)):
        return LOST_WORK
    return NOT_RELOCATED if (Action.CONSOLIDATE, gang.key) in state.postponed else ""
