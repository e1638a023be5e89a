"""The actions of a cycle in their order, each for the gangs that are still pending."""

from collections.abc import Iterable, Iterator, Sequence

from kai_py.plan.actions.allocate_in_turn import allocate_without_bypass
from kai_py.plan.actions.registry import ACTIONS, VICTIM_ACTIONS, registered_action
from kai_py.plan.actions.turnover import Turnover
from kai_py.plan.cycle.settings import CycleSettings
from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.policy.fairness_rules import BypassPolicy
from kai_py.policy.reclaim_rules import Reclaimer, may_reclaim
from kai_py.snapshot.gangs import Gang


def run_actions(
    state: CycleState, gangs: Sequence[Gang], settings: CycleSettings, turnover: Turnover
) -> None:
    """Run the actions of ``settings`` for the gangs, one after the other."""
    in_order = settings.rules.bypass_policy is BypassPolicy.PREEMPT_FIRST
    for action, able in _actions_in_turn(state, gangs, settings):
        if action is Action.ALLOCATE and in_order:
            evicting = [VICTIM_ACTIONS[each] for each in settings.actions if each in VICTIM_ACTIONS]
            allocate_without_bypass(state, able, turnover, evicting)
        else:
            ACTIONS[action](state, able)
        if action is Action.ALLOCATE:
            for name in settings.extra_actions:
                _run_added_action(state, unplaced_gangs(state, gangs), name)


def _actions_in_turn(
    state: CycleState, gangs: Sequence[Gang], settings: CycleSettings
) -> Iterator[tuple[Action, list[Gang]]]:
    """The actions in their order, each with the gangs that are still pending.

    Where no gang may bypass another, pods are relocated first for gangs that may reclaim, and for
    the others after those have reclaimed: else what starts on capacity that relocation won would be
    evicted in the next cycle.
    """
    in_order = settings.rules.bypass_policy is BypassPolicy.PREEMPT_FIRST
    splits = in_order and Action.RECLAIM in settings.actions
    unplaced, later = list(gangs), list[Gang]()
    for action in settings.actions:
        if action is Action.ALLOCATE:
            # It says of every gang what it waits for, also where no pod could be placed.
            yield action, list(gangs)
            continue
        unplaced = unplaced_gangs(state, unplaced)
        if action is Action.CONSOLIDATE and splits:
            due = gangs_within_share(state, unplaced)
            keys = {gang.key for gang in due}
            later = [gang for gang in unplaced if gang.key not in keys] if due else []
            yield action, due or unplaced
            continue
        if action is Action.STALE and later:
            yield Action.CONSOLIDATE, unplaced_gangs(state, later)
            unplaced, later = unplaced_gangs(state, unplaced), []
        yield action, unplaced
    if later:
        yield Action.CONSOLIDATE, unplaced_gangs(state, later)


def unplaced_gangs(state: CycleState, gangs: Iterable[Gang]) -> list[Gang]:
    """Those of ``gangs`` of which any pod is not placed yet."""
    return [gang for gang in gangs if has_unplaced_pods(state, gang)]


def _run_added_action(state: CycleState, ready: Sequence[Gang], name: str) -> None:
    """Run an action of an installed package; if it fails it has decided nothing."""
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
    """Those of ``gangs`` whose queues stay within their fair share with them."""
    known: dict[tuple[int, bool, bytes], bool] = {}
    due: list[Gang] = []
    for gang in gangs:
        if not state.evictable:
            break
        request = state.next_request(gang)
        queue = state.quota.queue_of(gang)
        if request is None or queue is None:
            continue
        cost = state.request_cost(gang)
        key = queue, gang.is_preemptible(request.members), cost.tobytes()
        if key not in known:
            asking = Reclaimer(queue, cost, key[1])
            known[key] = may_reclaim(state.quota.usage, asking, state.quota.rules) is None
        if known[key]:
            due.append(gang)
        else:
            state.due.record_above_share(gang)
    return due
