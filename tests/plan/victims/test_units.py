"""Elastic pods leave before minMember sets, and subgroups leave whole."""

import pytest

from kai_py.plan.victims.units import VictimUnit, keeping_protected
from kai_py.policy.fairness_rules import NATIVE, BypassPolicy
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.records import replace
from tests.support.scenario import evicted, nominated
from tests.support.worlds import gang, subgroup, world

WHO_FITS = replace(NATIVE, bypass_policy=BypassPolicy.BYPASS_FIRST)


def test_surplus_leaves_before_any_core():
    plan = world(
        {"a": 4},
        gang("old", node="a", pods=2, floor=1, created=0),
        gang("new", node="a", pods=2, floor=2, created=9),
        gang("urgent", pods=1, priority=10),
    ).plan()
    assert evicted(plan) == ["old-1"]


def test_surplus_suffices_where_the_rest_of_a_node_is_free():
    plan = world(
        {"a": 4, "b": 4},
        gang("low", nodes="aaaabb", floor=4),
        gang("urgent", pods=1, gpus=4, priority=10),
    ).plan()
    assert evicted(plan) == ["low-4", "low-5"], "two surplus pods and the free half of b suffice"


def test_a_core_takes_its_surplus_with_it():
    plan = world(
        {"a": 4, "b": 4},
        gang("low", nodes="aaaabb", floor=4),
        gang("urgent", pods=2, gpus=4, priority=10),
    ).plan()
    assert len(evicted(plan)) == 6


def test_a_core_stays_where_other_pods_can_be_the_surplus():
    """The last pod of ``low`` would be its surplus, but is not in the way."""
    plan = world(
        {"a": 2, "b": 1},
        gang("low", nodes="ab", floor=1),
        gang("other", nodes="a", priority=3),
        gang("urgent", pods=1, gpus=2, priority=10),
    ).plan()
    assert evicted(plan) == ["low-0", "other-0"]


def test_a_gang_that_is_safe_gives_the_pods_in_the_way_as_its_surplus():
    def evicts(*others, floor, runtime):
        safe = QueueInfo(name="team", deserved={"gpu": 9.0}, preempt_min_runtime=runtime)
        low = gang("low", nodes="ab", floor=floor)
        urgent = gang("urgent", pods=1, gpus=2, priority=10)
        return evicted(world({"a": 2, "b": 1}, low, *others, urgent, queues=(safe,)).plan())

    other = gang("other", nodes="a", floor=0, priority=3)
    assert evicts(other, floor=1, runtime=1e9) == ["low-0", "other-0"]
    assert evicts(other, floor=2, runtime=1e9) == [], "without surplus it keeps all"
    assert evicts(other, floor=2, runtime=1.0) == ["low-0", "low-1", "other-0"]
    alone = gang("other", nodes="a", priority=3)
    assert evicts(alone, floor=1, runtime=1e9) == [], "the other one has none to give"


def test_the_surplus_of_one_leaf_is_not_that_of_another():
    tree = subgroup("", children=[subgroup("x", 1), subgroup("y", 1)])
    plan = world(
        {"a": 2, "b": 1},
        gang("low", nodes="aab", leaves="xyy", tree=tree),
        gang("urgent", pods=1, gpus=2, priority=10),
    ).plan()
    assert len(evicted(plan)) == 3, "x has no surplus, so all of it leaves"


def test_an_optional_subgroup_leaves_whole_and_the_others_stay():
    tree = subgroup("", needs=1, children=[subgroup("x", 2), subgroup("y", 2)])
    plan = world(
        {"a": 4},
        gang("low", nodes="aaaa", leaves="xxyy", tree=tree),
        gang("urgent", pods=1, gpus=1, priority=10),
    ).plan()
    assert evicted(plan) in (["low-0", "low-1"], ["low-2", "low-3"])


def test_a_pod_that_is_only_being_started_replaces_no_running_one():
    """Otherwise the gang would run below its floor until that pod is up."""
    before = world(
        {"a": 1, "b": 3},
        gang("low", nodes="bb-", floor=2),
        gang("urgent", pods=1, gpus=2, priority=10, created=9),
        rules=WHO_FITS,
    )
    plan = before.plan()
    assert [p.pod.name for g in plan.placements for p in g.pods] == ["low-2"]
    assert evicted(plan) == []


def test_a_subgroup_that_is_only_being_started_replaces_no_running_one():
    tree = subgroup("", needs=1, children=[subgroup("x", 2), subgroup("y", 2)])
    before = world(
        {"a": 2, "b": 3},
        gang("low", nodes="bba-", leaves="xxyy", tree=tree),
        gang("urgent", pods=1, gpus=3, priority=10, created=9),
    )
    plan = before.plan()
    assert [p.pod.name for g in plan.placements for p in g.pods] == ["low-3"]
    assert evicted(plan) == []


def test_a_subgroup_gives_its_surplus_while_another_is_being_started():
    tree = subgroup("", children=[subgroup("x", 1), subgroup("y", 1)])
    plan = world(
        {"a": 4},
        gang("low", nodes="aaa-", leaves="xxxy", tree=tree),
        gang("urgent", pods=1, gpus=2, priority=10, created=9),
        rules=WHO_FITS,
    ).plan()
    assert [p.pod.name for g in plan.placements for p in g.pods] == ["low-3"]
    assert evicted(plan) == ["low-1", "low-2"]


def test_a_gang_with_optional_subgroups_can_take_capacity():
    """W1: one of two subgroups is enough, and the search must accept it."""
    tree = subgroup("", needs=1, children=[subgroup("x", 1), subgroup("y", 1)])
    plan = world(
        {"a": 2},
        gang("low", nodes="aa", floor=0),
        gang("urgent", pods=2, leaves="xy", tree=tree, priority=10, gpus=2),
    ).plan()
    assert evicted(plan) == ["low-0", "low-1"]
    assert nominated(plan) == {"urgent-0": "a"}


LEAVES = gang("leaves", nodes="nnnn", leaves="aabb", tree=subgroup("", needs=2))


def unit(pods, below=()):
    return VictimUnit(LEAVES, tuple(LEAVES.members[n] for n in pods), below)


@pytest.mark.parametrize(
    ("units", "evicted_before", "is_partial"),
    [
        ([unit([0])], (), False),
        ([unit([1]), unit([0], ("a",))], (), False),
        ([unit([0], ("a",))], (), True),
        ([unit([0], ("a",))], (1,), False),
        ([unit([0], ("a",))], (2, 3), True),
        ([unit([0, 1], ("a",))], (), False),
        ([unit([2, 3], ("b",)), unit([0], ("a",))], (), True),
        ([unit([0, 1, 2, 3], ("a", "b"))], (), False),
    ],
)
def test_pods_that_stay_keep_the_minimum_of_their_leaf(units, evicted_before, is_partial):
    evicted_before = [LEAVES.members[n].pod.uid for n in evicted_before]
    *_, last = keeping_protected(units, evicted_before)
    assert last.is_partial is is_partial
