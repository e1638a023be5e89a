"""Bound pods that have not started are shown as starting, on all surfaces alike."""

from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from kai_py.api.records.core import Condition, PodStatus
from kai_py.cli.explanation_text import described
from kai_py.cli.top_through_scheduler import _gang as live_gang
from kai_py.observe.explanation import Explainer
from kai_py.observe.gang_rows import gang_page, gang_rows
from tests.support.scenario import at, cluster, job, node, pod, queue

KEY = "default/Job/train"


def reported(one, *, ready):
    """The pod as its kubelet reports it."""
    condition = Condition(
        type="Ready", status="True" if ready else "False", last_transition_time=at(0.0)
    )
    phase = "Running" if ready else "Pending"
    return replace(one, status=PodStatus(phase=phase, conditions=(condition,)))


def views(*ready, parallelism=None):
    """The row, explanation and dashboard entry of a gang whose pods are ready or not."""
    owner = job("train", parallelism or len(ready), "q")
    pods = [
        reported(pod(f"train-{number}", 1, owner=owner, node="a"), ready=each)
        for number, each in enumerate(ready)
    ]
    made = cluster(node("a"), queue("q", 8), owner, *pods)
    plan, snapshot = made.plan(1), made.snapshot(1)
    [row] = [row for row in gang_rows(snapshot, plan) if row.gang == KEY]
    view = SimpleNamespace(snapshot=snapshot, number=1)
    [entry] = gang_page(view, queue="", search="", limit=9).gangs
    return row, Explainer(snapshot, plan).explain(KEY), entry


@pytest.mark.parametrize(
    ("ready", "state", "starting"),
    [
        ((True, True), "Running", 0),
        ((True, False), "Starting", 1),
        ((False, False), "Starting", 2),
    ],
)
def test_a_gang_starts_until_min_member_pods_have_started(ready, state, starting):
    row, explanation, entry = views(*ready)
    assert (row.state, row.starting) == (state, starting)
    assert (explanation.state, explanation.starting) == (state, starting)
    assert (entry.bound, entry.starting) == (2, starting)
    assert live_gang(row).running == (2 if state == "Running" else 0)


def test_a_gang_that_runs_below_min_member_is_shown_so():
    row, explanation, _ = views(True, True, parallelism=3)
    assert (row.bound, row.min_members, row.state) == (2, 3, "BelowMinMember")
    assert (explanation.state, explanation.message) == (row.state, row.message)
    assert row.message.startswith(
        "Fewer pods than minMember run: unless the lost ones are replaced"
    )
    assert "is pending (BelowMinMember): 2 of 2 pods run, minMember is 3" in described(explanation)


def test_an_elastic_pod_starts_beside_a_running_gang():
    row, explanation, _ = views(True, True, False, parallelism=2)
    assert (row.min_members, row.state, row.starting) == (2, "Running", 1)
    assert live_gang(row).running == 2
    assert explanation.state == "Running"


def test_the_explanation_says_how_many_pods_have_not_started():
    _, explanation, _ = views(True, False)
    assert described(explanation).startswith(
        f"{KEY} is starting: 2 of 2 pods are bound (1 not started yet), minMember is 2."
    )
    _, explanation, _ = views(True, True)
    assert described(explanation).startswith(f"{KEY} is running: 2 of 2 pods run, minMember is 2.")
