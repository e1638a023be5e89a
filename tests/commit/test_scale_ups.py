"""Gangs that new nodes do not help stop calling for more."""

import pytest

from kai_py.commit.scale_ups import ScaleUpTracker
from kai_py.grouping.gang import Owner
from kai_py.plan.plan import Plan, Shortage, Stage, Unplaced

SETTLED = 300.0


@pytest.fixture
def wakes():
    return []


@pytest.fixture
def scale_ups(wakes):
    return ScaleUpTracker(settled_after=SETTLED, max_ineffective=2, wake=wakes.append)


def waits(stage=Stage.TOPOLOGY, found=0, needed=8):
    owner = Owner("batch/v1", "Job", "default", "train", "u")
    short = Shortage(found, needed, ())
    return Plan(
        unplaced=(Unplaced("default/Job/train", owner, "q", stage, "no rack.", (), shortage=short),)
    )


def stage_after(scale_ups, plan, nodes, now):
    names = [f"node-{number}" for number in range(nodes)]
    return scale_ups.suppress_ineffective(plan, names, now).unplaced[0].stage


def scale_up(scale_ups, plan, nodes, now):
    """One more node, and what is said once it has settled."""
    assert stage_after(scale_ups, plan, nodes - 1, now) == stage_after(
        scale_ups, plan, nodes, now + 1
    )
    return stage_after(scale_ups, plan, nodes, now + 1 + SETTLED)


def test_a_gang_stops_calling_after_so_many_scale_ups_without_effect(scale_ups, wakes):
    assert scale_up(scale_ups, waits(), 2, 0.0) is Stage.TOPOLOGY
    assert scale_up(scale_ups, waits(), 3, 1000.0) is Stage.SCALE_UP_INEFFECTIVE
    assert wakes == [SETTLED, SETTLED]
    (told,) = scale_ups.suppress_ineffective(waits(), ["node-0"], 2000.0).unplaced
    assert told.message == (
        "no rack; 2 scale-ups added no usable capacity for it, so it requests no more nodes."
    )


def test_nodes_that_come_one_after_the_other_are_one_scale_up(scale_ups):
    for number in range(1, 10):
        assert stage_after(scale_ups, waits(), number, 10.0 * number) is Stage.TOPOLOGY
    assert stage_after(scale_ups, waits(), 9, 1000.0) is Stage.TOPOLOGY
    assert scale_up(scale_ups, waits(), 10, 2000.0) is Stage.SCALE_UP_INEFFECTIVE


def test_a_gang_that_finds_more_capacity_calls_on(scale_ups):
    scale_up(scale_ups, waits(), 2, 0.0)
    assert scale_up(scale_ups, waits(found=4), 3, 1000.0) is Stage.TOPOLOGY
    assert scale_up(scale_ups, waits(found=4), 4, 2000.0) is Stage.SCALE_UP_INEFFECTIVE


def test_a_gang_that_asks_for_something_else_calls_again(scale_ups):
    scale_up(scale_ups, waits(), 2, 0.0)
    assert scale_up(scale_ups, waits(), 3, 1000.0) is Stage.SCALE_UP_INEFFECTIVE
    assert stage_after(scale_ups, waits(needed=4), 3, 1500.0) is Stage.TOPOLOGY


def test_a_gang_that_came_during_a_scale_up_is_not_counted_in(scale_ups):
    scale_ups.suppress_ineffective(waits(needed=1), ["node-0"], 0.0)
    scale_ups.suppress_ineffective(waits(needed=1), ["node-0", "node-1"], 1.0)
    assert stage_after(scale_ups, waits(), 2, 2.0) is Stage.TOPOLOGY
    assert stage_after(scale_ups, waits(), 2, 301.0) is Stage.TOPOLOGY
    assert scale_up(scale_ups, waits(), 3, 1000.0) is Stage.TOPOLOGY
    assert scale_up(scale_ups, waits(), 4, 2000.0) is Stage.SCALE_UP_INEFFECTIVE


def test_a_gang_that_waits_for_its_queue_does_not_call(scale_ups):
    for number in range(1, 6):
        now = 1000.0 * number
        assert stage_after(scale_ups, waits(Stage.QUEUE_MAX), number, now) is Stage.QUEUE_MAX
