"""Thousands of pods of as many sizes that cannot be served cost few searches for victims."""

from unittest.mock import Mock, patch

import pytest

from kai_py.plan.search_cache.failed_shapes import MAX_FAILED_SHAPES, FailedShapes
from kai_py.plan.victims import action
from kai_py.plan.victims.eligible import EligibleGangs
from kai_py.plan.victims.search import VictimSearch
from kai_py.plan.victims.solver import VictimSolver
from kai_py.snapshot.shape import Shape
from tests.support.scenario import cluster, job, node, pod, queue


def searches(world):
    """The plan, and the names of the pods for which victims were searched."""
    searched, original = [], VictimSearch.run

    def run(search, candidates):
        searched.append(search.strategy.request.members[0].pod.name)
        return original(search, candidates)

    with patch.object(VictimSearch, "run", run):
        return world.plan(100.0), searched


def sizes(amounts, **options):
    return [
        pod(
            f"p{i:02d}",
            queue="waits",
            created=i,
            requests={"nvidia.com/gpu": "1", **({"cpu": str(cpu)} if cpu else {})},
            **options,
        )
        for i, cpu in enumerate(amounts)
    ]


def full(pods, *, has=8, waits=1):
    """All GPUs are in use, and the queue that waits may reclaim ``waits`` of them."""
    running = [pod(f"runs{i}", queue="has", node=f"n{i % 4}", created=-9999) for i in range(8)]
    queues = queue("has", has - waits), queue("waits", waits)
    return cluster(*queues, [node(f"n{i}", 2) for i in range(4)], running, pods)


def test_what_is_refused_to_one_is_not_searched_for_larger_ones():
    plan, searched = searches(full(sizes(range(2, 32)), waits=0))
    assert not plan.evictions
    assert len(plan.unplaced) == 30
    assert len(set(searched)) <= 1


def test_no_gang_is_put_in_order_where_no_queue_may_reclaim_or_preempt():
    expected = repr(full(sizes(range(2, 32)), waits=0).plan(100.0))
    with patch.object(action, "GangQueue", Mock(side_effect=AssertionError("in order"))):
        plan = full(sizes(range(2, 32)), waits=0).plan(100.0)
    assert repr(plan) == expected
    assert not plan.set_aside
    assert len(plan.unplaced) == 30


def test_turns_end_once_every_gang_left_is_known_to_find_no_victims():
    agents = [
        pod(f"agent{i}", 0, node=f"n{i}", scheduler_name="other", requests={"cpu": "56"})
        for i in range(4)
    ]
    asked = {"nvidia.com/gpu": "1", "cpu": "20"}
    high = pod("high", queue="has", priority=1, requests=asked)

    def world():
        return full([*sizes(range(2, 32)), *agents, high], waits=0)

    tried, original = list[str](), VictimSolver.solve

    def solve(solver, strategy, *variant):
        tried.append(strategy.gang.owner.name)
        return original(solver, strategy, *variant)

    with patch.object(VictimSolver, "solve", solve):
        plan = world().plan(100.0)
    assert tried == ["high"]
    assert len(plan.unplaced) == 31
    with patch.object(EligibleGangs, "__bool__", lambda _: True):
        assert repr(world().plan(100.0)) == repr(plan)


def test_a_smaller_one_is_searched_for():
    """A node has 64 CPUs, of which the DaemonSet's pod leaves 8."""
    agents = [
        pod(f"agent{i}", 0, node=f"n{i}", scheduler_name="other", requests={"cpu": "56"})
        for i in range(4)
    ]
    plan, searched = searches(full([*sizes([20, 30, 4]), *agents]))
    assert [each.preemptor for each in plan.evictions] == ["default/Pod/p02"]
    assert "p01" not in searched


def test_pods_of_a_queue_that_may_lose_none_are_tried_once():
    """The share of ``has`` is all it has allocated, so that each single victim is refused."""
    tried, original = [], VictimSearch._try_victims

    def record(search, units):
        tried.append(units)
        return original(search, units)

    with patch.object(VictimSearch, "_try_victims", record):
        plan = full(sizes(range(2, 32)), waits=0).plan(100.0)
    assert not plan.evictions
    assert len(tried) <= 1


class Sizes:
    """Failures of single pods; a pod needs no less than another if its number is no smaller."""

    def __init__(self):
        self.failed = FailedShapes[str](lambda one, other: one.number >= other.number)

    def add(self, number, *, size=1, priority=0, kind="kind", **requests):
        made = Shape(number, requests or {"cpu": 1.0})
        self.failed.add(kind, (made,), f"failed {number}", size, priority)

    def find(self, number, *, size=1, priority=0, kind="kind", **requests):
        made = Shape(number, requests or {"cpu": 1.0})
        return self.failed.find(kind, (made,), size, priority)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"number": 5}, "failed 5"),
        ({"number": 6}, "failed 5"),
        ({"number": 4}, None),
        ({"number": 6, "size": 1}, None),
        ({"number": 6, "priority": 4}, None),
        ({"number": 6, "priority": 2}, "failed 5"),
        ({"number": 6, "kind": "other"}, None),
        ({"number": 6, "memory": 1.0}, None),
    ],
)
def test_a_failure_holds_for_what_needs_no_less(asked, found):
    known = Sizes()
    known.add(5, size=2, priority=3)
    assert known.find(**{"size": 2, "priority": 3} | asked) == found


def test_of_other_shapes_the_last_failures_are_compared():
    known = Sizes()
    for number in range(MAX_FAILED_SHAPES, -1, -1):
        known.add(100 + number)
    assert known.find(99) is None
    assert known.find(150) == "failed 100"
    known.failed.clear()
    assert known.find(100) is known.find(150) is None


def mixed(name, cpu, workers=3):
    """A Job of a launcher without GPUs and some workers with two each."""
    made = job(name, 1 + workers, "waits", **{"scheduling.kai.io/min-available": str(1 + workers)})
    launcher = pod(f"{name}-launcher", 0, owner=made, created=1)
    more = [
        pod(f"{name}-{i}", 2, owner=made, created=1, requests={"cpu": str(cpu)})
        for i in range(workers)
    ]
    return [made, launcher, *more]


@pytest.mark.parametrize(
    ("others", "searched"),
    [
        (mixed("b", 2), {"a"}),
        (mixed("b", 3), {"a"}),
        (mixed("b", 1), {"a", "b"}),
        (mixed("b", 2, workers=2), {"a", "b"}),
    ],
)
def test_of_gangs_with_pods_of_several_sizes_those_are_compared_that_have_as_many(others, searched):
    """On two of the four nodes, agents leave one CPU."""
    agents = [
        pod(f"agent{i}", 0, node=f"n{i}", scheduler_name="other", requests={"cpu": "63"})
        for i in range(2)
    ]
    plan, names = searches(full([*mixed("a", 2), *others, *agents], waits=6))
    assert {name.partition("-")[0] for name in names} == searched
    assert bool(plan.evictions) == ("b" in searched)
