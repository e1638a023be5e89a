"""Eviction limits: budgets, queues that lost enough pods, and pods that were just evicted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from kai_py.api.records.core import Condition
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.plan.cycle.deadlines import next_deadline
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.cycle.run import run_cycle
from kai_py.plan.plan import Action, Stage
from kai_py.plan.session.settings import CycleSettings
from kai_py.plan.state.assignment import Evicted
from kai_py.plan.state.eviction_history import MAX_RECORDS, EvictionHistory
from kai_py.plan.state.eviction_limits import REFUSED, EvictionLimits
from kai_py.plan.victims.units import VictimUnit
from kai_py.policy.lost_work import LossRules
from kai_py.snapshot.tables.budgets import DisruptionBudget
from kai_py.snapshot.tables.queues import EvictionRecord, QueueInfo
from tests.support.records import replace
from tests.support.scenario import START, budget, cluster, evicted, node, pod, queue
from tests.support.worlds import gang, world


def full_node(*more, protected: int = 4, **settings):
    """Four pods of low priority on four GPUs, the youngest of them protected."""
    return cluster(
        node("a", 4),
        queue("team", 8),
        [
            pod(
                f"low{i}",
                queue="team",
                node="a",
                created=i,
                labels={"app": "web"} if i >= 4 - protected else {},
            )
            for i in range(4)
        ],
        *more,
        **settings,
    )


def urgent(gpus: int):
    return pod("urgent", gpus, queue="team", priority=10)


def test_a_budget_that_allows_no_eviction_keeps_all():
    assert evicted(full_node(budget(0), urgent(1)).plan()) == []


def test_others_leave_in_place_of_those_that_are_protected():
    assert evicted(full_node(budget(0), urgent(2), protected=2).plan()) == ["low0", "low1"]


def test_as_many_leave_as_the_budget_allows():
    assert evicted(full_node(budget(2), urgent(2)).plan()) == ["low2", "low3"]
    assert evicted(full_node(budget(2), urgent(3)).plan()) == []


@pytest.mark.parametrize("action", [Action.PREEMPT, Action.RECLAIM])
def test_pods_that_several_budgets_select_stay_as_the_api_evicts_none_of_them(action):
    """The Eviction API answers 500, however many disruptions each of the budgets allows."""
    second = replace(budget(9), metadata=replace(budget(9).metadata, name="second", uid="second"))
    both = full_node(budget(9), second, urgent(1), actions=(Action.ALLOCATE, action))
    if action is Action.RECLAIM:
        both.add(queue("team", 0), queue("poor", 8), pod("urgent", queue="poor"))
    plan = both.plan()
    assert evicted(plan) == []
    [waiting] = plan.unplaced
    assert "PodDisruptionBudget default/second (with default/web; pods that several budgets" in (
        waiting.message
    )
    [name] = evicted(both.remove(second).plan())
    assert name == "low3"


def test_others_leave_in_place_of_those_that_several_budgets_select():
    second = replace(budget(9), metadata=replace(budget(9).metadata, name="second", uid="second"))
    world = full_node(budget(9), second, urgent(2), protected=2)
    assert evicted(world.plan()) == ["low0", "low1"]


def unhealthy(policy="IfHealthyBudget", healthy=0, desired=0):
    made = budget(0)
    spec = replace(made.spec, unhealthy_pod_eviction_policy=policy)
    status = replace(made.status, current_healthy=healthy, desired_healthy=desired)
    return replace(made, spec=spec, status=status)


def with_readiness(ready):
    """The pod of ``full_node`` that leaves first, whose kubelet reports so."""
    made = pod("low3", queue="team", node="a", created=3, labels={"app": "web"})
    conditions = (*made.status.conditions, Condition("Ready", ready))
    return replace(made, status=replace(made.status, conditions=conditions))


@pytest.mark.parametrize(
    ("made", "ready", "gone"),
    [
        (unhealthy("AlwaysAllow"), "False", ["low3"]),
        (unhealthy("AlwaysAllow"), "True", []),
        (unhealthy(), "False", []),
        (unhealthy(healthy=3, desired=3), "False", ["low3"]),
        (unhealthy(healthy=3, desired=3), "True", []),
        (unhealthy(healthy=2, desired=3), "False", []),
    ],
)
def test_pods_that_are_not_ready_leave_where_their_budget_lets_them(made, ready, gone):
    world = full_node(made, urgent(1))
    for each in range(3):
        name = f"low{each}"
        world.add(fit(pod(name, queue="team", node="a", created=each, labels={"app": "web"})))
    world.add(with_readiness(ready))
    assert evicted(world.plan()) == gone
    world.add(replace(made, status=replace(made.status, disruptions_allowed=1)))
    assert evicted(world.plan()) == ["low3"]


def fit(each):
    conditions = (*each.status.conditions, Condition("Ready", "True"))
    return replace(each, status=replace(each.status, conditions=conditions))


def test_pods_that_are_not_ready_do_not_use_their_budget_up():
    made = replace(unhealthy("AlwaysAllow"), status=budget(1).status)
    world = full_node(made, urgent(2)).add(with_readiness("False"))
    for each in range(3):
        name = f"low{each}"
        world.add(fit(pod(name, queue="team", node="a", created=each, labels={"app": "web"})))
    assert evicted(world.plan()) == ["low2", "low3"]


def test_pods_that_several_budgets_select_stay_even_if_they_are_not_ready():
    second = replace(budget(9), metadata=replace(budget(9).metadata, name="second", uid="second"))
    world = full_node(unhealthy("AlwaysAllow"), second, urgent(1)).add(with_readiness("False"))
    assert evicted(world.plan()) == []


def test_no_budget_protects_pods_that_have_not_started():
    made = full_node(budget(0), urgent(1))
    last = with_readiness("False")
    made.add(replace(last, status=replace(last.status, phase="Pending")))
    assert evicted(made.plan()) == ["low3"]
    made.add(last)
    assert evicted(made.plan()) == []


def test_a_budget_that_changes_or_goes_is_heard_of():
    world = full_node(budget(0), urgent(1))
    assert evicted(world.plan()) == []
    assert evicted(world.add(budget(1)).plan()) == ["low3"]
    world = full_node(budget(0), urgent(1))
    assert evicted(world.remove(budget(0)).plan()) == ["low3"]


def test_a_budget_protects_pods_that_come_later():
    world = cluster(node("a", 1), queue("team", 8), budget(0), urgent(1))
    world.add(pod("late", queue="team", node="a", labels={"app": "web"}))
    assert evicted(world.plan()) == []
    world.add(pod("late", queue="team", node="a", labels={"app": "other"}))
    assert evicted(world.plan()) == ["late"]


def test_budgets_of_pods_that_are_not_ours_limit_nothing():
    web = {"app": "web"}
    world = cluster(node("a"), budget(0), pod("own", node="a", labels={"app": "db"}))
    world.add(pod("foreign", node="a", labels=web, scheduler_name="default-scheduler"))
    assert world.snapshot().budgets == ()
    world.add(pod("own", node="a", labels=web))
    assert [sorted(each.pods) for each in world.snapshot().budgets] == [["pod-own"]]
    world.remove(pod("own", node="a", labels=web))
    assert world.snapshot().budgets == ()


@given(allowed=st.integers(0, 4), wanted=st.integers(1, 4), protected=st.integers(0, 4))
def test_no_more_leave_than_every_budget_allows(allowed, wanted, protected):
    plan = full_node(budget(allowed), urgent(wanted), protected=protected).plan()
    leaving = [name for name in evicted(plan) if int(name[-1]) >= 4 - protected]
    assert len(leaving) <= allowed
    enough = 4 - protected + min(allowed, protected) >= wanted
    assert bool(evicted(plan)) == enough


def slowed(limit, **settings):
    """Eight low pods on eight GPUs; what is urgent comes later."""
    low = [gang(f"low{i}", node="a", pods=1, created=i) for i in range(8)]
    team = QueueInfo(name="team", deserved={"gpu": 8.0}, max_evictions_per_hour=limit)
    return lambda *more: world({"a": 8}, *low, *more, queues=[team], **settings)


def played(memory, each, now):
    return run_cycle(each.snapshot(now), CycleSettings(**each.settings), memory)


def test_a_queue_loses_no_more_in_an_hour_than_its_limit():
    at, memory = slowed(2), CycleMemory(ClusterDevices())
    ask = at(*(gang(f"urgent{i}", pods=1, priority=10) for i in range(3)))
    assert len(evicted(played(memory, ask, 1000.0))) == 2
    assert evicted(played(memory, ask, 4599.0)) == []
    assert deadline_of(ask, 4599.0, memory) == 4600.0
    assert len(evicted(played(memory, ask, 4601.0))) == 2


@given(st.lists(st.lists(st.sampled_from(range(6)), unique=True), max_size=6))
def test_evictions_so_far_count_whatever_was_counted_before(courses):
    """Searches evict and undo: each question is answered as if it were the first."""
    low = [gang(f"low{i}", node="a", pods=1) for i in range(6)]
    team = QueueInfo(name="team", deserved={"gpu": 8.0}, max_evictions_per_hour=4)
    budgets = (DisruptionBudget("b", 2, frozenset(f"low{i}-0" for i in range(3))),)
    snapshot = replace(world({"a": 8}, *low, queues=[team]).snapshot(1000.0), budgets=budgets)

    def evictable(limits, course):
        evicted = {
            low[i].members[0].pod.uid: Evicted(
                low[i].members[0], low[i], Action.RECLAIM, low[i], ""
            )
            for i in course
        }
        return [each.key for each in (u.gang for u in limits.evictable(units(), evicted))]

    def units():
        return iter([VictimUnit(each, each.members) for each in low])

    kept = EvictionLimits(snapshot, EvictionHistory(), 0.0)
    for course in courses:
        fresh = EvictionLimits(snapshot, EvictionHistory(), 0.0)
        assert evictable(kept, course) == evictable(fresh, course)


def after_a_restart(each, plan):
    """A process that knows nothing, and the world with what the statuses say after ``plan``."""
    said = {share.queue: share.evictions for share in plan.queues}
    queues = tuple(replace(spec, evictions=said[spec.name]) for spec in each.queues)
    return CycleMemory(ClusterDevices()), replace(each, queues=queues)


def test_a_restart_does_not_forget_what_a_queue_has_lost():
    ask = slowed(2)(*(gang(f"urgent{i}", pods=1, priority=10) for i in range(3)))
    plan = played(CycleMemory(ClusterDevices()), ask, 1000.0)
    assert [record.pods for record in plan.queues[0].evictions] == [1, 1]
    memory, again = after_a_restart(ask, plan)
    idle = played(memory, again, 4599.0)
    assert evicted(idle) == []
    assert len(evicted(played(memory, again, 4601.0))) == 2
    assert idle.queues[0].evictions == plan.queues[0].evictions, "counted once, and still told"


def test_a_restart_does_not_forget_which_pods_were_just_evicted():
    low = [gang(name, node="a", pods=1, created=at) for at, name in enumerate("yx")]
    team = [QueueInfo(name="team", deserved={"gpu": 8.0})]
    urgent = gang("urgent", pods=1, priority=10)
    each = world({"a": 2}, *low, urgent, queues=team, cooldown=600.0)
    plan = played(CycleMemory(ClusterDevices()), each, 1000.0)
    assert evicted(plan) == ["x-0"]
    memory, again = after_a_restart(each, plan)
    assert evicted(played(memory, again, 1300.0)) == ["y-0"]


@pytest.mark.parametrize(
    ("limits", "cooldown"), [({"max_evictions_per_hour": 1}, 0.0), ({}, 1200.0)]
)
@pytest.mark.parametrize("restarts", [False, True])
def test_what_a_queue_does_to_itself_protects_it_from_no_other(limits, cooldown, restarts):
    """Otherwise a small gang of high priority would keep everything that its queue borrows."""
    wide = gang("wide", nodes="aaaa", floor=1)
    queues = [
        QueueInfo(name="team", deserved={"gpu": 0.0}, **limits),
        QueueInfo(name="other", deserved={"gpu": 2.0}),
    ]
    own = gang("own", pods=1, priority=10)
    before = world({"a": 4}, wide, own, queues=queues, cooldown=cooldown)
    memory = CycleMemory(ClusterDevices())
    plan = played(memory, before, 1000.0)
    assert [each.action for each in plan.evictions] == [Action.PREEMPT]
    if restarts:
        memory, before = after_a_restart(before, plan)
    again = replace(before, gangs=(wide, gang("own2", pods=1, priority=10)))
    assert evicted(played(memory, again, 1100.0)) == [], "it slows down its own preemption"
    others = replace(before, gangs=(wide, gang("other", pods=1, queue="other")))
    [lost] = played(memory, others, 1200.0).evictions
    assert lost.action is Action.RECLAIM
    more = replace(before, gangs=(wide, gang("other2", pods=1, queue="other")))
    assert evicted(played(memory, more, 1300.0)) == [], "evictions for others do"


@pytest.mark.parametrize(("action", "count"), [(Action.PREEMPT, 0), (Action.CONSOLIDATE, 1)])
def test_only_preemption_is_what_a_queue_does_to_itself(action, count):
    """The scheduler relocates pods whichever queue the gang is in that starts in their place."""
    low, high = gang("low", node="a", pods=1), gang("high", pods=1, priority=10)
    [made] = world({"a": 1}, low, high).plan().evictions
    past = EvictionHistory()
    past.record([structs.replace(made, action=action)], 1000.0)
    assert list(past.evicted_last_hour(1000.0).values()) == [1]
    assert list(past.evicted_last_hour(1000.0, by_others=True).values()) == [count]


@pytest.mark.parametrize(("action", "differs"), [(Action.PREEMPT, True), (Action.RECLAIM, False)])
def test_a_preemption_tells_evictions_apart_when_its_queue_has_forgotten_it(action, differs):
    low, high = gang("low", node="a", pods=1), gang("high", pods=1, priority=10)
    [made] = world({"a": 1}, low, high).plan().evictions
    past = EvictionHistory()
    past.record([structs.replace(made, action=action)], 1000.0)
    past.record([structs.replace(made, action=Action.RECLAIM, gang="other")], 1000.0)
    past.prune(1000.0 + 2 * 3600.0, 0.0)
    assert not past.by_queue
    assert past.differs_by_others is differs


@pytest.mark.parametrize(("action", "left"), [(Action.PREEMPT, 1), (Action.CONSOLIDATE, 0)])
def test_evictions_of_this_cycle_count_as_they_will_be_recorded(action, left):
    team = QueueInfo(name="team", max_evictions_per_hour=1)
    snapshot = world(
        {"a": 3}, gang("low", nodes="aa", floor=1), gang("own", node="a", pods=1), queues=[team]
    ).snapshot(1000.0)
    low, own = (snapshot.gangs[f"default/Gang/{name}"] for name in ("low", "own"))
    gone, stays = low.bound
    evictions = {gone.pod.uid: Evicted(gone, low, action, own, "")}
    limits = EvictionLimits(snapshot, EvictionHistory(), 0.0)
    units = iter([VictimUnit(low, (stays,))])
    assert len([*limits.evictable(units, evictions, by_others=True)]) == left


def test_own_evictions_and_those_for_others_are_told_apart_when_many_are_told_as_one():
    records = tuple(EvictionRecord(f"g{i}", i, 1, within_queue=i % 2 == 0) for i in range(200))
    past = EvictionHistory()
    past.restore([QueueInfo(name="q", evictions=records)])
    past.prune(200.0, 0.0)
    assert len(past.by_queue["q"]) == MAX_RECORDS
    assert past.evicted_last_hour(200.0) == {"q": 200}
    assert past.evicted_last_hour(200.0, by_others=True) == {"q": 100}


def test_without_limit_and_cooldown_nothing_is_told():
    low, high = gang("low", node="a", pods=1), gang("high", pods=1, priority=10)
    plan = world({"a": 1}, low, high).plan()
    assert evicted(plan) == ["low-0"]
    assert plan.queues[0].evictions == ()


def test_of_many_evictions_the_oldest_are_told_as_one():
    past = EvictionHistory()
    past.restore(
        [QueueInfo(name="q", evictions=tuple(EvictionRecord(f"g{i}", i, 2) for i in range(200)))]
    )
    past.prune(200.0, 0.0)
    kept = past.by_queue["q"]
    assert len(kept) == MAX_RECORDS
    assert kept[0] == EvictionRecord("g72", 72, 146)
    assert past.evicted_last_hour(200.0) == {"q": 400}


def test_the_cooldown_protects_all_gangs_of_evictions_that_are_told_as_one():
    low, urgent = gang("low", node="a", pods=1), gang("urgent", pods=1, priority=10)
    [each] = world({"a": 1}, low, urgent).plan().evictions
    past, gangs = EvictionHistory(), [f"gang-{n}" for n in range(MAX_RECORDS + 20)]
    past.record([replace(each, gang=name) for name in gangs], 100.5)
    past.prune(101.0, 60.0)
    assert len(past.by_queue[each.queue]) == MAX_RECORDS
    assert past.in_cooldown(159.9, 60.0) == frozenset(gangs)
    assert past.in_cooldown(160.0, 60.0) == frozenset()


def test_only_evictions_of_the_last_day_are_kept_of_a_gang():
    low, urgent = gang("low", node="a", pods=1), gang("urgent", pods=1, priority=10)
    evictions = world({"a": 1}, low, urgent).plan().evictions
    past, now = EvictionHistory(), 0.0
    for hour in range(100):
        now = hour * 3600.0
        past.record(evictions, now)
    assert len(past.times_of(low.key, now)) == len(past.by_gang[low.key]) == 24


def test_a_core_larger_than_the_limit_goes_alone():
    core = gang("core", node="a", pods=8)
    team = QueueInfo(name="team", deserved={"gpu": 8.0}, max_evictions_per_hour=2)
    plan = world({"a": 8}, core, gang("urgent", pods=1, priority=10), queues=[team]).plan()
    assert len(evicted(plan)) == 8


def test_a_limit_of_none_forbids():
    assert evicted(slowed(0)(gang("urgent", pods=1, priority=10)).plan()) == []


def test_a_pod_that_was_just_evicted_is_not_evicted_again():
    memory, settings = CycleMemory(ClusterDevices()), {"cooldown": 600.0}
    each = world(
        {"a": 2},
        gang("x", node="a", pods=1, created=2),
        gang("y", node="a", pods=1, created=1),
        gang("urgent", pods=1, priority=10),
        **settings,
    )
    assert evicted(played(memory, each, 1000.0)) == ["x-0"]
    assert evicted(played(memory, each, 1300.0)) == ["y-0"], "x came back and is protected"
    assert evicted(played(memory, each, 1599.0)) == []
    assert deadline_of(each, 1599.0, memory) == 1600.0
    assert evicted(played(memory, each, 1601.0)) == ["x-0"]


def deadline_of(each, now, memory):
    found = next_deadline(each.snapshot(now), CycleSettings(**each.settings), memory)
    return None if found is None else found - START


def test_pods_that_are_gone_are_not_protected():
    world = full_node(budget(0), urgent(1))
    low = [pod(f"low{i}", queue="team", node="a", created=i) for i in range(4)]
    for each in low:
        world.remove(each)
    assert world.snapshot().budgets == ()


@given(
    st.lists(
        st.tuples(st.dictionaries(st.sampled_from("abcd"), st.integers(1, 5)), st.integers(0, 5)),
        max_size=8,
    )
)
def test_what_started_lately_is_found_from_what_changed(course):
    """Whatever gangs come, go and change from call to call, and whichever time is asked for."""
    history, made = EvictionHistory(), {}
    for started, since in course:
        each = [
            made.setdefault((name, at), gang(name, node="n", pods=1, created=at))
            for name, at in started.items()
        ]
        gangs = {one.key: one for one in each}
        found = [one for one in history.started_since(gangs, since) if one.last_bound > since]
        expected = {one.key for one in each if one.last_bound > since}
        assert len(found) == len(expected)
        assert all(gangs[one.key] is one for one in found)


@pytest.mark.parametrize(("runtime", "until"), [(500.0, 1040.0), (None, None)])
def test_the_settling_time_ends_for_those_that_it_protected(runtime, until):
    """Only pods that will end by themselves settle; nothing is waited for if none was wanted."""
    young = replace(gang("young", nodes="a"), expected_runtime=runtime)
    young = replace(young, members=(replace(young.members[0], bound_since=START + 940.0),))
    snapshot = world({"a": 1}, young).snapshot(1000.0)
    limits = EvictionLimits(snapshot, EvictionHistory(), cooldown=0.0, settling=100.0)
    assert limits.settled_at is None
    unit = VictimUnit(young, young.members)
    assert [*limits.evictable(iter([unit]), {})] == ([] if until else [unit])
    assert limits.settled_at == (until and START + until)


def refused_at(memory, each, now, *gangs):
    """The plan while the API server refuses to evict the pods of ``gangs``."""
    pods = frozenset(
        m.pod.uid for one in each.gangs if one.key.rpartition("/")[2] in gangs for m in one.members
    )
    snapshot = replace(each.snapshot(now), refused_evictions=pods)
    return run_cycle(snapshot, CycleSettings(**each.settings), memory)


def test_others_leave_in_place_of_those_that_the_server_refuses_to_evict():
    memory = CycleMemory(ClusterDevices())
    each = world(
        {"a": 2},
        gang("x", node="a", pods=1, created=2),
        gang("y", node="a", pods=1, created=1),
        gang("urgent", pods=1, priority=10),
        loss_rules=LossRules(evictions_per_day=1),
    )
    assert evicted(played(memory, each, 1000.0)) == ["x-0"]
    assert evicted(refused_at(memory, each, 1001.0, "x")) == ["y-0"]
    (told,) = refused_at(memory, each, 1002.0, "x", "y").unplaced
    assert told.stage is Stage.EVICTION_LIMITS
    assert f"pods of queue team are protected by {REFUSED}" in told.message
    assert evicted(played(memory, each, 1003.0)) == ["x-0"], "a refusal is no eviction"


@given(st.sets(st.integers(0, 5)), st.sets(st.integers(0, 2)), st.sampled_from(Action))
def test_evictions_that_are_refused_count_as_if_they_had_not_been_planned(refused, later, action):
    low = [gang(f"low{i}", node="a", pods=2) for i in range(3)]
    plan = world({"a": 6}, *low, gang("urgent", pods=6, priority=10)).plan()
    made = [structs.replace(each, action=action) for each in plan.evictions]
    assert len(made) == 6
    past, expected = EvictionHistory(), EvictionHistory()
    past.record(made, 1000.5)
    expected.record([each for number, each in enumerate(made) if number not in refused], 1000.5)
    for history in (past, expected):
        history.record([made[number] for number in later], 1100.0)
    past.withdraw([made[number].pod.uid for number in refused - later])
    unknown = [made[number].pod.uid for number in refused & later]
    past.withdraw(["of no pod"])
    if not unknown:
        assert {queue: each for queue, each in past.by_queue.items() if each} == expected.by_queue
        assert past.by_gang == expected.by_gang
        assert list(past.by_gang) == list(expected.by_gang)
    past.withdraw([each.pod.uid for each in made])
    past.withdraw([each.pod.uid for each in made])
    assert all(record.pods > 0 for each in past.by_queue.values() for record in each)
