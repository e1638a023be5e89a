"""Semi-preemptible gangs: the core is guaranteed and safe, the surplus is lent and given back."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kai_py.plan.plan import Action, Stage
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.examples import examples
from tests.support.records import replace
from tests.support.scenario import cluster, evicted, job, node, placed, pod, queue
from tests.support.worlds import World, at_node, gang, replayed, subgroup, world

KEY = "scheduling.kai.io/preemptibility"
TWO = (
    QueueInfo(name="mine", deserved={"gpu": 2.0}),
    QueueInfo(name="yours", deserved={"gpu": 2.0}),
)


def test_the_core_must_be_deserved_and_the_surplus_need_not():
    core_fits = gang("g", nodes="----", floor=2, queue="mine", semi=True)
    assert len(placed(world({"n": 4}, core_fits, queues=TWO).plan())) == 4
    too_large = replace(core_fits, tree=subgroup("", 3))
    plan = world({"n": 4}, too_large, queues=TWO).plan()
    assert placed(plan) == {}
    assert plan.unplaced[0].stage is Stage.NON_PREEMPTIBLE


def test_what_runs_of_the_core_counts_against_the_guarantee():
    runs = gang("runs", nodes="nn", floor=1, queue="mine", semi=True)
    fixed = gang("fixed", nodes="--", queue="mine", preemptible=False)
    plan = world({"n": 4}, runs, fixed, queues=TWO).plan()
    assert placed(plan) == {}
    one = gang("one", nodes="-", queue="mine", preemptible=False)
    assert placed(world({"n": 4}, runs, one, queues=TWO).plan()) == {"one-0": "n"}


def test_others_get_the_surplus_and_never_the_core():
    borrower = gang("b", nodes="nnnn", floor=2, queue="mine", semi=True)
    asks = [gang(f"y{i}", nodes="-", queue="yours", created=5 + i) for i in range(4)]
    plan = world({"n": 4}, borrower, *asks, queues=TWO).plan()
    assert sorted(evicted(plan)) == ["b-2", "b-3"]
    assert {each.action for each in plan.evictions} == {Action.RECLAIM}


def test_priority_does_not_take_the_core_either():
    low = gang("low", nodes="nn", floor=1, queue="mine", semi=True)
    high = [gang(f"h{i}", nodes="-", queue="mine", priority=9, created=i) for i in range(2)]
    assert evicted(world({"n": 2}, low, *high, queues=TWO).plan()) == ["low-1"]


def test_the_core_is_not_moved_either():
    low = gang("low", nodes="a", queue="mine", semi=True)
    big = gang("big", nodes="-", gpus=2, queue="yours", created=9)
    nodes = {"a": 2, "b": 1}
    assert evicted(world(nodes, low, big, queues=TWO).plan()) == []
    moved = replace(low, semi_preemptible=False)
    assert evicted(world(nodes, moved, big, queues=TWO).plan()) == ["low-0"]


def test_each_leaf_has_its_core():
    tree = subgroup("", children=[subgroup("a", 1), subgroup("b", 1)])
    both = gang("g", nodes="nnnn", leaves="aabb", tree=tree, queue="mine", semi=True)
    assert both.non_preemptible["gpu"] == 2
    asks = [gang(f"y{i}", nodes="-", queue="yours", created=5 + i) for i in range(4)]
    plan = world({"n": 4}, both, *asks, queues=TWO).plan()
    assert sorted(evicted(plan)) == ["g-1", "g-3"]


def test_subgroups_that_are_not_needed_are_no_core():
    tree = subgroup("", needs=1, children=[subgroup("a", 2), subgroup("b", 2)])
    pair = gang("g", nodes="----", leaves="aabb", tree=tree, queue="mine", semi=True)
    assert len(placed(world({"n": 4}, pair, queues=TWO).plan())) == 4
    runs = gang("g", nodes="nnnn", leaves="aabb", tree=tree, queue="mine", semi=True)
    assert runs.non_preemptible["gpu"] == 2
    asks = [gang(f"y{i}", nodes="-", queue="yours", created=5 + i) for i in range(4)]
    plan = world({"n": 4}, runs, *asks, queues=TWO).plan()
    assert sorted(evicted(plan)) == ["g-2", "g-3"]
    # The subgroup that runs is the core, whatever its name.
    second = gang("g", nodes="--nn", leaves="aabb", tree=tree, queue="mine", semi=True)
    assert [second.is_non_preemptible(m) for m in second.members] == [False] * 2 + [True] * 2


def members(preemptibility):
    marks = {KEY: preemptibility, "scheduling.kai.io/min-available": "1"}
    owner = job("train", 3, "team", **marks)
    return [owner, *(pod(f"train-{i}", owner=owner) for i in range(3))]


def test_users_ask_for_it_by_annotation():
    world = cluster(node("n", 8), queue("team", 1), *members("semi-preemptible"))
    assert len(placed(world.plan())) == 3
    world = cluster(node("n", 8), queue("team", 1), *members("non-preemptible"))
    assert len(placed(world.plan())) == 1
    told = cluster(node("n", 8), queue("team", 1), *members("half")).plan().unplaced[0]
    assert told.stage is Stage.INVALID
    assert f"{KEY} must be one of preemptible, semi-preemptible" in told.message


@st.composite
def trees(draw):
    """Two subgroups, of which one may be enough."""
    leaves = [subgroup(name, draw(st.integers(1, 2))) for name in "ab"]
    return subgroup("", needs=draw(st.sampled_from([None, 1])), children=leaves)


@st.composite
def worlds(draw):
    """Semi-preemptible gangs of both queues, some running, on two nodes."""
    free, gangs = {"a": 5, "b": 5}, []
    for i in range(draw(st.integers(2, 7))):
        pods = draw(st.integers(1, 4))
        nested = draw(st.booleans())
        leaves = "".join(sorted(draw(st.text("ab", min_size=pods, max_size=pods))))
        made = gang(
            f"g{i}",
            pods=pods,
            floor=draw(st.integers(0, pods)),
            leaves=leaves if nested else "",
            tree=draw(trees()) if nested else None,
            queue=draw(st.sampled_from(["mine", "yours"])),
            priority=draw(st.integers(0, 1)),
            created=i,
            semi=draw(st.integers(0, 3)) > 0,
        )
        at = draw(st.sampled_from(["", "a", "b"]))
        if at and free[at] >= pods:
            free[at] -= pods
            made = replace(made, members=tuple(at_node(m, at) for m in made.members))
        gangs.append(made)
    deserved = [{"gpu": float(draw(st.integers(0, 5)))} for _ in range(2)]
    queues = tuple(
        QueueInfo(name=name, deserved=each)
        for name, each in zip(("mine", "yours"), deserved, strict=True)
    )
    return World({"a": 5, "b": 5}, tuple(gangs), queues)


@settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds())
def test_cores_stay_whole_and_within_what_is_deserved(world):
    after = replayed(world, world.plan())
    for before, now in zip(world.gangs, after.gangs, strict=True):
        if before.semi_preemptible and before.is_satisfied:
            assert now.is_satisfied, before.key
    for spec in world.queues:
        held = [
            sum(g.non_preemptible.get("gpu", 0.0) for g in each.gangs if g.queue == spec.name)
            for each in (world, after)
        ]
        assert held[1] <= max(spec.deserved["gpu"], held[0])


@pytest.mark.parametrize("action", [Action.PREEMPT, Action.RECLAIM])
def test_a_gang_of_cores_only_is_as_safe_as_a_non_preemptible_one(action):
    runs = gang("runs", nodes="nn", queue="mine", semi=True)
    asks = gang(
        "asks", nodes="-", queue="mine" if action is Action.PREEMPT else "yours", priority=9
    )
    assert evicted(world({"n": 2}, runs, asks, queues=TWO, actions=(action,)).plan()) == []
