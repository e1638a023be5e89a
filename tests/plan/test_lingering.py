"""Pods that take long to end: their queue pays for them, and no pod is evicted in their place."""

import pytest
from msgspec.structs import replace

from kai_py.api.records.core import Condition
from kai_py.plan.plan import Stage
from tests.support.scenario import START, at, cluster, evicted, node, placed, pod, queue

GRACE = 1700
DAYS = 3 * 86400
PREEMPTED = Condition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
BY_API = Condition(type="DisruptionTarget", status="True", reason="EvictionByEvictionAPI")
NOW = 100


def deleted(each, *, at_second=90, grace=GRACE, by=None):
    """The pod as it is after its deletion at a second; ``by``: the condition that says who did."""
    ends = {"deletion_timestamp": at(at_second + grace), "deletion_grace_period_seconds": grace}
    conditions = (*each.status.conditions, *([by] if by else []))
    return replace(
        each,
        metadata=replace(each.metadata, **ends),
        status=replace(each.status, conditions=conditions),
    )


def running(name, gpus=4, **options):
    return pod(name, gpus, queue="q", node="a", **options)


def world(*pods, maximum=4.0, gpus=16):
    return cluster(queue("q", maximum, maximum), node("a", gpus), *pods)


def charged(seen, now=NOW):
    return seen.snapshot(now).queue_allocated.get("q", {}).get("gpu", 0)


@pytest.mark.parametrize("by", [None, BY_API])
@pytest.mark.parametrize("seconds", [1, 59, 61, GRACE + 3600])
def test_a_tenant_pays_for_what_it_deletes_until_it_is_gone(by, seconds):
    lingers = deleted(running("old"), at_second=0, by=by)
    seen = world(lingers, pod("new", 4, queue="q"))
    now = seconds
    assert charged(seen, now) == 4
    plan = seen.plan(now)
    assert [each.stage for each in plan.unplaced] == [Stage.QUEUE_MAX]
    expected = "workload requested 4 GPUs (of those allocated, 4 GPUs by terminating pods)"
    assert (expected in plan.unplaced[0].message) is (seconds < 60)
    seen.remove(lingers)
    assert placed(seen.plan(now)) == {"new": "a"}


def test_what_a_scheduler_evicts_is_not_charged_for_as_long_as_pods_take_to_end():
    seen = world(deleted(running("old"), at_second=0, by=PREEMPTED), pod("new", 4, queue="q"))
    assert charged(seen, 59) == 0
    assert seen.snapshot(59).next_overdue == START + 60
    assert charged(seen, 60) == 4
    assert seen.plan(61).unplaced


def test_what_is_being_evicted_is_not_charged_before_the_watch_shows_by_whom():
    lingers = running("old")
    seen = world(lingers)
    seen.builder.expect_eviction(lingers.metadata.uid)
    assert charged(seen) == 0
    seen.builder.apply("pods", lingers, deleted(lingers))
    assert charged(seen) == 0


def test_a_pod_on_no_node_is_not_charged():
    assert charged(world(deleted(pod("old", 4, queue="q")))) == 0


def low(name, gpus=4):
    return running(name, gpus, priority=1)


def test_no_victim_is_taken_for_quota_that_is_about_to_be_free():
    urgent = pod("urgent", 4, queue="q", priority=100)
    leaves = deleted(low("leaves"), at_second=0)
    seen = world(leaves, low("stays"), urgent, maximum=8)
    assert evicted(seen.plan(30)) == []
    # It takes too long: no other gang has to wait for that.
    assert evicted(seen.plan(61)) == ["stays"]


def test_no_pod_is_evicted_without_gain_while_a_lingering_pod_is_in_the_way():
    urgent = pod("urgent", 8, queue="q", priority=100)
    leaves = deleted(low("leaves"), at_second=0)
    seen = world(leaves, low("stays"), urgent, maximum=8)
    assert evicted(seen.plan(30)) == evicted(seen.plan(61)) == []
    seen.remove(leaves)
    assert evicted(seen.plan(62)) == ["stays"]


def test_a_node_that_is_about_to_be_free_is_waited_for():
    urgent = pod("urgent", 4, queue="q", priority=100)
    leaves = deleted(low("leaves"), at_second=0, by=PREEMPTED)
    plan = world(leaves, low("stays"), urgent, maximum=8, gpus=8).plan(30)
    assert evicted(plan) == []
    assert [each.pod.name for each in plan.nominations] == ["urgent"]


def test_one_that_deletes_again_and_again_has_never_more_than_its_maximum():
    """Each pod is deleted as soon as it runs, with a long grace, and another one is created."""
    seen, on_nodes = world(gpus=64), []
    for turn in range(6):
        fresh = pod(f"p{turn}", 4, queue="q")
        seen.add(fresh)
        for name in placed(seen.plan(10 * turn)):
            bound = running(name)
            seen.builder.apply("pods", fresh, bound)
            seen.builder.apply("pods", bound, deleted(bound, at_second=10 * turn))
            on_nodes.append(name)
    assert on_nodes == ["p0"]


def borrowing(*pods):
    owner = pod("owner", 4, queue="owner", created=0)
    return cluster(queue("owner", 4.0, 4.0), queue("q", 0.0, 4.0), node("a", 4), *pods, owner)


@pytest.mark.parametrize("by", [None, BY_API])
def test_a_pod_deleted_with_a_grace_of_days_is_evicted_like_any_other(by):
    runs_on = deleted(running("old"), at_second=0, grace=DAYS, by=by)
    seen = borrowing(runs_on)
    assert charged(seen) == 4
    plan = seen.plan(NOW)
    assert evicted(plan) == ["old"]
    assert [each.pod.name for each in plan.nominations] == ["owner"]
    shortened = deleted(running("old"), at_second=0, grace=300)
    seen.builder.apply("pods", runs_on, shortened)
    assert evicted(seen.plan(NOW)) == []


def test_a_pod_that_runs_on_ends_when_little_of_its_grace_is_left():
    seen = borrowing(deleted(running("old"), at_second=0, grace=DAYS))
    limit = DAYS - 1800
    assert seen.snapshot(NOW).next_overdue <= START + limit
    assert evicted(seen.plan(limit - 1)) == ["old"]
    assert evicted(seen.plan(limit + 1)) == []
