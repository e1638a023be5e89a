"""What the story notes and which broken promises it finds, from happenings alone."""

from kai_py.demo.events import (
    ClaimChange,
    ClaimChanged,
    EventSeen,
    EvictionDecided,
    JobCompleted,
    PodChange,
    PodChanged,
)
from kai_py.demo.script import Expectation, Milestone, MilestoneReached
from kai_py.demo.verification import Verification
from kai_py.demo.workloads import DemoWorkload

GANG = DemoWorkload("gang", "q", 3, 1, min_available=3)
ELASTIC = DemoWorkload("elastic", "q", 3, 1, min_available=1)


def story():
    return Verification([GANG, ELASTIC])


def broken(told):
    """The promises that were broken; no milestones are expected, which would be missing as well."""
    return told.summary((), 1.0).missing


def pods(told, change, *names, gang="gang"):
    for name in names:
        told.apply(
            PodChanged(
                time=1.0,
                change=change,
                pod=f"default/{gang}-{name}",
                gang=f"default/Job/{gang}",
                queue="q",
                node="n",
            )
        )


def evict(told, action, *names, gang="gang"):
    for name in names:
        told.apply(
            EvictionDecided(
                time=1.0,
                action=action,
                pod=f"default/{gang}-{name}",
                gang=f"default/Job/{gang}",
                preemptor="default/Job/x",
                reason="",
            )
        )


def seen(told, milestone, workload="gang"):
    return told.has_reached([MilestoneReached(workload, milestone)])


def test_a_gang_has_started_when_all_its_pods_are_bound():
    told = story()
    pods(told, PodChange.BOUND, 0, 1)
    assert not seen(told, Milestone.STARTED)
    pods(told, PodChange.BOUND, 2)
    assert seen(told, Milestone.STARTED)
    assert not seen(told, Milestone.RETURNED)
    summary = told.summary((), 1.0)
    assert (summary.pods_bound, summary.gangs_started, summary.missing) == (3, 1, ())


def test_a_pod_that_runs_before_its_gang_is_bound_breaks_the_promise():
    told = story()
    pods(told, PodChange.BOUND, 0, 1)
    pods(told, PodChange.RUNNING, 0)
    assert broken(told) == (
        "gang ran with 2 pods, its minMember is 3",
        "gang was left with 2 pods bound",
    )


def test_a_gang_that_starts_again_must_be_whole_again():
    told = story()
    pods(told, PodChange.BOUND, 0, 1, 2)
    pods(told, PodChange.TERMINATING, 0, 1, 2)
    pods(told, PodChange.BOUND, 3)
    pods(told, PodChange.RUNNING, 3)
    assert broken(told) == (
        "gang ran with 1 pod, its minMember is 3",
        "gang was left with 1 pod bound",
    )


def test_a_gang_left_in_part_is_missing_from_the_summary():
    told = story()
    pods(told, PodChange.BOUND, 0, 1)
    assert broken(told) == ("gang was left with 2 pods bound",)


def test_pods_of_a_gang_may_finish_one_after_the_other():
    told = story()
    pods(told, PodChange.BOUND, 0, 1, 2)
    pods(told, PodChange.RUNNING, 0, 1)
    pods(told, PodChange.SUCCEEDED, 0)
    pods(told, PodChange.RUNNING, 2)
    pods(told, PodChange.SUCCEEDED, 1, 2)
    assert broken(told) == ()
    assert not seen(told, Milestone.PREEMPTED)


def test_an_eviction_is_preemption_or_reclaim_by_what_was_decided():
    told = story()
    pods(told, PodChange.BOUND, 0, 1, 2)
    evict(told, "preempt", 0, 1, 2)
    assert not seen(told, Milestone.PREEMPTED), "decided is not done"
    pods(told, PodChange.TERMINATING, 0, 1, 2)
    assert seen(told, Milestone.PREEMPTED)
    assert not seen(told, Milestone.RECLAIMED)
    pods(told, PodChange.BOUND, 3, 4, 5)
    assert seen(told, Milestone.RETURNED)
    assert told.summary((), 1.0).preemptions == 3


def test_an_elastic_gang_shrinks_and_grows():
    told = story()
    pods(told, PodChange.BOUND, 0, 1, 2, gang="elastic")
    evict(told, "reclaim", 1, gang="elastic")
    pods(told, PodChange.TERMINATING, 1, gang="elastic")
    assert seen(told, Milestone.RECLAIMED, "elastic")
    assert not seen(told, Milestone.RETURNED, "elastic")
    pods(told, PodChange.BOUND, 3, gang="elastic")
    assert seen(told, Milestone.RETURNED, "elastic")
    assert broken(told) == ()


def test_a_device_given_twice_breaks_the_promise():
    told = story()

    def claim(name, change):
        told.apply(ClaimChanged(time=1.0, change=change, claim=name, devices=("node/gpu-0",)))

    claim("a", ClaimChange.ALLOCATED)
    claim("a", ClaimChange.RELEASED)
    claim("b", ClaimChange.ALLOCATED)
    assert broken(told) == ()
    claim("c", ClaimChange.ALLOCATED)
    assert broken(told) == ("node/gpu-0 was allocated to b and to c",)


def test_the_summary_names_what_was_shown_and_what_is_missing():
    told = story()
    waits = EventSeen(
        time=1.0,
        level="Warning",
        reason="FailedScheduling",
        kind="Job",
        name="gang",
        note="no capacity",
        gang="default/Job/gang",
        node="",
    )
    told.apply(waits)
    told.apply(JobCompleted(time=2.0, gang="default/Job/elastic"))
    expected = (
        Expectation("it waited", (MilestoneReached("gang", Milestone.WAITED),)),
        Expectation("it started", (MilestoneReached("gang", Milestone.STARTED),)),
        Expectation("it completed", (MilestoneReached("elastic", Milestone.COMPLETED),)),
    )
    summary = told.summary(expected, 3.0)
    assert summary.shown == ("it waited", "it completed")
    assert summary.missing == ("it started",)
