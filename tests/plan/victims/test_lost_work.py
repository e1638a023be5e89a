"""Which victims a gang takes where evictions are weighed by what they destroy."""

import pytest

from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.grouping.gang import Owner
from kai_py.grouping.gang_settings import GangSettings
from kai_py.plan.cycle.deadlines import next_deadline
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.cycle.opening import open_session
from kai_py.plan.cycle.run import run_cycle
from kai_py.plan.explain.postponed import LOST_WORK, NOT_RELOCATED
from kai_py.plan.plan import Action
from kai_py.plan.session.settings import CycleSettings
from kai_py.plan.session.turns import Unwatched
from kai_py.plan.state.eviction_history import GangEviction
from kai_py.plan.victims.order import VictimPool
from kai_py.policy.lost_work import LossRules, lost_seconds
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.records import replace
from tests.support.scenario import START, evicted
from tests.support.worlds import gang, world

NOW = 4000.0
BY_LOSS = LossRules(by_loss=True, restart_cost=60.0)
QUEUES = (
    QueueInfo(name="owner", deserved={"gpu": 4.0}),
    QueueInfo(name="guest", deserved={"gpu": 0.0}),
    QueueInfo(name="other", deserved={"gpu": 0.0}),
)


def ran(name, nodes, minutes, *, queue="guest", checkpoint=None, **more):
    """A gang that has run for so long."""
    made = gang(name, nodes=nodes, queue=queue, created=NOW - minutes * 60, **more)
    return replace(made, settings=GangSettings(checkpoint_interval=checkpoint))


def waiting(name, pods=1, gpus=1, *, queue="owner", since=NOW - 10, **more):
    return gang(name, pods=pods, gpus=gpus, queue=queue, created=since, **more)


def planned(*gangs, nodes, rules=BY_LOSS, memory=None, queues=QUEUES):
    built = world(nodes, *gangs, queues=queues).snapshot(NOW)
    memory = memory or CycleMemory(ClusterDevices())
    return run_cycle(built, CycleSettings(loss_rules=rules), memory)


def test_lost_is_what_was_done_since_the_last_checkpoint():
    ten, member = ran("ten", "a", 10), ran("ten", "a", 10).members[0]
    assert lost_seconds(ten, member, START + NOW, 60.0) == 660
    saving = replace(ten, settings=GangSettings(checkpoint_interval=240.0))
    assert lost_seconds(saving, member, START + NOW, 60.0) == 180


def test_the_pod_that_loses_least_goes():
    gangs = ran("long", "a", 50), ran("short", "a", 9), ran("middle", "a", 20)
    assert evicted(planned(*gangs, waiting("new"), nodes={"a": 3})) == ["short-0"]


def test_a_checkpoint_makes_an_old_pod_the_cheaper_victim():
    gangs = ran("saved", "a", 50, checkpoint=600.0), ran("unsaved", "a", 9)
    assert evicted(planned(*gangs, waiting("new"), nodes={"a": 2})) == ["saved-0"]


def test_a_whole_gang_loses_more_than_a_single_pod():
    gangs = ran("wide", "aaaa", 10), ran("single", "a", 30)
    assert evicted(planned(*gangs, waiting("new"), nodes={"a": 5})) == ["single-0"]


def test_the_queue_that_loses_least_of_those_above_their_share_gives():
    """Both are above; the gang of ``guest`` would lose all four pods."""
    singles = [ran(f"single-{n}", "a", 20 + n, queue="other") for n in range(4)]
    gangs = ran("wide", "aaaa", 40), *singles
    assert evicted(planned(*gangs, waiting("new"), nodes={"a": 8})) == ["single-0-0"]


def test_a_node_is_emptied_where_that_loses_least():
    gangs = [ran(f"old-{n}", "a", 50) for n in range(2)]
    gangs += [ran("young", "b", 10), ran("mid", "b", 20)]
    plan = planned(*gangs, waiting("new", gpus=2), nodes={"a": 2, "b": 2})
    assert evicted(plan) == ["mid-0", "young-0"]


