"""Gangs that run below minMember are refilled, or evicted after their grace period."""

from tests.support.executed_plans import carry_out
from tests.support.scenario import (
    START,
    budget,
    cluster,
    evicted,
    job,
    moves,
    node,
    nominated,
    pod,
    queue,
)
from tests.support.worlds import gang, world

HOST_A = {"kubernetes.io/hostname": "a"}


def test_a_gang_below_its_floor_is_ended_after_its_grace():
    broken = gang("broken", nodes="aa", floor=3, stale_since=START)
    assert evicted(world({"a": 4}, broken).plan(now=59)) == []
    plan = world({"a": 4}, broken).plan(now=60)
    assert evicted(plan) == ["broken-0", "broken-1"]
    assert "below minMember for 60 s" in plan.evictions[0].reason


def test_a_gang_below_its_floor_is_refilled_rather_than_ended():
    broken = gang("broken", nodes="aa-", floor=3, stale_since=START)
    plan = world({"a": 4}, broken).plan(now=999)
    assert evicted(plan) == []
    assert [p.pod.name for g in plan.placements for p in g.pods] == ["broken-2"]


def test_no_victim_is_evicted_where_the_capacity_of_a_stale_gang_suffices():
    broken = gang("broken", nodes="aa", floor=3, priority=9, stale_since=START)
    low, high = gang("low", nodes="aa"), gang("high", nodes="--", priority=5)
    before = world({"a": 4}, broken, low, high).plan(now=59)
    assert evicted(before) == ["low-0", "low-1"]
    plan = world({"a": 4}, broken, low, high).plan(now=60)
    assert evicted(plan) == ["broken-0", "broken-1"]
    assert [(n.pod.name, n.node) for n in plan.nominations] == [("high-0", "a"), ("high-1", "a")]


def test_nothing_starts_on_what_an_earlier_gang_needs_beside_that_of_a_stale_one():
    broken = gang("broken", nodes="aa", floor=3, priority=9, stale_since=START)
    wide, late = gang("wide", nodes="----", priority=5), gang("late", nodes="-")
    plan = world({"a": 4}, broken, wide, late).plan(now=60)
    assert evicted(plan) == ["broken-0", "broken-1"]
    assert not plan.placements
    assert [n.pod.name for n in plan.nominations] == [f"wide-{i}" for i in range(4)]


def test_no_gang_waits_for_a_stale_one_that_a_budget_may_keep():
    owner = job("train", 3, "team")
    train = [
        pod(f"train-{i}", owner=owner, node="a", priority=9, labels={"app": "web"})
        for i in range(2)
    ]
    low, high = pod("low", 2, queue="team", node="a"), pod("high", 2, queue="team", priority=5)
    objects = node("a", 4), queue("team", 8), owner, train, low, high
    for budgets, victims in (((), {"train-0", "train-1"}), ((budget(0),), {"low"})):
        world = cluster(*objects, *budgets)
        world.plan(now=1000)
        assert victims <= {*evicted(world.plan(now=1060))}
        assert ("low" in evicted(world.plan(now=1060))) is bool(budgets)


def test_a_stale_gang_that_victims_complete_stays():
    broken = gang("broken", nodes="aa-", floor=3, priority=9, stale_since=START)
    plan = world({"a": 4}, broken, gang("low", nodes="aa"), gang("late", nodes="-")).plan(now=60)
    assert {pod.split("-")[0] for pod in evicted(plan)} == {"low"}
    assert "broken-2" in [n.pod.name for n in plan.nominations]


def short_gang(*more):
    owner = job("train", 3, "team")
    two = [pod(f"train-{i}", owner=owner, node="a") for i in range(2)]
    return cluster(node("a", 4), queue("team", 8), owner, two, *more)


def test_the_grace_runs_from_when_a_gang_was_first_seen_below_its_floor():
    world = short_gang()
    assert evicted(world.plan(now=1000)) == []
    assert evicted(world.plan(now=1059)) == []
    assert evicted(world.plan(now=1060)) == ["train-0", "train-1"]


def test_a_gang_that_was_refilled_has_its_whole_grace_again():
    world = short_gang()
    world.plan(now=1000)
    owner = job("train", 3, "team")
    third = pod("train-2", owner=owner, node="a")
    world.add(third)
    world.plan(now=1050)
    world.remove(third)
    assert evicted(world.plan(now=1070)) == []
    assert evicted(world.plan(now=1130)) == ["train-0", "train-1"]


def test_a_gang_with_pods_that_ended_well_is_not_short_of_them():
    done = pod("train-2", owner=job("train", 3, "team"), node="a", phase="Succeeded")
    world = short_gang(done)
    world.plan(now=1000)
    assert evicted(world.plan(now=2000)) == []
    world.remove(done)
    assert evicted(world.plan(now=3000)) == [], "deleting what has ended changes nothing"


def test_the_grace_starts_again_when_pods_are_relocated():
    """At once with the nomination that completes their gang, which therefore stays."""
    owner = job("train", 3, "team")
    train = [pod(f"train-{i}", owner=owner, node="a", created=0) for i in range(2)]
    world = cluster(node("a", 5), node("b", 1), queue("team", 8), owner, train)
    world.plan(now=1000)
    third = pod("train-2", owner=owner, created=900, node_selector=HOST_A)
    world.add(third, pod("big", 3, queue="team", priority=5, node_selector=HOST_A))
    plan = world.plan(now=1100)
    assert (moves(plan), nominated(plan)) == ({"train-0": "b"}, {"train-2": "a"})
    carry_out(world, plan)
    assert evicted(world.plan(now=1101)) == []
    assert evicted(world.plan(now=1159)) == []
    assert evicted(world.plan(now=1160)) == ["train-1"]
