"""A pod larger than what any node has free is answered without looking at nodes, and alike."""

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_py.plan.placement.fit import ShapeFits
from kai_py.plan.placement.running_fit import RunningFit
from kai_py.plan.plan import Stage
from kai_py.plan.victims.count import CapacityCount
from kai_py.policy.fairness_rules import KAI, NATIVE
from tests.plan.mixed_worlds import mixed_world
from tests.support.examples import examples
from tests.support.scenario import cluster, node, pod, queue

NEVER = patch.multiple(ShapeFits, exceeds_nodes=lambda *_: False, exceeds_free=lambda *_: False)


def full_world(deserved=0):
    """Every GPU is in use by one queue; three pods of another one wait, each of its own size."""
    return cluster(
        queue("has", 4 - deserved),
        queue("waits", deserved),
        [node(f"n{i}", 2) for i in range(2)],
        [pod(f"runs{i}", queue="has", node=f"n{i % 2}") for i in range(4)],
        [pod(f"p{i}", queue="waits", requests={"cpu": str(1 + i)}) for i in range(3)],
    )


@pytest.mark.parametrize("made", [RunningFit, CapacityCount])
def test_nodes_are_not_counted_for_pods_that_none_can_hold(made):
    with patch.object(made, "__init__", side_effect=AssertionError("counted")):
        plan = full_world().plan(100.0)
    assert not plan.set_aside
    assert [each.stage for each in plan.unplaced] == [Stage.FAIR_SHARE] * 3
    for each in plan.unplaced:
        assert "2 Insufficient nvidia.com/gpu (1 requested, most free 0 on n0)" in each.message


def test_nodes_are_not_counted_for_pods_that_no_node_holds_after_others_were_placed():
    world = cluster(
        queue("q", 2),
        node("n0", 2),
        pod("runs", queue="q", node="n0"),
        pod("starts", queue="q", priority=1),
        [pod(f"p{i}", queue="q", requests={"cpu": str(1 + i)}) for i in range(3)],
    )
    counted, original = list[int](), RunningFit.__init__

    def count(self, statement, shape, *args, **kwargs):
        counted.append(shape.number)
        original(self, statement, shape, *args, **kwargs)

    with patch.object(RunningFit, "__init__", count):
        plan = world.plan(100.0)
    assert [len(each.pods) for each in plan.placements] == [1]
    assert len(set(counted)) == 1
    assert len(plan.unplaced) == 3
    for each in plan.unplaced:
        assert "1 Insufficient nvidia.com/gpu (1 requested, most free 0 on n0)" in each.message


@pytest.mark.parametrize("asked", [{"requests": {"example.com/none": "1"}}, {"gpus": 3}])
def test_no_victims_are_counted_for_pods_that_empty_nodes_cannot_hold(asked):
    """The other pod takes victims in the same actions, so capacity has been freed."""

    def world():
        return cluster(
            queue("has", 2),
            queue("waits", 2),
            [node(f"n{i}", 2) for i in range(2)],
            [pod(f"runs{i}", queue="has", node=f"n{i % 2}") for i in range(4)],
            pod("fits", queue="waits", priority=1),
            pod("never", queue="waits", **asked),
        )

    counted, original = set[str](), CapacityCount.__init__

    def count(self, state, gang, members, possible_nodes):
        counted.update(each.pod.name for each in members)
        original(self, state, gang, members, possible_nodes)

    with patch.object(CapacityCount, "__init__", count):
        plan = world().plan(100.0)
    assert counted == {"fits"}
    assert len(plan.evictions) == 1
    with NEVER:
        assert repr(world().plan(100.0)) == repr(plan)


def test_what_evictions_free_is_more_than_nodes_had():
    with NEVER:
        expected = full_world(deserved=2).plan(100.0)
    plan = full_world(deserved=2).plan(100.0)
    assert len(plan.evictions) == 2
    assert repr(plan) == repr(expected)


@pytest.mark.slow
@given(seed=st.integers(0, 100_000), rules=st.sampled_from([NATIVE, KAI]))
@settings(max_examples=examples(150), deadline=None)
def test_plans_are_the_same_as_when_every_node_is_counted(seed, rules):
    """Also the second plan, which the answers of the first one help to make."""
    world, other = mixed_world(seed, rules=rules), mixed_world(seed, rules=rules)
    for now in (100.0, 101.0):
        with NEVER:
            expected = other.plan(now)
        assert repr(world.plan(now)) == repr(expected)
