"""Inside a queue no more gangs and pods leave for another one than there have to."""

from itertools import combinations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kai_py.plan.plan import Action
from kai_py.policy.fairness_rules import KAI, NATIVE, VictimPreference
from tests.plan.victims.test_device_victims import hardware, high, holder, sharers
from tests.support.examples import examples
from tests.support.records import replace
from tests.support.scenario import cluster, evicted, queue
from tests.support.worlds import at_node, gang, kept_world, world

SETTINGS = settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)
YOUNGEST = replace(NATIVE, victim_preference=VictimPreference.YOUNGEST)
ACTIONS = (Action.ALLOCATE, Action.PREEMPT)


def singles(node, *gpus, created=0.0, priority=0):
    """Gangs of one pod each on a node, of these sizes."""
    return [
        gang(f"{node}{i}", nodes=node, gpus=size, created=created, priority=priority)
        for i, size in enumerate(gpus)
    ]


def urgent(gpus, pods=1):
    return gang("urgent", pods=pods, gpus=gpus, priority=5, created=99)


def test_three_pods_leave_rather_than_eight_younger_ones():
    small, large = singles("a", *[1] * 8, created=10), singles("b", 4, 2, 2, created=1)
    before = world({"a": 8, "b": 8}, *small, *large, urgent(8))
    assert evicted(before.plan()) == ["b0-0", "b1-0", "b2-0"]
    for rules in (KAI, YOUNGEST):
        assert len(evicted(kept_world(before, rules=rules).plan())) == 8


def test_priority_comes_before_numbers():
    small, large = singles("a", *[1] * 8), singles("b", 8, priority=1)
    assert len(evicted(world({"a": 8, "b": 8}, *small, *large, urgent(8)).plan())) == 8


def test_gangs_come_before_pods():
    one_gang = gang("low", nodes="aaaa", created=1)
    others = singles("b", 2, 2, created=9)
    plan = world({"a": 4, "b": 4}, one_gang, *others, urgent(4)).plan()
    assert evicted(plan) == ["low-0", "low-1", "low-2", "low-3"]


def test_surplus_breaks_no_gang():
    elastic = gang("low", nodes="aaaaa", floor=1, created=1)
    plan = world({"a": 5, "b": 4}, elastic, *singles("b", 4, created=9), urgent(4)).plan()
    assert evicted(plan) == ["low-1", "low-2", "low-3", "low-4"]


def test_a_core_takes_its_surplus_along_wherever_that_runs():
    """``low`` would lose three pods for the two that are in the way."""
    low = gang("low", nodes="abbc", floor=3, created=1)
    plan = world(
        {"a": 1, "b": 2, "c": 1, "d": 2}, low, *singles("d", 1, 1, created=9), urgent(2)
    ).plan()
    assert evicted(plan) == ["low-0", "low-1", "low-2", "low-3"]


def test_the_copies_of_a_gang_are_won_where_each_costs_least():
    small, large = singles("a", *[1] * 8, created=10), singles("b", 4, 1, 1, 1, 1, created=1)
    others = singles("c", 2, 2, 2, 2, created=5)
    before = world({"a": 8, "b": 8, "c": 8}, *small, *large, *others, urgent(4, pods=2))
    assert [name[0] for name in evicted(before.plan())] == ["b", "c", "c"]


def test_where_not_all_are_looked_at_the_youngest_leave_as_ever(monkeypatch):
    monkeypatch.setattr("kai_py.plan.victims.reduction.MAX_UNITS", 8)
    small, large = singles("a", *[1] * 8, created=10), singles("b", 4, 2, 2, created=1)
    assert len(evicted(world({"a": 8, "b": 8}, *small, *large, urgent(8)).plan())) == 8


def test_a_device_is_won_from_one_pod_rather_than_from_two_that_share_it():
    def evicts(rules):
        running = *sharers("s0", "s1"), *holder("old", 0, on="n1")
        world = cluster(*hardware(1, 1), queue("team", 8), *running, high(), rules=rules)
        return evicted(world.plan())

    assert evicts(YOUNGEST) == ["s0", "s1"]
    assert evicts(NATIVE) == ["old"]


@st.composite
def full_nodes(draw, floors):
    """Nodes full of running gangs and one pod that wants capacity; all in one queue."""
    nodes = {name: draw(st.integers(1, 6)) for name in "abc"[: draw(st.integers(1, 3))]}
    free, gangs = dict(nodes), []
    while any(free.values()) and len(gangs) < 9:
        name = next(each for each in nodes if free[each])
        size = draw(st.integers(1, min(3, free[name])))
        pods = draw(st.integers(1, min(floors, free[name] // size)))
        free[name] -= size * pods
        made = gang(
            f"run{len(gangs)}",
            nodes=name * pods,
            gpus=size,
            floor=draw(st.integers(0, pods)) if floors > 1 else 1,
            priority=draw(st.integers(0, 2)),
            created=draw(st.integers(0, 5)),
        )
        gangs.append(_scattered(draw, made, nodes, free) if floors > 1 else made)
    wants = urgent(draw(st.integers(1, 6)), draw(st.integers(1, 2)) if floors > 1 else 1)
    return world(nodes, *gangs, wants, actions=ACTIONS)


def _scattered(draw, made, nodes, free):
    """The gang, with its last pod on another node where there is capacity for it."""
    last, size = made.members[-1], int(made.members[-1].charge["gpu"])
    others = [name for name in nodes if free[name] >= size]
    if not others or draw(st.booleans()):
        return made
    other = draw(st.sampled_from(others))
    free[other] -= size
    free[last.node] += size
    return replace(made, members=(*made.members[:-1], at_node(last, other)))


def cost(before, leaving):
    """The highest priority, then gangs below their floor, then pods."""
    gangs = [(each, sum(m.pod.uid in leaving for m in each.members)) for each in before.gangs]
    hit = [(each, lost) for each, lost in gangs if lost]
    ended = sum(len(each.members) - lost < each.tree.min_members for each, lost in hit)
    return max((each.priority for each, _ in hit), default=-1), ended, len(leaving)


@pytest.mark.slow
@SETTINGS
@given(full_nodes(floors=1))
def test_of_gangs_of_one_pod_no_fewer_could_free_capacity_on_a_node(before):
    """Against all sets of pods of each node."""
    wants, running = before.gangs[-1], before.gangs[:-1]
    gpus = int(wants.members[0].charge["gpu"])
    ways = [
        cost(before, {each.members[0].pod.uid for each in chosen})
        for name, size in before.nodes.items()
        for there in [[each for each in running if each.members[0].node == name]]
        for count in range(len(there) + 1)
        for chosen in combinations(there, count)
        if size - sum(_gpus(each) for each in there) + sum(map(_gpus, chosen)) >= gpus
    ]
    plan = before.plan()
    assert bool(plan.nominations or plan.placements) == bool(ways)
    if ways:
        assert cost(before, {each.pod.uid for each in plan.evictions}) == min(ways)


def _gpus(each):
    return int(each.members[0].charge["gpu"])


@pytest.mark.slow
@SETTINGS
@given(full_nodes(floors=3))
def test_never_more_is_lost_than_by_age(before):
    found, by_age = before.plan(), kept_world(before, rules=YOUNGEST).plan()
    assert bool(found.nominations) == bool(by_age.nominations)
    lost, lost_by_age = (
        cost(before, {each.pod.uid for each in plan.evictions}) for plan in (found, by_age)
    )
    assert lost <= lost_by_age
    assert lost[0] == lost_by_age[0]