def evicted_before(name, times, *, within_queue=False):
    memory = CycleMemory(ClusterDevices())
    memory.evictions.by_gang[f"default/Gang/{name}"] = [
        GangEviction(START + NOW - 60.0 * n, within_queue) for n in times
    ]
    return memory


@pytest.mark.parametrize("by_loss", [True, False])
def test_candidates_are_asked_by_what_their_eviction_destroys_or_by_age(by_loss):
    gangs = [
        ran("urgent", "a", 1, priority=5),
        ran("often", "a", 2),
        ran("elastic", "a", 90, floor=0),
        ran("long", "a", 50),
        ran("saved", "a", 60, checkpoint=300.0),
        ran("low", "a", 70, priority=-1),
    ]
    built = world({"a": 6}, *gangs, waiting("new"), queues=QUEUES).snapshot(NOW)
    rules = replace(BY_LOSS, by_loss=by_loss, evictions_per_day=1)
    settings, memory = CycleSettings(loss_rules=rules), evicted_before("often", [30])
    state = open_session(built, settings, memory, Unwatched())
    units = VictimPool(state).units(state.quota.queues.positions["guest"], guaranteed=True)
    by_cost = ["low", "elastic", "saved", "long", "urgent", "often"]
    by_age = ["low", "elastic", "often", "long", "saved", "urgent"]
    names = [unit.members[0].pod.name.removesuffix("-0") for unit in units]
    assert names == (by_cost if by_loss else by_age)


def test_what_was_evicted_before_weighs_more():
    gangs = ran("again", "a", 10), ran("first", "a", 15)
    memory = evicted_before("again", [30])
    assert evicted(planned(*gangs, waiting("new"), nodes={"a": 2}, memory=memory)) == ["first-0"]
    day = evicted_before("again", [25 * 60])
    assert evicted(planned(*gangs, waiting("new"), nodes={"a": 2}, memory=day)) == ["again-0"]


@pytest.mark.parametrize("deserved", [0.0, 4.0])
def test_what_was_evicted_often_goes_only_for_a_guarantee(deserved):
    rules = replace(BY_LOSS, evictions_per_day=2)
    queues = (QueueInfo(name="owner", deserved={"gpu": deserved}), QUEUES[1])
    built = world({"a": 2}, ran("again", "aa", 30), waiting("new"), queues=queues).snapshot(NOW)
    memory, settings = evicted_before("again", [30, 60]), CycleSettings(loss_rules=rules)
    assert bool(evicted(run_cycle(built, settings, memory))) == bool(deserved)


def test_what_its_own_queue_evicted_often_goes_for_others_and_stays_for_its_queue():
    rules = replace(BY_LOSS, evictions_per_day=2)
    queues = (QueueInfo(name="owner", deserved={"gpu": 0.0}), QUEUES[1])
    memory = evicted_before("again", [30, 60], within_queue=True)
    asked = {
        queue: planned(
            ran("again", "aa", 30),
            waiting("new", queue=queue, priority=10),
            nodes={"a": 2},
            rules=rules,
            memory=memory,
            queues=queues,
        )
        for queue in ("owner", "guest")
    }
    assert [each.action for each in asked["owner"].evictions] == [Action.RECLAIM] * 2
    assert evicted(asked["guest"]) == []
    [stays] = asked["guest"].unplaced
    assert "protected by eviction.evictionsPerDay, which is 2" in stays.message


def test_what_its_own_queue_evicted_weighs_no_more_for_others():
    gangs = ran("again", "a", 10), ran("first", "a", 15, queue="other")
    memory = evicted_before("again", [30], within_queue=True)
    assert evicted(planned(*gangs, waiting("new"), nodes={"a": 2}, memory=memory)) == ["again-0"]
    memory = evicted_before("again", [30])
    assert evicted(planned(*gangs, waiting("new"), nodes={"a": 2}, memory=memory)) == ["first-0"]


