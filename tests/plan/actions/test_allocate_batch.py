"""Gangs placed many at a time end where placing them one by one would have put them."""

from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kai_py.api.choices import FillStrategy
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.plan.actions import allocate_batch
from kai_py.plan.actions.allocate_batch import EquivalentGangs
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.cycle.run import run_cycle
from kai_py.plan.session.equivalent_gangs import is_equivalent
from kai_py.plan.session.gang_queue import GangQueue
from kai_py.plan.session.settings import CycleSettings
from kai_py.policy.fairness_rules import KAI, NATIVE
from kai_py.snapshot.tables.assumptions import NominatedNode
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.examples import examples
from tests.support.records import replace
from tests.support.worlds import World, gang, world

LEAVES = ("a1", "a2", "b1", "c")


@st.composite
def worlds(draw):
    """A tree of queues with bounds, some running pods, single pods of few kinds and some gangs."""
    nodes = {f"n{i}": draw(st.integers(0, 6)) for i in range(draw(st.integers(1, 5)))}
    bound = st.sampled_from([1.0, 4.0, 9.0, float("inf")])
    queues = [
        QueueInfo(
            name=name,
            parent=parent,
            deserved={"gpu": float(draw(st.integers(0, 6)))},
            max={"gpu": draw(bound)},
            priority=draw(st.sampled_from([1, 1, 2])),
            created=draw(st.integers(0, 1)),
        )
        for name, parent in (("a", ""), ("b", ""), ("a1", "a"), ("a2", "a"), ("b1", "b"), ("c", ""))
    ]
    kinds = draw(st.lists(st.sampled_from([1, 1, 1, 1, 2]), min_size=1, max_size=3))
    sizes = draw(st.sampled_from([[1] * 9 + [2], [2] * 9 + [1], [1, 3]]))
    waiting = [
        gang(
            f"w{i:02d}",
            gpus=draw(st.sampled_from(kinds)),
            pods=draw(st.sampled_from(sizes)),
            queue=draw(st.sampled_from(LEAVES)),
            priority=draw(st.sampled_from([0, 0, 0, 1])),
            created=draw(st.integers(0, 3)),
            preemptible=draw(st.integers(0, 9)) > 0,
        )
        for i in range(draw(st.integers(1, 30)))
    ]
    running = [
        gang(f"r{i}", gpus=1, node=name, pods=1, queue=draw(st.sampled_from(LEAVES)))
        for i, (name, gpus) in enumerate(nodes.items())
        if gpus and draw(st.booleans())
    ]
    strategy = draw(st.sampled_from([FillStrategy.BINPACK] * 3 + [FillStrategy.SPREAD]))
    rules = draw(st.sampled_from([NATIVE, KAI]))
    return world(nodes, *running, *waiting, queues=queues, gpu_strategy=strategy, rules=rules)


@pytest.mark.slow
@settings(
    max_examples=examples(80),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)
@given(worlds())
def test_the_plan_is_that_of_one_by_one(each: World):
    with patch.multiple("kai_py.plan.actions.allocate_batch", FIRST_LOOKAHEAD=3, SMALL_BATCH=0):
        at_once = each.plan()
    with patch.object(EquivalentGangs, "place_batch", return_value=False):
        assert each.plan() == at_once


def test_alike_pods_of_all_queues_take_one_step():
    names = [f"q{i}" for i in range(3)]
    queues = [QueueInfo(name=name, deserved={"gpu": 10.0}) for name in names]
    waiting = [gang(f"w{i:02d}", pods=1, queue=names[i % 3], created=i) for i in range(30)]
    with patch.object(GangQueue, "pop", autospec=True, return_value=None) as pop:
        plan = world({"n0": 16, "n1": 20}, *waiting, queues=queues).plan()
    assert [each.pods[0].pod.name for each in plan.placements] == [f"w{i:02d}-0" for i in range(30)]
    assert [each.pods[0].node for each in plan.placements] == ["n0"] * 16 + ["n1"] * 14
    assert pop.call_count == 1


def test_queues_with_pods_of_kinds_of_their_own_take_one_step():
    names = [f"q{i}" for i in range(3)]
    queues = [QueueInfo(name=name, deserved={"gpu": 30.0}) for name in names]
    waiting = [gang(f"w{i:02d}", gpus=1 + i % 3, queue=names[i % 3], pods=1) for i in range(30)]
    all_of_them = world({"n0": 16, "n1": 20, "n2": 24}, *waiting, queues=queues)
    with patch.object(GangQueue, "pop", autospec=True, return_value=None) as pop:
        plan = all_of_them.plan()
    with patch.object(EquivalentGangs, "place_batch", return_value=False):
        assert all_of_them.plan() == plan
    assert len(plan.placements) == 30
    assert pop.call_count == 1


def test_gangs_of_some_pods_take_one_step():
    names = [f"q{i}" for i in range(3)]
    queues = [QueueInfo(name=name, deserved={"gpu": 30.0}) for name in names]
    waiting = [gang(f"w{i:02d}", pods=2 + i % 3, queue=names[i % 3]) for i in range(20)]
    all_of_them = world({f"n{i}": 8 for i in range(9)}, *waiting, queues=queues)
    with patch.object(GangQueue, "pop", autospec=True, return_value=None) as pop:
        plan = all_of_them.plan()
    with patch.object(EquivalentGangs, "place_batch", return_value=False):
        assert all_of_them.plan() == plan
    assert sum(len(each.pods) for each in plan.placements) == 59
    assert pop.call_count == 1


def test_a_pod_that_was_promised_capacity_is_placed_once():
    promised = gang("promised", pods=1, priority=1)
    others = gang("first", pods=1, priority=1), gang("last", pods=1)
    snapshot = world({"n0": 3}, promised, *others).snapshot(0.0)
    uid = promised.members[0].pod.uid
    held = replace(snapshot, nominations={uid: NominatedNode("n0", snapshot.now + 60)})
    plan = run_cycle(held, CycleSettings(), CycleMemory(ClusterDevices()))
    assert sorted(each.gang for each in plan.placements) == sorted(
        each.key for each in (promised, *others)
    )
    assert plan.queues[0].allocated["gpu"] == 3.0


def test_without_capacity_no_other_queue_is_looked_at():
    queues = [QueueInfo(name=f"q{i:02d}", deserved={"gpu": 1.0}) for i in range(50)]
    waiting = [gang(f"w{i:02d}", gpus=1, pods=1, queue=each.name) for i, each in enumerate(queues)]
    full = gang("full", gpus=1, node="n", pods=1, queue="q00")
    with patch.object(allocate_batch, "is_equivalent", wraps=is_equivalent) as looks:
        plan = world({"n": 1}, full, *waiting, queues=queues).plan()
    assert not plan.placements
    assert 0 < looks.call_count < len(queues)
