"""Gangs that wait for pods about to end, and what is reserved for them meanwhile."""

import math

import msgspec
import pytest

from kai_py.api.records.core import PodStatus
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.grouping.gang import Owner
from kai_py.plan.cycle.deadlines import next_deadline
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.cycle.run import run_cycle
from kai_py.plan.session.settings import CycleSettings
from kai_py.policy.lost_work import LossRules
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.records import replace
from tests.support.scenario import (
    START,
    at,
    claim,
    claim_of,
    claiming,
    cluster,
    device_class,
    evicted,
    gpu_slice,
    node,
    placed,
    pod,
    queue,
)
from tests.support.worlds import gang, world

EXPECTED_RUNTIME = "scheduling.kai.io/expected-runtime"
NOW = 1000.0
PATIENT = LossRules(patience=300.0)
QUEUES = (
    QueueInfo(name="owner", deserved={"gpu": 4.0}),
    QueueInfo(name="guest", deserved={"gpu": 0.0}),
)


def ending(name, nodes, *, after, gpus=1, queue="guest", **more):
    """A running gang that is expected to end so many seconds from now."""
    ran = gang(name, nodes=nodes, gpus=gpus, queue=queue, created=0, **more)
    return replace(ran, expected_runtime=NOW + after)


def waiting(name, pods=1, gpus=1, *, queue="owner", since=NOW - 10, **more):
    return gang(name, pods=pods, gpus=gpus, queue=queue, created=since, **more)


def planned(*gangs, nodes=None, rules=PATIENT, now=NOW):
    return world(nodes or {"a": 2}, *gangs, queues=QUEUES, loss_rules=rules).plan(now)


def test_an_end_in_time_spares_the_others():
    gangs = ending("soon", "a", after=200), ending("later", "a", after=9000), waiting("new")
    plan = planned(*gangs)
    assert evicted(plan) == []
    assert [each.gang for each in plan.unplaced] == ["default/Gang/new"]
    assert "expected to end soon" in plan.unplaced[0].message
    assert len(evicted(planned(*gangs, rules=LossRules()))) == 1


@pytest.mark.parametrize("after", [301, 9000])
def test_an_end_too_late_does_not_help(after):
    assert evicted(planned(ending("late", "aa", after=after, floor=1), waiting("new")))


def test_without_declaration_or_history_nothing_waits():
    assert evicted(planned(gang("runs", nodes="aa", queue="guest"), waiting("new")))


def test_no_gang_waits_longer_than_its_patience():
    gangs = ending("soon", "aa", after=200), waiting("new", since=NOW - 301)
    assert evicted(planned(*gangs))


def just_started(name, nodes, *, runtime):
    """A running gang whose pods were bound 20 seconds ago."""
    ran = gang(name, nodes=nodes, gpus=1, queue="guest", created=0)
    members = tuple(replace(each, bound_since=START + NOW - 20) for each in ran.members)
    return replace(ran, members=members, expected_runtime=runtime)


@pytest.mark.parametrize(
    ("deserved", "gpus", "waits"), [(4.0, 4, 300), (0.0, 2, 1200), (0.0, 4, math.inf)]
)
@pytest.mark.parametrize("minimum", [0.0, 600.0])
def test_a_stream_of_short_pods_keeps_no_gang_out(deserved, gpus, waits, minimum):
    """Pods that just started, or are within their min runtime; the next one would follow them."""
    owner, guest = QUEUES
    owner = replace(owner, deserved={"gpu": deserved})
    queues = owner, replace(guest, reclaim_min_runtime=minimum)
    rules = LossRules(patience=300.0, settling=150.0)

    def planned_at(now, waited):
        short = [just_started(f"short-{n}", "a", runtime=200.0 * n) for n in (1, 2, 3)]
        large = waiting("large", gpus=gpus, since=now - waited)
        following = replace(waiting("next", queue="guest"), expected_runtime=600.0)
        made = world({"a": 4}, *short, large, following, queues=queues, loss_rules=rules)
        return made.plan(now)

    assert placed(planned_at(NOW, min(waits, 2000) - 1)) == {"next-0": "a"}
    if waits == math.inf:
        assert placed(planned_at(NOW, 2000)) == {"next-0": "a"}
        return
    plan = planned_at(NOW, waits + 1)
    assert (placed(plan), evicted(plan)) == ({}, [])
    later = planned_at(NOW + 131, waits + 1)
    assert bool(evicted(later)) == (minimum == 0)


def test_what_one_gang_waits_for_is_not_there_for_the_next():
    gangs = [ending("soon", "a", after=200), ending("later", "a", after=9000)]
    plan = planned(*gangs, waiting("first", since=NOW - 20), waiting("second"))
    assert len(evicted(plan)) == 1
    assert [n.pod.name for n in plan.nominations] == ["second-0"]


