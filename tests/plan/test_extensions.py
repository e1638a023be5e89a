"""A score or an action of an installed package that fails hurts itself only."""

import numpy as np
import pytest

from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.plan.actions import registry as actions
from kai_py.plan.cycle.deadlines import next_deadline
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.cycle.run import run_cycle
from kai_py.plan.plan import Action, Stage
from kai_py.plan.session.settings import CycleSettings
from kai_py.plan.state.assignment import Evicted
from kai_py.policy.score import registry as scores
from kai_py.policy.score.node_capacity import ANY_DEVICE, NodeScores
from kai_py.policy.score.registry import WeightedScore, register_score
from kai_py.watchdog import CycleTimer
from tests.support.scenario import START, evicted, placed
from tests.support.worlds import gang, world


@pytest.fixture(autouse=True)
def registries(monkeypatch):
    monkeypatch.setattr(actions, "_ADDED", {})
    monkeypatch.setattr(scores, "_DEFINITIONS", dict(scores._DEFINITIONS))


def waits_beside_what_runs():
    return world({"a": 4, "b": 4}, gang("runs", pods=1, node="a"), gang("new", pods=1, created=5))


def played(memory, now=1000.0, watch=None, before=None, **settings):
    snapshot = (before or waits_beside_what_runs()).snapshot(now)
    return run_cycle(snapshot, CycleSettings(**settings), memory, watch)


def evict_all(state, _pending):
    for each in state.snapshot.gangs.values():
        for member in each.bound:
            state.statement.evict(Evicted(member, each, Action.STALE, each, "because"))


def evict_all_and_fail(state, pending):
    evict_all(state, pending)
    for each in pending:
        state.mark_unschedulable(each, "no reason at all")
    pending.clear()


def test_an_action_that_fails_has_decided_nothing_and_the_cycle_goes_on():
    actions.register_action("first", evict_all_and_fail)
    actions.register_action("second", evict_all)
    alone = played(CycleMemory(ClusterDevices()), extra_actions=("first",))
    assert evicted(alone) == []
    assert set(placed(alone)) == {"new-0"}
    [failure] = alone.failed_extensions
    assert failure.gang == "action first"
    assert "evict_all_and_fail" in failure.error
    assert not alone.set_aside
    both = played(CycleMemory(ClusterDevices()), extra_actions=("first", "second"))
    assert evicted(both) == ["runs-0"]


def test_what_stops_a_gang_is_told_as_if_the_action_had_not_run():
    actions.register_action("first", evict_all_and_fail)
    full = world({"a": 1}, gang("runs", pods=1, node="a"), gang("new", pods=1, created=5))
    plan = played(CycleMemory(ClusterDevices()), before=full, extra_actions=("first",))
    [pending] = plan.unplaced
    assert pending.stage is not Stage.SCHEDULER_ERROR
    assert "Insufficient nvidia.com/gpu" in pending.message


def test_it_is_left_out_for_twice_as_long_each_time():
    actions.register_action("first", evict_all_and_fail)
    memory, failed_at = CycleMemory(ClusterDevices()), []
    settings = {"extra_actions": ("first",)}
    for now in range(1000, 1100):
        if played(memory, float(now), **settings).failed_extensions:
            failed_at.append(now)
        snapshot = waits_beside_what_runs().snapshot(float(now))
        deadline = next_deadline(snapshot, CycleSettings(**settings), memory)
        assert deadline == START + failed_at[-1] + 10 * 2 ** (len(failed_at) - 1)
    assert failed_at == [1000, 1010, 1030, 1070]


def test_an_action_that_takes_all_the_time_is_named():
    clock = [0.0]
    timer = CycleTimer(10.0, lambda: clock[0])

    def slow(state, _pending):
        clock[0] = 99.0
        state.placer.poll()

    actions.register_action("slow", slow)
    memory = CycleMemory(ClusterDevices())
    # Nothing is pending for the other actions, so that no gang takes any time.
    running = world({"a": 4}, gang("runs", pods=1, node="a"))
    plan = played(memory, watch=timer, before=running, extra_actions=("slow",))
    [failure] = plan.failed_extensions
    assert failure.message.startswith("action slow: it took 99.0 s of a cycle")
    assert "action slow" in memory.extension_backoffs


def fails(request, capacity):
    raise ZeroDivisionError("no nodes")


def one_of_two(value, gpu=ANY_DEVICE):
    def score(request, capacity):
        found = np.zeros(len(capacity.rows))
        return NodeScores(found + value, np.full(len(capacity.rows), gpu))

    return score


BROKEN_SCORES = {
    "fails": fails,
    "nothing": lambda request, capacity: None,
    "not-finite": one_of_two(np.nan),
    "too-few": lambda request, capacity: NodeScores(np.zeros(0), np.zeros(0, np.int64)),
    "no-such-gpu": one_of_two(1.0, gpu=99),
    "gpu-of-a-half": one_of_two(1.0, gpu=0.5),
}


@pytest.mark.parametrize("name", BROKEN_SCORES)
@pytest.mark.parametrize("beside", [(), (WeightedScore("best-fit", 3),)], ids=["alone", "of-two"])
def test_a_score_that_fails_counts_for_no_node_and_gangs_start(name, beside):
    register_score(name, BROKEN_SCORES[name])
    memory, chosen = CycleMemory(ClusterDevices()), (WeightedScore(name), *beside)
    plan = played(memory, scores=chosen)
    assert set(placed(plan)) == {"new-0"}
    assert [each.gang for each in plan.failed_extensions] == [f"score {name}"]
    assert not plan.set_aside
    if beside:
        assert placed(plan) == {"new-0": "a"}, "best fit decides alone"
    again = played(memory, 1001.0, scores=chosen)
    assert set(placed(again)) == {"new-0"}
    assert not again.failed_extensions, "it is left out"
