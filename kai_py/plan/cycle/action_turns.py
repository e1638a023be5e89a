"""The actions of a cycle in their order, each for the gangs that are still pending."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from kai_py.plan.actions.allocate_without_bypass import allocate_without_bypass
from kai_py.plan.actions.registry import ACTIONS, VICTIM_ACTIONS, registered_action
from kai_py.plan.actions.turnover import Turnover
from kai_py.plan.extensions import step_key
from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.state.queues import Quota
from kai_py.policy.fairness_rules import BypassPolicy
from kai_py.policy.reclaim_rules import Reclaimer, check_reclaimer
from kai_py.snapshot.gangs import Gang

MAX_FAILURES = 16
"""An action that fails for this many gangs, and succeeds for none, is left out of the cycle."""


def run_actions(state: CycleState, gangs: Sequence[Gang], turnover: Turnover | None) -> None:
    """Run the actions of the settings for the gangs, one after the other.

    None runs for a gang with a precondition that does not hold, which becomes its reason.
    """
    settings = state.settings
    in_order = settings.rules.bypass_policy is BypassPolicy.PREEMPT_FIRST
    gangs = _placeable(state, gangs)
    for action, tried in _actions_in_turn(state, gangs):
        run: Callable[[Sequence[Gang]], None] = partial(ACTIONS[action], state)
        if action is Action.ALLOCATE and in_order:
            evicting = [VICTIM_ACTIONS[each] for each in settings.actions if each in VICTIM_ACTIONS]
            run = partial(
                allocate_without_bypass, state, turnover=turnover, victim_actions=evicting
            )
        _run(state, action, tried, run)
        if action is Action.ALLOCATE:
            for name in settings.extra_actions:
                _run_added_action(state, unplaced_gangs(state, gangs), name)


def _run(
    state: CycleState,
    action: Action,
    gangs: Sequence[Gang],
    run: Callable[[Sequence[Gang]], None],
) -> None:
    """Run an action; if it fails between turns, run it for each gang alone.

    Gangs for which it fails again are set aside, unless it has succeeded for none.
    """
    turns, reasons = state.turns, dict(state.unschedulable)
    error = turns.attempt(run, gangs)
    if error is None:
        return
    turns.fail_turn(step_key(action), error)
    state.start_over(reasons)
    failed: dict[str, Exception] = {}
    succeeded = False
    for gang in turns.eligible(gangs):
        error = turns.attempt(run, (gang,))
        if error is None:
            succeeded = True
            continue
        state.start_over(state.unschedulable)
        failed[gang.key] = error
        if len(failed) == MAX_FAILURES and not succeeded:
            return
    for key, reason in failed.items() if succeeded else ():
        turns.fail_turn(key, reason)


def _placeable(state: CycleState, gangs: Iterable[Gang]) -> list[Gang]:
    """The gangs whose preconditions hold; for each of the others, the one that does not is kept."""
    found: list[Gang] = []
    for gang in gangs:
        reason = state.precondition(gang)
        if reason is None:
            found.append(gang)
        else:
            state.mark_unschedulable(gang, reason)
    return found


def _actions_in_turn(
    state: CycleState, gangs: Sequence[Gang]
) -> Iterator[tuple[Action, list[Gang]]]:
    """The actions in their order, each with the gangs that are still pending.

    If no gang may bypass another, consolidation runs first for the gangs that may reclaim, and for
    the others after these have reclaimed: otherwise gangs that start on capacity freed by
    consolidation would be evicted in the next cycle.
    """
    settings = state.settings
    in_order = settings.rules.bypass_policy is BypassPolicy.PREEMPT_FIRST
    splits = in_order and Action.RECLAIM in settings.actions
    unplaced, later = list(gangs), list[Gang]()
    for action in settings.actions:
        if action is Action.ALLOCATE:
            # It reports for every gang what it waits for, even where no pod could be placed.
            yield action, list(gangs)
            continue
        unplaced = unplaced_gangs(state, unplaced)
        if action is Action.CONSOLIDATE and splits:
            within = gangs_within_share(state, unplaced)
            keys = {gang.key for gang in within}
            later = [gang for gang in unplaced if gang.key not in keys] if within else []
            yield action, within or unplaced
            continue
        if action is Action.STALE and later:
            yield Action.CONSOLIDATE, unplaced_gangs(state, later)
            unplaced, later = unplaced_gangs(state, unplaced), []
        yield action, unplaced
    if later:
        yield Action.CONSOLIDATE, unplaced_gangs(state, later)


def unplaced_gangs(state: CycleState, gangs: Iterable[Gang]) -> list[Gang]:
    """The gangs that have a pod that is not placed yet."""
    return [gang for gang in gangs if has_unplaced_pods(state, gang)]


def _run_added_action(state: CycleState, ready: Sequence[Gang], name: str) -> None:
    """Run an action of an installed package; if it fails, its decisions are undone."""
    if not state.turns.may_run(name):
        return
    reasons = dict(state.unschedulable)
    with state.turns.of_action(name):
        registered_action(name)(state, tuple(ready))
        return
    state.start_over(reasons)


def has_unplaced_pods(state: CycleState, gang: Gang) -> bool:
    """Whether any pod of the gang is not placed yet."""
    placed = state.statement.placed
    return bool([member for member in gang.pending if member.pod.uid not in placed])


def gangs_within_share(state: CycleState, gangs: Iterable[Gang]) -> list[Gang]:
    """The gangs with whose requests their queues stay within their fair shares."""
    known: dict[tuple[int, bool, bytes], bool] = {}
    within: list[Gang] = []
    for gang in gangs:
        if not state.evictable:
            break
        try:
            reclaimer = _as_reclaimer(state, gang)
            if reclaimer is None:
                continue
            is_within = _is_within_share(state.quota, reclaimer, known)
        except Exception as error:
            state.turns.fail(gang, error)
            continue
        if is_within:
            within.append(gang)
        else:
            state.due.record_above_share(gang)
    return within


def _as_reclaimer(state: CycleState, gang: Gang) -> Reclaimer | None:
    """The gang with its next request; None if it requests nothing, or has no queue."""
    request, queue = state.next_request(gang), state.quota.queue_of(gang)
    if request is None or queue is None:
        return None
    return Reclaimer(queue, state.request_cost(gang), gang.is_preemptible(request.members))


def _is_within_share(
    quota: Quota, reclaimer: Reclaimer, known: dict[tuple[int, bool, bytes], bool]
) -> bool:
    """Whether the queue stays within its fair share; ``known``: answers so far."""
    key = reclaimer.queue, reclaimer.preemptible, reclaimer.request.tobytes()
    if key not in known:
        known[key] = check_reclaimer(quota.usage, reclaimer, quota.rules) is None
    return known[key]