def test_all_pods_of_a_gang_must_fit_in_time():
    one, both = ending("other", "a", after=9000), ending("other", "a", after=250)
    assert evicted(planned(ending("soon", "a", after=200), one, waiting("new", 2)))
    assert not evicted(planned(ending("soon", "a", after=200), both, waiting("new", 2)))


def test_a_gang_that_may_evict_no_pod_reserves_nothing():
    """``guest`` is above its share: its large pod must not keep others from the idle GPU."""
    gangs = ending("soon", "a", after=200), waiting("large", gpus=2, queue="guest")
    assert placed(planned(*gangs, waiting("small", queue="guest", since=NOW - 5)))


def test_a_node_that_drains_takes_only_what_ends_before():
    large = waiting("large", gpus=2, since=NOW - 50)
    short = replace(waiting("short", queue="guest"), expected_runtime=150.0)
    long = replace(waiting("long", queue="guest"), expected_runtime=900.0)
    assert not placed(planned(ending("soon", "a", after=200), large, long))
    assert list(placed(planned(ending("soon", "a", after=200), large, short))) == ["short-0"]


def test_a_preemptor_waits_as_well():
    low = ending("low", "aa", after=100, queue="owner")
    assert evicted(planned(low, waiting("urgent", priority=9))) == []
    assert evicted(planned(low, waiting("urgent", priority=9), rules=LossRules()))


@pytest.mark.parametrize("kind", ["Deployment", "LeaderWorkerSet", "InferenceService"])
def test_what_serves_requests_does_not_wait(kind):
    owner = Owner("apps/v1", kind, "default", "serve", "uid")
    serves = replace(waiting("urgent", priority=9), owner=owner)
    assert evicted(planned(ending("low", "aa", after=100, queue="owner"), serves))


@pytest.mark.parametrize(("waited", "left"), [(10, 200), (250, 50)])
def test_the_expected_end_is_a_deadline_and_so_is_that_of_the_patience(waited, left):
    """Pods that outlast what is expected of them are evicted, though nothing else changes."""
    gangs = ending("soon", "aa", after=200), waiting("new", since=NOW - waited)
    built = world({"a": 2}, *gangs, queues=QUEUES).snapshot(NOW)
    memory, settings = CycleMemory(ClusterDevices()), CycleSettings(loss_rules=PATIENT)
    run_cycle(built, settings, memory)
    assert next_deadline(built, settings, memory) == START + NOW + left


def test_a_queue_that_went_without_its_share_evicts_at_once():
    memory, settings = CycleMemory(ClusterDevices()), CycleSettings(loss_rules=PATIENT)
    for now in (NOW - 3600, NOW):
        soon = replace(ending("soon", "aa", after=200, floor=1), created=START)
        late = waiting("new", since=now - 10)
        plan = run_cycle(world({"a": 2}, soon, late, queues=QUEUES).snapshot(now), settings, memory)
    assert evicted(plan)


def test_the_largest_gang_gets_nodes_as_they_drain():
    rules = LossRules(reserve_after=600.0)
    running = ending("one", "a", after=200, gpus=2), ending("two", "b", after=400, gpus=1)
    large = waiting("large", 2, gpus=2, queue="guest", since=NOW - 700)
    small = waiting("small", queue="guest")
    nodes = {"a": 2, "b": 2}
    assert placed(planned(*running, large, small, nodes=nodes, rules=LossRules()))
    assert not placed(planned(*running, large, small, nodes=nodes, rules=rules))
    short = replace(small, expected_runtime=300.0)
    assert placed(planned(*running, large, short, nodes=nodes, rules=rules))
    early = waiting("large", 2, gpus=2, queue="guest", since=NOW - 500)
    assert placed(planned(*running, early, small, nodes=nodes, rules=rules))


@pytest.mark.parametrize(("device_class_name", "waits"), [("gpu.nvidia.com", True), ("no", False)])
def test_no_gang_waits_for_devices_that_its_claim_can_not_have(device_class_name, waits):
    ran = pod("old", 0, queue="guest", node="a", annotations={EXPECTED_RUNTIME: "20m"})
    ran = msgspec.structs.replace(ran, status=PodStatus(phase="Running", start_time=at(0.0)))
    on = [("a", "gpu-0"), ("a", "gpu-1")]
    wanted = {"name": "gpu", "exactly": {"deviceClassName": device_class_name, "count": 2}}
    made = cluster(
        *(device_class(), node("a", 0), gpu_slice("a", 2)),
        *(queue("owner", 2), queue("guest")),
        *(claim("old-gpu", 2, owner="old", held_by=["old"], on=on), claiming(ran, "old-gpu")),
        claim_of("new-gpu", wanted, owner="new"),
        claiming(pod("new", 0, queue="owner", created=NOW - 10), "new-gpu"),
        loss_rules=PATIENT,
    )
    [new] = made.plan(NOW).unplaced
    assert ("expected to end soon" in new.message) == waits
