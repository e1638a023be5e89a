"""Actions of installed packages run once, after pods were placed and before any is evicted."""

from types import SimpleNamespace

import pytest

from kai_py.plan.cycle import action_turns
from kai_py.plan.plan import Action
from kai_py.policy.fairness_rules import BypassPolicy


@pytest.mark.parametrize("bypass", [BypassPolicy.PREEMPT_FIRST, BypassPolicy.BYPASS_FIRST])
def test_added_actions_run_after_allocate_and_before_pods_are_evicted(monkeypatch, bypass):
    ran = []
    actions = (Action.ALLOCATE, Action.RECLAIM, Action.PREEMPT)
    turns = [(action, ()) for action in actions]
    monkeypatch.setattr(action_turns, "_placeable", lambda _state, gangs: gangs)
    monkeypatch.setattr(action_turns, "_actions_in_turn", lambda *_: turns)
    monkeypatch.setattr(action_turns, "_run", lambda _state, action, *_: ran.append(action))
    monkeypatch.setattr(action_turns, "unplaced_gangs", lambda *_: ())
    monkeypatch.setattr(
        action_turns, "_run_added_action", lambda _state, _gangs, name: ran.append(name)
    )
    settings = SimpleNamespace(
        rules=SimpleNamespace(bypass_policy=bypass), actions=actions, extra_actions=("own", "next")
    )
    action_turns.run_actions(SimpleNamespace(settings=settings), (), None)
    assert ran == [Action.ALLOCATE, "own", "next", Action.RECLAIM, Action.PREEMPT]
