"""An elastic pod that fits nowhere keeps no other one from starting that does not need it."""

import pytest

from kai_py.grouping.gang import TopologyConstraint
from kai_py.plan.plan import Plan, Stage
from kai_py.policy.fairness_rules import KAI, NATIVE
from kai_py.snapshot.gangs import PodState
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.records import replace
from tests.support.scenario import nominated
from tests.support.worlds import gang, member, subgroup, world

LEAVES = subgroup("", children=(subgroup("a"), subgroup("b"), subgroup("c", 1)))


def started(plan: Plan) -> set[str]:
    return {each.pod.name for gang in plan.placements for each in gang.pods}


def grown(*pods: tuple[str, int, int], tree=LEAVES):
    """A gang of pods with their subgroups, GPUs and orders."""
    members = tuple(
        replace(member(f"{leaf}{i}", gpus, "", leaf), order=order)
        for i, (leaf, gpus, order) in enumerate(pods)
    )
    return replace(gang("g", tree=tree), members=members)


@pytest.mark.parametrize("rules", [NATIVE, KAI])
def test_pods_of_another_subgroup_start(rules):
    pods = grown(("a", 4, 0), ("a", 4, 0), ("b", 1, 0), ("b", 1, 0), ("b", 1, 0), ("c", 1, 0))
    full = gang("other", node="m", pods=4)
    plan = world({"n": 3, "m": 4}, full, pods, rules=rules).plan()
    assert started(plan) == {"b2", "b3", "c5"}
    [left] = plan.unplaced
    assert left.stage is Stage.RESOURCES
    assert "nvidia.com/gpu (4 requested" in left.message, "the reason is that of the first pod"
    assert {pod.name for pod in left.pods} == {"a0", "a1", "b4"}


def test_smaller_pods_of_the_subgroup_start():
    pods = grown(("a", 1, 0), ("a", 2, 0), ("a", 1, 0), tree=subgroup("a", 1))
    assert started(world({"n": 2}, pods).plan()) == {"a0", "a2"}


def test_pods_that_are_to_start_after_it_wait():
    tree = subgroup("", children=(subgroup("a", 1), subgroup("b")))
    pods = grown(("a", 1, 0), ("a", 3, 1), ("a", 1, 2), ("b", 1, 2), tree=tree)
    assert started(world({"n": 3}, pods).plan()) == {"a0", "b3"}


def test_cheaper_pods_start_where_the_queue_has_reached_its_limit():
    pods = grown(("a", 2, 0), ("b", 1, 0), ("c", 1, 0))
    team = QueueInfo(name="team", deserved={"gpu": 2.0, "cpu": 64000.0}, max={"gpu": 2.0})
    plan = world({"n": 8}, pods, queues=[team]).plan()
    assert started(plan) == {"b1", "c2"}
    [left] = plan.unplaced
    assert left.stage is Stage.QUEUE_MAX


def test_an_optional_subgroup_gives_way_to_the_next():
    tree = subgroup("", needs=1, children=[subgroup(name, 2) for name in "abc"])
    pods = grown(*[("a", 1, 0)] * 2, *[("b", 2, 0)] * 2, *[("c", 1, 0)] * 2, tree=tree)
    assert started(world({"n": 4, "m": 1}, pods).plan()) == {"a0", "a1", "c4", "c5"}


@pytest.mark.parametrize("rules", [NATIVE, KAI])
def test_a_pod_within_the_fair_share_reclaims_where_the_first_would_exceed_it(rules):
    members = (member("g0", 1, "n"), member("g1", 3, ""), member("g2", 1, ""))
    grows = replace(gang("g", queue="a", tree=subgroup("", 1)), members=members)
    others = [gang(f"o{i}", node="n", pods=1, queue="b") for i in range(3)]
    queues = [QueueInfo(name=each, deserved={"gpu": 2.0, "cpu": 64000.0}) for each in "ab"]
    plan = world({"n": 4}, grows, *others, queues=queues, rules=rules).plan()
    assert nominated(plan) == {"g2": "n"}
    assert len(plan.evictions) == 1
    [left] = plan.unplaced
    assert "3 requested" in left.message


@pytest.mark.parametrize("rules", [NATIVE, KAI])
@pytest.mark.parametrize("level", [None, "kubernetes.io/hostname"])
def test_a_smaller_pod_preempts_where_too_few_can_be_evicted_for_the_first(rules, level):
    sizes = (1, "n"), (4, ""), (1, "")
    members = tuple(member(f"g{i}", *each, priority=10) for i, each in enumerate(sizes))
    tree = subgroup("", 1)
    if level:
        tree = replace(tree, topology=TopologyConstraint(preferred_level=level))
    grows = replace(gang("g", tree=tree, priority=10), members=members)
    others = [gang(f"o{i}", node="n", pods=1) for i in range(3)]
    plan = world({"n": 4, "m": 4}, grows, *others, gang("p", node="m", pods=4, priority=20)).plan()
    assert nominated(plan) == {"g2": "n"}
    assert len(plan.evictions) == 1


def test_a_pod_that_is_to_start_later_evicts_none_while_an_earlier_one_waits():
    sizes = (1, "n"), (4, ""), (1, "")
    members = tuple(
        replace(member(f"g{i}", *each, priority=10), order=i) for i, each in enumerate(sizes)
    )
    grows = replace(gang("g", tree=subgroup("", 1), priority=10), members=members)
    others = [gang(f"o{i}", node="n", pods=1) for i in range(3)]
    high = gang("p", node="m", pods=4, priority=20)
    assert not world({"n": 4, "m": 4}, grows, *others, high).plan().evictions


def test_pods_above_minimum_do_not_start_before_those_that_wait_for_terminating_pods():
    grows, old = gang("g", pods=3, floor=2), gang("old", node="n", pods=3)
    leaving = [replace(each, state=PodState.RELEASING) for each in old.members]
    plan = world({"n": 4}, grows, replace(old, members=tuple(leaving))).plan()
    assert started(plan) == set()
    assert nominated(plan) == dict.fromkeys(("g-0", "g-1", "g-2"), "n")
    left = replace(old, members=tuple(leaving[1:]))
    plan = world({"n": 4}, grows, left).plan()
    assert len(started(plan)) == 2, "both that minMember needs fit beside those that are left"
    assert len(nominated(plan)) == 1


def test_pods_of_an_optional_subgroup_do_not_start_before_those_of_a_required_one():
    tree = subgroup("", children=(subgroup("x", 1), subgroup("y", 0)))
    both = replace(gang("g", tree=tree), members=(member("x", 4, "", "x"), member("y", 1, "", "y")))
    old = gang("old", node="n", pods=1)
    leaving = replace(old, members=(replace(old.members[0], state=PodState.RELEASING),))
    plan = world({"n": 4, "m": 1}, both, leaving).plan()
    assert started(plan) == set()
    assert nominated(plan) == {"x": "n", "y": "m"}
    assert started(world({"n": 4, "m": 1}, both).plan()) == {"x", "y"}


def test_the_reason_says_once_how_many_others_fit_and_of_no_other_gang():
    grows, single = gang("g", pods=3, floor=1, priority=10), gang("single", pods=1)
    plan = world({"n": 2}, grows, single).plan()
    told = {each.gang: each.message.count("of the gang would fit") for each in plan.unplaced}
    assert told == {grows.key: 1, single.key: 0}