def test_a_pod_that_just_started_and_will_end_stays():
    rules = replace(BY_LOSS, settling=150.0)
    fresh = replace(ran("fresh", "a", 1), expected_runtime=3000.0)
    old = ran("old", "a", 50)
    assert evicted(planned(fresh, old, waiting("new"), nodes={"a": 2}, rules=rules)) == ["old-0"]
    endless = replace(fresh, expected_runtime=None)
    plan = planned(endless, old, waiting("new"), nodes={"a": 2}, rules=rules)
    assert evicted(plan) == ["fresh-0"]


@pytest.mark.parametrize(("pods", "goes"), [(1, 1), (2, 0)])
def test_pods_that_just_started_are_not_left_below_min_members(pods, goes):
    """One of three pods just started and stays; without two of them it would do no work."""
    rules = replace(BY_LOSS, settling=150.0)
    wide = replace(ran("wide", "aaa", 50, floor=2), expected_runtime=9000.0)
    fresh = replace(wide.members[2], bound_since=START + NOW - 60)
    wide = replace(wide, members=(*wide.members[:2], fresh))
    plan = planned(wide, waiting("new", pods), nodes={"a": 3}, rules=rules)
    assert len(evicted(plan)) == goes
    assert "wide-2" not in evicted(plan)


def test_the_end_of_settling_is_a_deadline():
    settings = CycleSettings(loss_rules=replace(BY_LOSS, settling=150.0))
    fresh = replace(ran("fresh", "a", 1), expected_runtime=3000.0)
    built = world({"a": 1}, fresh, waiting("new"), queues=QUEUES).snapshot(NOW)
    memory = CycleMemory(ClusterDevices())
    assert evicted(run_cycle(built, settings, memory)) == []
    [started] = {member.bound_since for member in fresh.members}
    assert next_deadline(built, settings, memory) == started + 150.0


@pytest.mark.parametrize(("seen", "stays"), [(2, False), (3, True)])
def test_a_pod_that_just_started_stays_where_such_pods_were_seen_to_end(seen, stays):
    memory, rules = CycleMemory(ClusterDevices()), replace(BY_LOSS, settling=150.0)
    fresh, old = ran("fresh", "a", 1), ran("old", "a", 50)
    for number in range(seen):
        ended = ran("ended", "a", 50)
        memory.runtimes.observe({str(number): ended}, (), START)
        memory.runtimes.observe({}, {member.pod.uid for member in ended.members}, START + NOW)
    plan = planned(fresh, old, waiting("new"), nodes={"a": 2}, rules=rules, memory=memory)
    assert evicted(plan) == ["old-0" if stays else "fresh-0"]


WEIGHED = replace(BY_LOSS, patience=600.0)
"""Too short for any end below to be waited for because it is near."""


def ends_in(made, minutes, ran_for):
    return replace(made, expected_runtime=(ran_for + minutes) * 60.0)


@pytest.mark.parametrize(("left", "goes"), [(11, False), (19, False), (22, True), (500, True)])
def test_an_eviction_destroys_no_more_than_the_wait_that_it_ends(left, goes):
    """20 minutes of work and one of start-up are lost."""
    victim = ends_in(ran("victim", "a", 20), left, 20)
    plan = planned(victim, waiting("new"), nodes={"a": 1}, rules=WEIGHED)
    assert bool(evicted(plan)) == goes
    assert evicted(planned(replace(victim, expected_runtime=None), waiting("new"), nodes={"a": 1}))


UNKNOWN_ENDS = [
    *((4, 10, True), (1, 10, False), (1, 601, False), (1, 2390, False), (1, 2410, True)),
    *((3, 601, False), (3, 1670, False), (3, 1690, True)),
]


@pytest.mark.parametrize(("pods", "waited", "goes"), UNKNOWN_ENDS)
def test_what_ends_at_an_unknown_time_goes_when_the_wait_has_cost_as_much(pods, waited, goes):
    """The gang loses 4 x 21 minutes, and may run for as many as it has run."""
    large, burst = ran("large", "aaaa", 20), [waiting(f"new-{n}") for n in range(pods - 1)]
    new = waiting("new", since=NOW - waited)
    plan = planned(large, new, *burst, nodes={"a": 4}, rules=WEIGHED)
    assert len(evicted(plan)) == (4 if goes else 0)


