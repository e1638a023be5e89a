"""Pods that take the capacity of one victim each get what a search for each of them would find."""

from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kai_py.plan.actions.registry import ACTIONS
from kai_py.plan.plan import Action
from kai_py.plan.victims.batch import VictimBatch
from kai_py.plan.victims.search import VictimSearch
from kai_py.policy.fairness_rules import KAI, NATIVE
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.examples import examples
from tests.support.worlds import World, gang, world

LEAVES = ("a1", "a2", "b1", "b2", "c")
TREE = (("a", ""), ("b", ""), ("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b"), ("c", ""))


@st.composite
def worlds(draw):
    """Full nodes, mostly of single pods, of few queues; single pods of other queues wait."""
    nodes = {f"n{i}": draw(st.integers(2, 6)) for i in range(draw(st.integers(2, 4)))}
    total = sum(nodes.values())
    givers = draw(st.lists(st.sampled_from(LEAVES), min_size=1, max_size=3))
    takers = draw(st.lists(st.sampled_from(LEAVES), min_size=1, max_size=2))
    due = [st.sampled_from([0, 0, total // 4]), st.sampled_from([total // 2, total])]
    queues = [
        QueueInfo(
            name=name,
            parent=parent,
            deserved={"gpu": float(draw(due[name in takers or name in "ab"]))},
            max={"gpu": draw(st.sampled_from([float("inf")] * 12 + [4.0]))},
            created=draw(st.integers(0, 1)),
            reclaim_min_runtime=draw(st.sampled_from([None] * 5 + [980.0])),
        )
        for name, parent in TREE
    ]
    idle = draw(st.sampled_from([0, 0, 1]))
    running, free = [], {name: gpus - idle for name, gpus in nodes.items()}
    while any(free.values()):
        node = next(name for name, left in free.items() if left)
        gpus = min(free[node], draw(st.sampled_from([1] * 5 + [2])))
        pods = draw(st.sampled_from([1] * 5 + [2])) if free[node] >= 2 * gpus else 1
        free[node] -= pods * gpus
        running.append(
            gang(
                f"r{len(running):02d}",
                gpus=gpus,
                node=node,
                pods=pods,
                floor=draw(st.integers(0, pods)),
                queue=draw(st.sampled_from(givers)),
                priority=draw(st.sampled_from([0, 0, 1])),
                created=draw(st.integers(0, 40)),
                preemptible=draw(st.integers(0, 30)) > 0,
            )
        )
    sizes = draw(st.sampled_from([(1,), (1,), (1,) * 6 + (2,), (2,)]))
    waiting = [
        gang(
            f"w{i:02d}",
            gpus=draw(st.sampled_from(sizes)),
            pods=draw(st.sampled_from([1] * 15 + [2])),
            queue=draw(st.sampled_from(takers)),
            created=100 + i,
        )
        for i in range(draw(st.integers(2, 20)))
    ]
    options = {
        "victim_probes": draw(st.sampled_from([20_000] * 5 + [7])),
        "rules": draw(st.sampled_from([NATIVE, KAI])),
        "actions": draw(st.sampled_from([tuple(ACTIONS), (Action.ALLOCATE, Action.RECLAIM)])),
    }
    return world(nodes, *running, *waiting, queues=queues, **options)


@pytest.mark.slow
@settings(
    max_examples=examples(120),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)
@given(worlds())
def test_the_plan_is_that_of_a_search_for_each(each: World):
    at_once = each.plan()
    with patch.object(VictimBatch, "run"):
        assert each.plan() == at_once


def test_one_search_is_enough_for_many_pods_that_are_alike():
    queues = [QueueInfo(name="x"), QueueInfo(name="y", deserved={"gpu": 16.0})]
    running = [gang(f"r{i:02d}", node=f"n{i % 4}", pods=1, queue="x", created=i) for i in range(16)]
    waiting = [gang(f"w{i:02d}", pods=1, queue="y", created=50 + i) for i in range(12)]
    full = world({f"n{i}": 4 for i in range(4)}, *running, *waiting, queues=queues)
    with patch.object(VictimSearch, "run", autospec=True, side_effect=VictimSearch.run) as search:
        plan = full.plan()
    youngest_first = [f"r{i:02d}-0" for i in reversed(range(4, 16))]
    assert [each.pod.name for each in plan.evictions] == youngest_first
    assert {each.action for each in plan.evictions} == {Action.RECLAIM}
    assert [each.pod.name for each in plan.nominations] == [f"w{i:02d}-0" for i in range(12)]
    assert search.call_count < 4


def test_a_victim_that_finds_capacity_elsewhere_is_moved():
    queues = [QueueInfo(name="x"), QueueInfo(name="y", deserved={"gpu": 8.0})]
    running = [gang(f"r{i}", node=f"n{i}", pods=1, queue="x", created=i) for i in range(4)]
    waiting = [gang(f"w{i}", pods=1, gpus=2, queue="y", created=50 + i) for i in range(2)]
    half_full = world(
        {f"n{i}": 2 for i in range(4)},
        *running,
        *waiting,
        queues=queues,
        actions=(Action.ALLOCATE, Action.RECLAIM),
    )
    moved = {each.pod.name: each.relocated_to for each in half_full.plan().evictions}
    assert moved == {"r3-0": "n0", "r2-0": "n1"}


def test_steps_that_fairness_refuses_are_undone():
    queues = [QueueInfo(name="x", deserved={"gpu": 4.0}), QueueInfo(name="y", deserved={"gpu": 6})]
    running = [gang(f"r{i}", node="n", pods=1, queue="x", created=i) for i in range(10)]
    waiting = [gang(f"w{i}", pods=1, queue="y", created=50 + i) for i in range(8)]
    plan = world({"n": 10}, *running, *waiting, queues=queues).plan()
    assert [each.pod.name for each in plan.evictions] == [f"r{i}-0" for i in (9, 8, 7, 6, 5, 4)]
    assert len(plan.nominations) == 6
