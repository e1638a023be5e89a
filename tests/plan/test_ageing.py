"""Waiting counts in every line that a gang stands in, and people see how much."""

import pytest

from kai_py.observe.explanation import Explainer
from kai_py.observe.gang_rows import gang_rows
from kai_py.observe.subject import gangs_of_queue
from kai_py.plan.plan import Stage
from tests.support.scenario import cluster, job_with_pods, node, placed, pod, queue

AGEING = "scheduling.kai.io/ageing"


def one_place(says="", **spec):
    """One GPU: ``low`` has waited for 1,000 seconds, ``high``, 10 points above, comes just now."""
    marks = {AGEING: says} if says else {}
    return cluster(
        node("a", 1),
        queue("team", 8, **spec),
        pod("low", queue="team", annotations=marks),
        pod("high", queue="team", priority=10, created=1000.0),
    )


@pytest.mark.parametrize(
    ("says", "spec", "first"),
    [
        ("", {}, "high"),
        ("100s", {}, "low"),
        ("101s", {}, "high"),
        ("", {"ageing": "100s"}, "low"),
        ("0s", {"ageing": "100s"}, "high"),
        ("1s", {"ageingLimit": 9}, "high"),
    ],
)
def test_a_gang_that_has_gained_enough_goes_first(says, spec, first):
    assert placed(one_place(says, **spec).plan(1000.0)) == {first: "a"}


def taken_place(ageing, priority, *waiting):
    """One GPU, on which ``runs`` has its place; ``low`` waits for it, and others."""
    return cluster(
        node("a", 1),
        queue("team", 8, ageing=ageing),
        pod("runs", queue="team", node="a", priority=priority),
        pod("low", queue="team"),
        *waiting,
    )


def test_what_was_gained_is_shown_with_the_place_in_line():
    waiting = taken_place("100s", 50, pod("high", queue="team", priority=9, created=1000.0))
    snapshot, plan = waiting.snapshot(1000.0), waiting.plan(1000.0)
    low = Explainer(snapshot, plan).explain("default/Pod/low")
    assert (low.queue_position, low.queue_length, low.priority, low.ageing_points) == (1, 2, 0, 10)
    rows = {row.gang: (row.priority, row.ageing_points) for row in gang_rows(snapshot, plan)}
    assert rows == {
        "default/Pod/low": (0, 10),
        "default/Pod/high": (9, 0),
        "default/Pod/runs": (50, 0),
    }
    line = gangs_of_queue(snapshot, plan, "team")
    assert line == ["default/Pod/low", "default/Pod/high", "default/Pod/runs"]


def test_it_evicts_no_pod_that_its_own_priority_may_not():
    assert not taken_place("1s", 5).plan(1000.0).evictions


def test_kept_nodes_are_open_to_higher_priority_only_as_long_as_that_is_higher():
    def kept(ageing):
        says = {"ageing": ageing} if ageing else {}
        return cluster(
            node("a"),
            queue("team", 8, reserveAfter="5m", **says),
            pod("old", 4, queue="team", node="a"),
            job_with_pods("big", 8, queue="team"),
            pod("urgent", queue="team", priority=10, created=999.0),
        )

    assert placed(kept("").plan(1000.0)) == {"urgent": "a"}
    plan = kept("100s").plan(1000.0)
    assert placed(plan) == {}
    assert {each.stage for each in plan.unplaced} >= {Stage.RESERVED}


def test_an_age_that_is_none_is_told():
    plan = one_place("soon").plan(1000.0)
    why = next(each for each in plan.unplaced if each.gang == "default/Pod/low")
    assert why.stage is Stage.INVALID
    assert f"{AGEING}: 'soon' is not a duration" in why.message