def message_of(plan, name):
    [found] = [each.message for each in plan.unplaced if each.gang.endswith(f"/{name}")]
    return found


def test_a_gang_for_which_nothing_is_evicted_yet_is_told_so():
    large = ran("large", "aaaa", 20)
    [waits] = planned(large, waiting("new"), nodes={"a": 4}, rules=WEIGHED).unplaced
    assert waits.message.endswith(LOST_WORK)
    assert "No preemption victims" not in waits.message
    wide = [ends_in(ran(f"on-{n}", n, 30), 1, 30) for n in "ab"]
    apart = waiting("apart", gpus=2, queue="guest", since=NOW - 2300)
    plan = planned(*wide, apart, nodes={"a": 2, "b": 2}, rules=WEIGHED)
    assert message_of(plan, "apart").endswith(NOT_RELOCATED)
    protected = planned(ran("own", "aaaa", 20, queue="owner"), waiting("new"), nodes={"a": 4})
    assert LOST_WORK not in message_of(protected, "new")


def test_what_serves_requests_does_not_wait_for_others():
    large, owner = ran("large", "aaaa", 20), Owner("apps/v1", "Deployment", "default", "s", "uid")
    serves = replace(waiting("new", since=NOW - 10), owner=owner)
    assert len(evicted(planned(large, serves, nodes={"a": 4}, rules=WEIGHED))) == 4


@pytest.mark.parametrize(("pods", "goes"), [(1, False), (2, False), (4, True)])
def test_many_pods_that_wait_may_cost_a_large_gang(pods, goes):
    """The gang loses 4 x 11 minutes, and would end in 15."""
    victim = ends_in(ran("large", "aaaa", 10), 15, 10)
    burst = [waiting(f"new-{n}") for n in range(pods)]
    plan = planned(victim, *burst, nodes={"a": 4}, rules=WEIGHED)
    assert len(evicted(plan)) == (4 if goes else 0)


@pytest.mark.parametrize(("deserved", "goes"), [(0.0, True), (4.0, False)])
def test_what_the_queue_of_the_victims_would_lack_counts_against_their_eviction(deserved, goes):
    """The gang holds five GPUs; where its queue deserves four, evicting it would deny it those."""
    queues = (QueueInfo(name="owner", deserved={"gpu": 4.0}), QueueInfo(name="guest"))
    queues = queues[0], replace(queues[1], deserved={"gpu": deserved}, weight=0.0)
    wide, runs = ends_in(ran("wide", "a" * 5, 20), 500, 20), ran("runs", "aaa", 60, queue="owner")
    burst = [waiting(f"new-{n}") for n in range(5)]
    built = world({"a": 8}, wide, runs, *burst, queues=queues).snapshot(NOW)
    plan = run_cycle(built, CycleSettings(loss_rules=WEIGHED), CycleMemory(ClusterDevices()))
    assert len(evicted(plan)) == (5 if goes else 0)


@pytest.mark.parametrize(
    ("weight", "left", "goes"), [(0.0, 30, True), (1.0, 30, False), (1.0, 41, True)]
)
def test_a_guarantee_waits_for_an_end_where_the_victims_queue_would_lack_more(weight, left, goes):
    """All four GPUs go for one; by its weight the other queue is entitled to three of them."""
    queues = QUEUES[0], replace(QUEUES[1], weight=weight)
    wide, new = ends_in(ran("wide", "aaaa", 5), left, 5), waiting("new")
    plan = planned(wide, new, nodes={"a": 4}, rules=WEIGHED, queues=queues)
    assert len(evicted(plan)) == (4 if goes else 0)


