"""Gangs that could start at the cost of other pods, which are not evicted yet.

Evictions are weighed against time (``plan.victims.timing``), gangs may have a preemption delay, the
pods relocated for one gang are limited, and no gang evicts pods to reach devices that are allocated
to it and not used yet. Without an explanation such a gang would seem to lack capacity for good. The
sentences name no times, as these change with every cycle.
"""

from collections.abc import Iterable, Sequence

from kai_py.api.times import format_duration
from kai_py.plan.explain.protections import CAPACITY_STAGES
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import SHORT_OF_CAPACITY, Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.snapshot.gangs import Gang

LOST_WORK = (
    "No pod is evicted for it yet, because more work would be lost than it loses by waiting."
)
NOT_RELOCATED = (
    "No pod is relocated for it yet, because more work would be lost than it loses by waiting."
)
TOO_MANY_PODS = (
    "No pod is relocated for it, because more pods would have to move than "
    "eviction.consolidateAtMost, which is {}."
)
PINNED = (
    'Resourceclaim "{}" was allocated for it, but no pod that uses it is on a node: it is released '
    "if this lasts, and until then no pod is evicted."
)
NEVER_PREEMPTS = "It evicts no pod, as its preemptionPolicy is Never."


def explain_postponed(state: CycleState, gangs: Iterable[Gang]) -> None:
    """Say of gangs whose victims stay for now that they wait, and why."""
    for gang in gangs:
        reason = state.unschedulable.get(gang.key)
        if reason is None:
            continue
        pinned = _pinned(state, gang) if reason.stage in SHORT_OF_CAPACITY else ""
        sentence = pinned or _sentence(state, gang) or _delay(state, gang, reason)
        if sentence:
            state.mark_unschedulable(gang, reason.with_sentence(sentence))


def without_victims(state: CycleState, gangs: Sequence[Gang]) -> Sequence[Gang]:
    """The gangs for which no pods were found that may be evicted later."""
    may_wait = [gang for gang in gangs if not _pinned(state, gang)]
    if not state.postponed:
        return may_wait
    return [gang for gang in may_wait if _sentence(state, gang) != LOST_WORK]


def _delay(state: CycleState, gang: Gang, reason: Unschedulable) -> str:
    """The sentence for a gang that lacks capacity and may not evict others, or not yet."""
    if reason.stage not in CAPACITY_STAGES or reason.infeasible:
        return ""
    if not gang.may_preempt:
        return NEVER_PREEMPTS
    delay = gang.settings.preemption_delay
    if not delay or state.snapshot.now >= gang.preempts_from:
        return ""
    return f"It evicts no pod until its preemption delay of {format_duration(delay)} has passed."


def _pinned(state: CycleState, gang: Gang) -> str:
    name = state.statement.devices.users.left_over_claim(gang)
    return PINNED.format(name) if name else ""


def _sentence(state: CycleState, gang: Gang) -> str:
    if any((action, gang.key) in state.postponed for action in (Action.PREEMPT, Action.RECLAIM)):
        return LOST_WORK
    if (Action.CONSOLIDATE, gang.key) in state.postponed:
        return NOT_RELOCATED
    if gang.key in state.search_budgets.too_many_pods:
        return TOO_MANY_PODS.format(state.settings.max_relocated_pods)
    return ""
