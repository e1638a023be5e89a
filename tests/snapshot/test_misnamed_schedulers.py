"""Pods whose schedulerName is almost ours are reported, and no other scheduler's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kai_py.api.problems import is_misspelling
from kai_py.api.records.core import Condition
from kai_py.plan.explain.objects import MAX_MISNAMED
from tests.support.scenario import cluster, node, pod, queue

OURS = "kai-scheduler"


def named(scheduler, name="p", at="", answered=False):
    found = pod(name, queue="team-a")
    conditions = (Condition(type="PodScheduled", status="False"),) if answered else ()
    return replace(
        found,
        spec=replace(found.spec, scheduler_name=scheduler, node_name=at),
        status=replace(found.status, conditions=conditions),
    )


def reported(*pods):
    snapshot = cluster(node("a"), queue("team-a", 8), *pods).snapshot()
    return [each.pod.name for each in snapshot.misnamed_schedulers]


@pytest.mark.parametrize(
    "scheduler", ["kai-schedular", "kai-schedulr", "kaischeduler", "Kai-Scheduler", "kai-shceduler"]
)
def test_a_misspelt_name_is_reported_at_the_pod(scheduler):
    plan = cluster(node("a"), queue("team-a", 8), named(scheduler)).plan()
    [problem] = plan.problems
    assert problem.object.name == "p"
    assert problem.message == (
        f'no pod with spec.schedulerName "{scheduler}" was ever placed; did you mean {OURS}?'
    )


@pytest.mark.parametrize(
    "scheduler", [OURS, "default-scheduler", "aws-scheduler", "kai-scheduler-2nd", "volcano", "kai"]
)
def test_other_names_are_not(scheduler):
    assert reported(named(scheduler)) == []


def test_a_scheduler_that_placed_a_pod_or_answered_exists():
    assert reported(named("kai-schedulr")) == ["p"]
    assert reported(named("kai-schedulr"), named("kai-schedulr", "other", at="a")) == []
    assert reported(named("kai-schedulr", answered=True)) == []


def test_it_is_reported_until_it_is_gone():
    ours = cluster(node("a"), queue("team-a", 8), named("kai-schedulr"))
    elsewhere = named("kai-schedulr", "other", at="a")
    ours.add(elsewhere)
    assert ours.snapshot().misnamed_schedulers == ()
    ours.remove(elsewhere)
    assert len(ours.snapshot().misnamed_schedulers) == 1
    ours.remove(named("kai-schedulr"))
    assert ours.snapshot().misnamed_schedulers == ()


def test_events_for_it_are_bounded():
    many = [named("kai-schedulr", f"p{i:03}") for i in range(MAX_MISNAMED + 5)]
    plan = cluster(node("a"), queue("team-a", 8), *many).plan()
    assert len(plan.problems) == MAX_MISNAMED


LETTERS = st.text("abcde", min_size=5, max_size=10)


@given(LETTERS, LETTERS)
def test_being_a_misspelling_is_mutual(left, right):
    assert is_misspelling(left, right) == is_misspelling(right, left)


@given(LETTERS, st.integers(0, 8))
def test_two_letters_swapped_are_one_edit(word, at):
    swapped = word[:at] + word[at : at + 2][::-1] + word[at + 2 :]
    assert swapped == word or is_misspelling(swapped, word)