@pytest.mark.parametrize(
    ("deserved", "went_without", "left", "goes"),
    [
        *((0.0, False, 15, False), (0.0, True, 15, True), (4.0, False, 15, True)),
        *((4.0, False, 10.5, False), (4.0, True, 10.5, True), (0.0, True, 10.5, True)),
    ],
)
def test_what_a_queue_lacks_counts_more_the_less_it_had(deserved, went_without, left, goes):
    """The younger gang loses 4 x 11 minutes; the four pods wait until it ends if it stays."""
    queues = replace(QUEUES[0], deserved={"gpu": deserved}), QUEUES[1]
    memory, settings = CycleMemory(ClusterDevices()), CycleSettings(loss_rules=WEIGHED)
    if went_without:
        held, before = ran("held", "a" * 8, 70, preemptible=False), waiting("before", 4)
        full = world({"a": 8}, held, before, queues=queues).snapshot(NOW - 3600)
        assert not evicted(run_cycle(full, settings, memory))
    old, young = ran("old", "aaaa", 70), ran("young", "aaaa", 10)
    gangs = ends_in(old, 500, 70), ends_in(young, left, 10)
    built = world({"a": 8}, *gangs, waiting("new", 4), queues=queues)
    plan = run_cycle(built.snapshot(NOW), settings, memory)
    assert len(evicted(plan)) == (4 if goes else 0)


@pytest.mark.parametrize(("left", "goes"), [(1, False), (500, True)])
def test_a_relocation_is_weighed_however_long_its_gang_has_waited(left, goes):
    """Two GPUs are idle, one on each node."""
    gangs = [ends_in(ran(f"on-{n}", n, 30), left, 30) for n in "ab"]
    large = waiting("large", gpus=2, queue="guest", since=NOW - 3000)
    plan = planned(*gangs, large, nodes={"a": 2, "b": 2}, rules=WEIGHED)
    assert bool(evicted(plan)) == goes


def test_what_ends_in_a_moment_is_waited_for():
    """Both GPUs are needed; the wait for one of them saves its work, the other loses little."""
    nearly = ends_in(ran("nearly", "a", 50), 11, 50)
    young = ends_in(ran("young", "a", 1), 600, 1)
    both = waiting("both", gpus=2)
    assert not evicted(planned(nearly, young, both, nodes={"a": 2}, rules=WEIGHED))
    assert evicted(planned(young, waiting("new"), nodes={"a": 1}, rules=WEIGHED))


@pytest.mark.parametrize("end", [21300.0, None])
def test_the_next_checkpoint_is_waited_for(end):
    """It comes in five minutes: 16 minutes of work are lost now, one then."""
    saving = replace(ran("saving", "a", 55, checkpoint=1200.0), expected_runtime=end)
    built = world({"a": 1}, saving, waiting("new"), queues=QUEUES).snapshot(NOW)
    settings, memory = CycleSettings(loss_rules=WEIGHED), CycleMemory(ClusterDevices())
    assert not evicted(run_cycle(built, settings, memory))
    assert next_deadline(built, settings, memory) == START + NOW + 300.0
    just = replace(saving, settings=GangSettings(checkpoint_interval=1080.0))
    assert evicted(planned(just, waiting("new"), nodes={"a": 1}, rules=WEIGHED))


def test_a_gang_that_requests_nothing_that_queues_count_is_planned():
    """It needs what one pod has of the node; its queue also has a gang that may not evict."""

    def requesting(made, number, pods, charge):
        shape = Shape(number=number, requests={**made.members[0].shape.requests, "pods": pods})
        if not charge:
            shape = Shape(number=number, requests={"pods": pods})
        return replace(made, members=(replace(made.members[0], shape=shape, charge=charge),))

    wide = ends_in(requesting(ran("wide", "a", 20), 78, 100.0, {"gpu": 1.0}), 500, 20)
    others = [ends_in(ran(f"other-{n}", "a", 60), 100, 60) for n in range(7)]
    never = replace(waiting("never", 4), may_preempt=False)
    new = requesting(waiting("new"), 77, 10.0, {})
    plan = planned(wide, *others, never, new, nodes={"a": 8}, rules=WEIGHED)
    assert not plan.set_aside
    assert evicted(plan) == ["wide-0"]


