"""What an assumed binding says of a pod, until it is withdrawn, and how long others hold."""

import math
from datetime import UTC, datetime

import pytest

from kai_py.api.gpu_share import SharedGpu
from kai_py.api.records.core import Condition, ObjectMeta, Pod, PodSpec, PodStatus
from kai_py.api.records.resource import ResourceClaim
from kai_py.snapshot.derived_pod import AssumedBinding, PodPlacement
from kai_py.snapshot.tables.assumptions import (
    LONGEST_BACKOFF,
    STUCK_AFTER_SECONDS,
    Assumptions,
    NominatedNode,
    StuckTerminations,
)
from tests.support.records import replace

CLAIM = ResourceClaim(metadata=ObjectMeta(name="made", uid="c"))


def test_all_that_a_binding_gives_a_pod_counts_until_it_is_withdrawn():
    assumptions, pod = Assumptions(60.0), Pod(metadata=ObjectMeta(name="p", uid="p"))
    gpus, amounts = (SharedGpu("g", 0),), {"cpu": 1.0}
    assumptions.assume(AssumedBinding("p", "n", gpus=gpus, new_claim=CLAIM, node_amounts=amounts))
    found = assumptions.placement(pod)
    assert found == PodPlacement("n", gpus=gpus, gets_claim=True, node_amounts=amounts)
    assumptions.assume(AssumedBinding("p", "m"))
    assert assumptions.placement(pod) == PodPlacement("m")
    assumptions.forget("p")
    assert assumptions.placement(pod) == PodPlacement("")


