"""Which rule keeps the capacity that a gang waits for: told with its numbers, and as the stage."""

import pytest
from msgspec.structs import replace

from kai_py.api.records.core import Condition
from kai_py.api.records.node import Taint
from kai_py.plan.plan import ProtectionRule, Stage
from tests.support.scenario import START, at, budget, cluster, job_with_pods, node, pod, queue

RULES = ProtectionRule


def waiting(*objects, now=1000.0, **settings):
    """What the one gang that waits is told."""
    [found] = cluster(*objects, **settings).plan(now).unplaced
    return found


def running(name, gpus, team, at="a", **options):
    return pod(name, gpus, queue=team, node=at, **options)


def halves():
    """A node that two queues share equally, and a pending pod of the first."""
    return (
        node("a"),
        queue("own"),
        queue("other"),
        running("mine", 4, "own"),
        running("theirs", 4, "other"),
        pod("new", 4, queue="own"),
    )


def test_the_own_queue_at_its_fair_share():
    found = waiting(*halves())
    assert found.stage is Stage.FAIR_SHARE
    first, *_ = found.protections
    assert (first.rule, first.queue, first.value, first.bound) == (RULES.FAIR_SHARE, "own", 8, 4)
    assert "queue own would have 8 GPUs allocated, above its fair share of 4" in found.message


def test_a_queue_within_its_fair_share_keeps_it():
    found = waiting(
        node("a", 4),
        node("b", 4, labels={"pool": "b"}, taints=(Taint(key="k", effect="NoSchedule"),)),
        queue("own", 4),
        queue("other", 4),
        running("theirs", 4, "other"),
        pod("new", 4, queue="own"),
    )
    assert found.stage is Stage.VICTIMS_PROTECTED
    [kept] = found.protections
    assert (kept.rule, kept.queue, kept.value, kept.bound) == (RULES.WITHIN_SHARE, "other", 4, 4)


def test_an_unlimited_guarantee_is_told_in_words():
    found = waiting(
        node("a"),
        queue("own"),
        queue("other"),
        running("theirs", 0, "other", requests={"cpu": "60"}),
        pod("new", 0, queue="own", requests={"cpu": "8"}),
    )
    told = "queue other has 60 CPU cores allocated, within its deserved quota, which is unlimited"
    assert [each.message for each in found.protections] == [told]


def test_a_min_runtime_is_told_with_its_end():
    theirs = running("theirs", 8, "other")
    bound = Condition(type="PodScheduled", status="True", last_transition_time=at(900))
    found = waiting(
        node("a"),
        queue("own", 8),
        queue("other", reclaimMinRuntime="1h"),
        replace(theirs, status=replace(theirs.status, conditions=(bound,))),
        pod("new", 4, queue="own"),
    )
    assert found.stage is Stage.VICTIMS_PROTECTED
    [kept] = found.protections
    assert (kept.rule, kept.queue) == (RULES.MIN_RUNTIME, "other")
    assert (kept.value, kept.bound) == (START + 1000, START + 900 + 3600)


@pytest.mark.parametrize("limit", [{"maxEvictionsPerHour": 0}, {}])
def test_pods_that_are_protected_for_now_are_reported_with_their_protection(limit):
    found = waiting(
        node("a"),
        queue("own", 8),
        queue("other", **limit),
        running("theirs", 8, "other", labels={"app": "web"}),
        *([] if limit else [budget(0)]),
        pod("new", 4, queue="own"),
    )
    assert found.stage is Stage.EVICTION_LIMITS
    [kept] = found.protections
    by = "maxEvictionsPerHour, which is 0" if limit else "PodDisruptionBudget default/web"
    assert (kept.rule, kept.message) == (
        RULES.EVICTION_LIMITS,
        f"pods of queue other are protected by {by}",
    )


def test_a_gang_that_fits_no_empty_cluster_lacks_capacity():
    found = waiting(
        node("a"), queue("own", 8), queue("other"), running("theirs", 4, "other"),
        job_with_pods("new", 9, queue="own"),
    )  # fmt: skip
    assert found.stage is Stage.RESOURCES
    assert found.protections == ()


def test_a_gang_behind_its_equals_lacks_capacity():
    found = waiting(
        node("a"), queue("own", 8), running("first", 8, "own"), pod("new", 4, queue="own")
    )
    assert found.stage is Stage.RESOURCES


def test_pods_that_are_never_candidates_are_not_called_protected():
    found = waiting(*halves(), actions=())
    assert found.stage is not Stage.FAIR_SHARE