RECLAIM_WAITS = [(10, "owner", False), (2390, "owner", False), (2410, "owner", True)]
PREEMPT_WAITS = [(10, "guest", False), (2390, "guest", False), (2410, "guest", True)]


@pytest.mark.parametrize(("waited", "queue", "goes"), RECLAIM_WAITS + PREEMPT_WAITS)
def test_no_gang_waits_longer_than_four_times_its_patience(waited, queue, goes):
    """Of eight GPUs that were used for an hour one is lacking; they are free in 15 minutes."""
    victim = ends_in(ran("victim", "a" * 8, 60), 15, 60)
    new = waiting("new", since=NOW - waited, queue=queue, priority=100)
    plan = planned(victim, new, nodes={"a": 8}, rules=WEIGHED)
    assert bool(evicted(plan)) == goes


@pytest.mark.parametrize(
    ("waited", "left", "goes"), [(2500, 2, False), (2500, 11, True), (3010, 2, True)]
)
def test_an_end_just_beyond_the_patience_is_waited_for(waited, left, goes):
    victim = ends_in(ran("victim", "a" * 4, 60), left, 60)
    new = waiting("new", 4, since=NOW - waited, queue="guest", priority=100)
    assert bool(evicted(planned(victim, new, nodes={"a": 4}, rules=WEIGHED))) == goes


@pytest.mark.parametrize(("seen", "goes"), [(True, False), (False, True)])
def test_the_patience_of_a_reclaimer_counts_from_the_time_at_which_it_is_due(seen, goes):
    """It waited for its own queue for long; eight GPUs are free in 15 minutes."""
    victim = ends_in(ran("victim", "a" * 8, 60), 15, 60)
    own, new = ran("own", "b" * 12, 60, queue="owner"), waiting("new", since=NOW - 3000)
    memory, settings = CycleMemory(ClusterDevices()), CycleSettings(loss_rules=WEIGHED)
    full = world({"a": 8, "b": 12}, victim, own, new, queues=QUEUES).snapshot(NOW - 10)
    if seen:
        assert not evicted(run_cycle(full, settings, memory))
    freed = world({"a": 8}, victim, new, queues=QUEUES).snapshot(NOW)
    # Of another cluster, so that nothing known of the nodes before holds.
    freed = replace(freed, nodes=replace(freed.nodes, generation=full.nodes.generation + 1))
    assert bool(evicted(run_cycle(freed, settings, memory))) == goes


def test_relocation_for_a_gang_above_its_share_comes_after_reclaim():
    """``guest`` waits for a node; ``owner`` reclaims the GPUs that it would get by relocation."""
    gangs = [ran(f"on-{n}", n, 30) for n in "ab"]
    large = waiting("large", gpus=2, queue="guest", since=NOW - 50)
    plan = planned(*gangs, large, waiting("due", 2, 2), nodes={"a": 2, "b": 2}, rules=LossRules())
    assert {each.action for each in plan.evictions} == {Action.RECLAIM}
    alone = planned(*gangs, large, nodes={"a": 2, "b": 2}, rules=LossRules())
    assert {each.action for each in alone.evictions} == {Action.CONSOLIDATE}


def test_an_elastic_gang_takes_all_that_it_is_due_in_one_cycle():
    """Else what started in the capacity that it takes a cycle later would be evicted again."""
    guest = gang("guest", nodes="aaaa", floor=1, queue="guest", created=0)
    plan = planned(guest, waiting("new", 3, floor=1), nodes={"a": 4}, rules=LossRules())
    assert len(evicted(plan)) == 3
    assert {each.pod.name for each in plan.nominations} == {"new-0", "new-1", "new-2"}