NOW = 1_000_000.0
WAITS = Pod(metadata=ObjectMeta(name="p", uid="p"))
DELETED = replace(
    WAITS, metadata=replace(WAITS.metadata, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
)


def with_status(pod=WAITS, **status):
    return replace(pod, status=PodStatus(**status))


def disrupted(**changed):
    preempted = {"status": "True", "reason": "PreemptionByScheduler", **changed}
    return with_status(DELETED, conditions=(Condition(type="DisruptionTarget", **preempted),))


@pytest.mark.parametrize(
    ("pod", "evicted", "terminating", "lingering"),
    [
        (WAITS, False, False, False),
        (WAITS, True, True, False),
        (DELETED, False, True, True),
        (DELETED, True, True, False),
        (disrupted(), False, True, False),
        (disrupted(status="False"), False, True, True),
        (disrupted(reason="DeletionByPodGC"), False, True, True),
    ],
)
def test_a_pod_that_no_scheduler_evicted_is_charged_until_it_is_gone(
    pod, evicted, terminating, lingering
):
    assumptions = Assumptions(60.0)
    if evicted:
        assumptions.evict("p")
    found = assumptions.placement(pod)
    assert (found.terminating, found.lingering) == (terminating, lingering)


def test_a_refused_eviction_is_not_tried_again_for_a_while():
    assumptions = Assumptions(60.0)
    assert not assumptions.cancel_eviction("p", NOW + 9), "it was not assumed"
    assert assumptions.refused_evictions(NOW) == frozenset()
    assumptions.evict("p")
    assert assumptions.cancel_eviction("p", 0.0)
    assert assumptions.refused_evictions(NOW) == frozenset()
    assumptions.evict("p")
    assert assumptions.cancel_eviction("p", NOW + 9)
    assert not assumptions.placement(WAITS).terminating
    assert assumptions.refused_evictions(NOW) == {"p"}
    assert assumptions.refused_evictions(NOW + 9) == frozenset()
    assert assumptions.refused_evictions(NOW) == frozenset(), "it is over for good"


@pytest.mark.parametrize(("waits", "holds"), [(9.0, True), (LONGEST_BACKOFF + 61.0, False)])
def test_a_gang_backs_off_until_its_time_unless_the_clock_was_set_back(waits, holds):
    assumptions = Assumptions(60.0)
    assumptions.back_off("g", NOW + waits, "the API is down")
    assert assumptions.in_backoff(NOW) == ({"g": "the API is down"} if holds else {})
    assert assumptions.in_backoff(NOW + waits) == {}


def test_a_nomination_holds_for_a_time_that_another_node_begins_again():
    assumptions = Assumptions(60.0)
    assumptions.nominate("p", "a", NOW)
    assumptions.nominate("p", "a", NOW + 30)
    assert assumptions.nominations(NOW + 59) == {"p": NominatedNode("a", NOW + 60)}
    assumptions.nominate("p", "b", NOW + 30)
    assert assumptions.placement(WAITS).nominated == "b"
    assert assumptions.nominations(NOW + 89) == {"p": NominatedNode("b", NOW + 90)}
    assert assumptions.nominations(NOW + 90) == {}
    assert assumptions.placement(WAITS).nominated == ""


def test_a_nomination_of_before_a_restart_begins_to_run_with_the_next_snapshot():
    assumptions = Assumptions(60.0)
    assumptions.observe(with_status(nominated_node_name="a"))
    assert assumptions.nominations(NOW) == {"p": NominatedNode("a", NOW + 60)}
    assumptions.observe(with_status(nominated_node_name="b"))
    assert assumptions.nominations(NOW) == {"p": NominatedNode("a", NOW + 60)}, "ours counts"


@pytest.mark.parametrize(
    ("seen", "ends"),
    [
        (WAITS, False),
        (replace(WAITS, spec=PodSpec(node_name="n")), True),
        (with_status(phase="Succeeded"), True),
        (with_status(phase="Running"), False),
    ],
)
def test_what_the_watch_shows_is_not_assumed_any_more(seen, ends):
    assumptions = Assumptions(60.0)
    assumptions.assume(AssumedBinding("p", "n"))
    assumptions.nominate("p", "n", NOW)
    assumptions.observe(seen)
    assert (assumptions.node_of("p") == "") is ends
    assert (assumptions.bound_uids() == frozenset()) is ends
    assert (assumptions.nominations(NOW) == {}) is ends


def test_a_pod_that_is_bound_needs_no_nomination_and_one_that_is_gone_nothing():
    assumptions = Assumptions(60.0)
    assumptions.nominate("p", "n", NOW)
    assumptions.assume(AssumedBinding("p", "n"))
    assert assumptions.nominations(NOW) == {}
    assumptions.nominate("p", "n", NOW)
    assumptions.evict("p")
    assumptions.cancel_eviction("p", NOW + 9)
    assumptions.evict("p")
    assumptions.remove(WAITS)
    assert assumptions.nominations(NOW) == {}
    assert assumptions.refused_evictions(NOW) == frozenset()
    assert not assumptions.placement(WAITS).terminating


@pytest.mark.parametrize(
    ("grace", "runs_until", "overdue_at"), [(30, None, 30), (60, None, 0), (100, -60, -40)]
)
def test_a_pod_that_was_deleted_with_a_long_grace_runs_until_little_of_it_is_left(
    grace, runs_until, overdue_at
):
    """Times are those from the end of its grace on."""
    ends = DELETED.metadata.deletion_timestamp.timestamp()
    pod = replace(DELETED, metadata=replace(DELETED.metadata, deletion_grace_period_seconds=grace))
    table, leaving = StuckTerminations(60.0), PodPlacement("n", terminating=True, lingering=True)
    table.observe(WAITS)
    assert table.next_change() == math.inf
    table.observe(pod)
    assert table.on(leaving, "p").terminating is (runs_until is None)
    by_scheduler = replace(leaving, lingering=False)
    assert table.on(by_scheduler, "p") == by_scheduler
    if runs_until is not None:
        assert table.next_change() == ends + runs_until
        assert table.update(ends + runs_until) == ("p",)
        assert table.on(leaving, "p").terminating
    assert table.next_change() == ends + overdue_at
    assert table.update(ends + overdue_at - 1) == ()
    assert not table.on(leaving, "p").overdue
    assert table.update(ends + overdue_at) == ("p",)
    assert table.on(leaving, "p").overdue
    assert not table.on(leaving, "p").stuck_terminating
    assert table.update(ends + STUCK_AFTER_SECONDS) == ("p",)
    assert table.on(leaving, "p").stuck_terminating
    table.observe(pod)
    assert table.next_change() == (math.inf if runs_until is None else ends + runs_until)


def test_a_pod_whose_grace_was_shortened_does_not_run_on():
    table, leaving = StuckTerminations(60.0), PodPlacement("n", terminating=True, lingering=True)
    for grace, terminates in ((3600, False), (60, True)):
        meta = replace(DELETED.metadata, deletion_grace_period_seconds=grace)
        table.observe(replace(DELETED, metadata=meta))
        assert table.on(leaving, "p").terminating is terminates
    table.remove(DELETED)
    assert table.next_change() == math.inf
