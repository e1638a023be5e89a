"""Free capacity that a gang needs together with victims goes to no gang after it."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.api.records.node import HOSTNAME_LABEL
from kai_py.plan.actions import allocate_without_bypass
from kai_py.plan.actions.first_pass import FirstPass
from kai_py.plan.plan import Action, Stage
from kai_py.policy.fairness_rules import KAI, NATIVE, BypassPolicy
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.records import replace
from tests.support.scenario import cluster, evicted, node, placed, pod, queue
from tests.support.worlds import gang, replayed, world

WHO_FITS = replace(NATIVE, bypass_policy=BypassPolicy.BYPASS_FIRST)


def contested(low, **settings):
    """Half of a node is free; ``high`` wants all of it, and ``low`` comes after it."""
    return world(
        {"a": 8},
        gang("runs", nodes="a", gpus=4),
        gang("high", pods=1, gpus=8, priority=10, created=5),
        low,
        **settings,
    )


def test_the_first_gang_takes_free_capacity_and_victims_together():
    plan = contested(gang("low", pods=1, gpus=4, created=6)).plan()
    assert evicted(plan) == ["runs-0"]
    assert [each.pod.name for each in plan.nominations] == ["high-0"]
    assert placed(plan) == {}
    assert {each.gang: each.stage for each in plan.unplaced} == {
        "default/Gang/high": Stage.NOMINATED,
        "default/Gang/low": Stage.RESOURCES,
    }


def test_the_younger_of_two_alike_does_not_start_in_the_way_of_the_older():
    plan = contested(gang("young", pods=1, gpus=4, priority=10, created=6)).plan()
    assert [each.pod.name for each in plan.nominations] == ["high-0"]


def test_a_gang_that_loses_its_place_to_an_earlier_one_may_evict_at_its_turn():
    """Else ``low`` would start beside ``also``, and both be evicted for ``mid`` a cycle later."""
    plan = world(
        {"a": 8, "b": 4},
        gang("runs", nodes="a", gpus=4),
        gang("also", nodes="b", gpus=2),
        gang("high", pods=1, gpus=8, priority=10, created=5),
        gang("mid", pods=1, gpus=4, priority=5, created=6),
        gang("low", pods=1, gpus=2, created=7),
    ).plan()
    assert evicted(plan) == ["also-0", "runs-0"]
    assert {each.pod.name for each in plan.nominations} == {"high-0", "mid-0"}
    assert placed(plan) == {}


def test_a_gang_ahead_of_one_that_was_bypassed_evicts_before_it():
    """``low`` would take what ``wide`` needs; nothing that ``high`` needs is idle."""
    plan = world(
        {"a": 2, "b": 1},
        gang("runs", nodes="aa", floor=1),
        gang("high", pods=1, gpus=2, priority=10, created=5),
        gang("wide", pods=2, priority=5, created=6),
        gang("low", pods=1, created=7),
    ).plan()
    assert evicted(plan) == ["runs-0", "runs-1"]
    assert {each.pod.name for each in plan.nominations} == {"high-0"}


@pytest.mark.parametrize("rules", [KAI, WHO_FITS])
def test_by_other_rules_a_gang_that_fits_starts_and_is_evicted_a_cycle_later(rules):
    before = contested(gang("low", pods=1, gpus=4, created=6), rules=rules)
    plan = before.plan()
    assert placed(plan) == {"low-0": "a"}
    assert evicted(plan) == []
    assert evicted(replayed(before, plan).plan()) == ["low-0", "runs-0"]


def test_what_is_in_nobodys_way_starts_in_the_same_cycle():
    before = contested(gang("low", pods=1, created=6))
    plan = replace(before, nodes={"a": 8, "b": 5}).plan()
    assert [(each.pod.name, each.relocated_to) for each in plan.evictions] == [("runs-0", "b")]
    assert placed(plan) == {"low-0": "b"}


@pytest.mark.parametrize(("gpus", "passes"), [(0, 1), (1, 2)])
def test_what_only_takes_from_plenty_does_not_lead_to_a_second_pass(monkeypatch, gpus, passes):
    made, one_pass = [], allocate_without_bypass.allocate
    monkeypatch.setattr(
        allocate_without_bypass, "allocate", lambda *given: made.append(one_pass(*given))
    )
    plan = cluster(
        node("a"),
        queue("team", 8),
        pod("runs", 4, queue="team", node="a"),
        pod("high", 8, queue="team", priority=10),
        pod("low", gpus, queue="team", created=5),
    ).plan(1000.0)
    assert evicted(plan) == ["runs"]
    assert len(made) == passes


def with_late(last):
    """Many gangs come after ``low``, of which at most ``last`` fits anywhere once it is placed."""
    before = contested(gang("low", pods=1, gpus=4, created=6))
    late = [gang(f"late{i}", pods=1, gpus=4, priority=-1 - i) for i in range(40)]
    return replace(before, nodes={"a": 8, "b": 1}, gangs=(*before.gangs, *late, *last))


@pytest.mark.parametrize(("last", "turns"), [([], 16), ([gang("fits", pods=1, priority=-99)], 40)])
def test_the_first_pass_ends_once_no_gang_is_left_that_may_be_placed(monkeypatch, last, turns):
    before, failed, record = with_late(last), [], FirstPass.record

    def recorded(first_pass, each):
        failed.append(each.owner.name)
        record(first_pass, each)

    monkeypatch.setattr(FirstPass, "record", recorded)
    plan = before.plan()
    assert evicted(plan) == ["runs-0"]
    assert placed(plan) == {f"{each.owner.name}-0": "b" for each in last}
    assert failed == ["high", *[f"late{i}" for i in range(turns)]]
    monkeypatch.setattr(FirstPass, "ends", lambda _: False)
    assert repr(before.plan()) == repr(plan)


def test_a_gang_that_fits_starts_where_no_pod_may_be_evicted():
    held = replace(gang("runs", nodes="a", gpus=4), preemptible=False)
    before = contested(gang("low", pods=1, gpus=4, created=6))
    plan = replace(before, gangs=(held, *before.gangs[1:])).plan()
    assert placed(plan) == {"low-0": "a"}
    assert evicted(plan) == []


def test_reclaim_comes_before_borrowing():
    plan = cluster(
        node("a"),
        queue("team", 8),
        queue("other"),
        pod("runs", 4, queue="other", node="a"),
        pod("due", 8, queue="team"),
        pod("borrows", 4, queue="other"),
    ).plan(1000.0)
    assert evicted(plan) == ["runs"]
    assert placed(plan) == {}


def test_a_later_gang_does_not_use_up_a_limit_that_an_earlier_one_meets_with_victims():
    """Else ``small`` would start, and be evicted with ``runs`` a cycle later."""
    plan = cluster(
        node("a"),
        node("b"),
        queue("team", 8, maximum=10),
        pod("runs", 4, queue="team", node="a"),
        pod("due", 8, queue="team", priority=1, node_selector={HOSTNAME_LABEL: "a"}),
        pod("small", 3, queue="team", created=5, node_selector={HOSTNAME_LABEL: "b"}),
    ).plan(1000.0)
    assert evicted(plan) == ["runs"]
    assert [each.pod.name for each in plan.nominations] == ["due"]
    assert placed(plan) == {}


def test_a_later_gang_does_not_use_up_the_share_of_its_queue():
    plan = cluster(
        node("a"),
        node("b", 3),
        queue("team", 8),
        queue("other"),
        pod("runs", 4, queue="other", node="a"),
        pod("due", 8, queue="team", priority=1),
        pod("small", 3, queue="team", created=5),
    ).plan(1000.0)
    assert evicted(plan) == ["runs"]
    assert [each.pod.name for each in plan.nominations] == ["due"]
    assert placed(plan) == {"small": "b"}, "other idle capacity may be borrowed"


def test_a_later_gang_does_not_use_up_the_max_of_its_queue():
    capped = QueueInfo(name="team", deserved={"gpu": 8.0}, max={"gpu": 8.0})
    plan = world(
        {"a": 8, "b": 8},
        gang("runs", nodes="a", gpus=4),
        gang("high", pods=1, gpus=8, priority=10, created=5),
        gang("low", pods=1, gpus=4, created=6),
        queues=(capped,),
    ).plan()
    assert evicted(plan) == ["runs-0"]
    assert placed(plan) == {}


@st.composite
def worlds(draw):
    """Up to three nodes of eight GPUs with running gangs, and some that wait, in one queue."""
    nodes = dict.fromkeys("abc"[: draw(st.integers(1, 3))], 8)
    free, gangs = dict(nodes), []
    for number in range(draw(st.integers(0, 6))):
        name, gpus = draw(st.sampled_from(sorted(nodes))), draw(st.sampled_from([1, 2, 4]))
        if free[name] >= gpus:
            free[name] -= gpus
            priority = draw(st.integers(0, 3))
            gangs.append(gang(f"r{number}", nodes=name, gpus=gpus, priority=priority))
    waiting = [
        gang(
            f"w{number}",
            pods=draw(st.integers(1, 2)),
            gpus=draw(st.sampled_from([1, 2, 4, 8])),
            priority=draw(st.integers(0, 3)),
            created=draw(st.integers(0, 9)),
        )
        for number in range(draw(st.integers(1, 5)))
    ]
    return world(nodes, *gangs, *waiting, actions=(Action.ALLOCATE, Action.PREEMPT))


@given(worlds())
def test_no_pod_is_evicted_a_cycle_after_it_started(before):
    plan = before.plan()
    started = set(placed(plan))
    after = replayed(before, plan).plan()
    assert started.isdisjoint(evicted(after))


@given(worlds())
def test_whoever_is_alone_in_line_gets_what_it_would_get_first(before):
    """The first gang in line is served as if no other waited."""
    waiting = [each for each in before.gangs if each.pending]
    first = min(waiting, key=lambda each: (-each.priority, each.created, each.key))
    alone = replace(before, gangs=tuple(g for g in before.gangs if g.bound or g is first))

    def served(plan):
        promised = {each.pod.name for each in plan.nominations}
        return (promised | set(placed(plan))) & {member.pod.name for member in first.members}

    assert served(before.plan()) == served(alone.plan())


@pytest.mark.parametrize("waits", [False, True])
def test_gangs_that_wait_are_found_again_once_placements_are_undone(waits):
    state, started_over = contested(gang("low", pods=1, gpus=4, created=6)).session(), []
    turnover = SimpleNamespace(
        try_wait=lambda _gang: False, start_over=lambda: started_over.append(state.statement.placed)
    )
    gangs = [state.snapshot.gangs[key] for key in state.snapshot.pending]
    no_victims = [lambda _state, _gangs, _pool: None]
    allocate_without_bypass.allocate_without_bypass(
        state, gangs, turnover if waits else None, no_victims
    )
    assert len(started_over) == waits
    assert [each.member.pod.name for each in state.statement.placed.values()] == ["low-0"]