def test_what_just_started_is_not_relocated():
    young, old = ran("young", "a", 1), ran("old", "b", 50)
    large, nodes = waiting("large", gpus=2, queue="guest"), {"a": 2, "b": 2}
    rules = replace(BY_LOSS, settling=150.0)
    assert evicted(planned(young, old, large, nodes=nodes, rules=rules)) == ["old-0"]
    both = ran("also", "b", 2)
    assert not evicted(planned(young, both, large, nodes=nodes, rules=rules))


def test_what_just_started_is_moved_by_a_reclaim_only_if_it_could_be_lost():
    """That it fits elsewhere is no reason to restart it: its queue is within what it deserves."""
    deserved = {"owner": 2.0, "guest": 1.0}
    queues = tuple(QueueInfo(name=name, deserved={"gpu": n}) for name, n in deserved.items())
    rules = replace(BY_LOSS, settling=150.0)

    def moved(guest):
        large = waiting("large", gpus=2)
        return evicted(planned(guest, large, nodes={"a": 2, "b": 1}, rules=rules, queues=queues))

    assert moved(ran("young", "a", 1)) == []
    assert moved(ran("old", "a", 50)) == ["old-0"]


def test_of_equally_many_pods_those_that_lose_least_are_relocated():
    saved, unsaved = ran("saved", "a", 50, checkpoint=600.0), ran("unsaved", "b", 9)
    large, nodes = waiting("large", gpus=2, queue="guest"), {"a": 2, "b": 2}
    assert evicted(planned(saved, unsaved, large, nodes=nodes)) == ["saved-0"]
    youngest = planned(saved, unsaved, large, nodes=nodes, rules=LossRules())
    assert evicted(youngest) == ["unsaved-0"]


@pytest.mark.parametrize(
    ("left", "gpus", "queue", "goes"),
    [
        (10.5, 1, "guest", False),
        (11.5, 1, "guest", True),
        (10.5, 2, "guest", True),
        (10.5, 1, "owner", True),
    ],
)
def test_what_others_release_meanwhile_shortens_the_wait(left, gpus, queue, goes):
    """The gang loses 4 x 11 minutes, and would end in 15; its queue borrows."""
    victim = ends_in(ran("large", "a" * 4, 10), 15, 10)
    singles = [ends_in(ran(f"single-{n}", "b", 60, queue=queue), left, 60) for n in range(4)]
    new = [waiting(f"new-{n}", gpus=gpus) for n in range(4 // gpus)]
    owned = replace(QUEUES[0], deserved={"gpu": 8.0})
    queues = QUEUES if queue == "guest" else (owned, *QUEUES[1:])
    plan = planned(victim, *singles, *new, nodes={"a": 4, "b": 4}, rules=WEIGHED, queues=queues)
    assert evicted(plan) == ([f"large-{n}" for n in range(4)] if goes else [])


@pytest.mark.parametrize(("left", "goes"), [(10.5, False), (11.5, True)])
def test_what_others_release_is_waited_for_though_the_ends_of_the_victims_are_unknown(left, goes):
    """The gang loses 4 x 11 minutes, and may run for as many as it has run."""
    singles = [ends_in(ran(f"single-{n}", "b", 60), left, 60) for n in range(4)]
    new = [waiting(f"new-{n}") for n in range(4)]
    large, nodes = ran("large", "a" * 4, 10), {"a": 4, "b": 4}
    plan = planned(large, *singles, *new, nodes=nodes, rules=WEIGHED)
    assert evicted(plan) == ([f"large-{n}" for n in range(4)] if goes else [])


@pytest.mark.parametrize(("wide", "goes"), [(1, True), (3, False)])
def test_a_gang_beyond_the_fair_share_is_no_reason_to_evict(wide, goes):
    """The victims lose 2 x 11 minutes and end in 15; of four GPUs two are lacking, or one."""
    victim = ends_in(ran("large", "aa", 10), 15, 10)
    own = ran("own", "aa", 10, queue="owner")
    new = waiting("new"), waiting("wide", gpus=wide, since=NOW - 5)
    plan = planned(victim, own, *new, nodes={"a": 4}, rules=WEIGHED)
    assert bool(evicted(plan)) == goes
