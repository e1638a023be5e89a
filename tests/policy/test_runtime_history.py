"""What is learned from pods that end by themselves, and what is expected of those that run."""

import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.grouping.gang import Owner
from kai_py.policy.runtime_history import MAX_SAMPLES, MIN_SAMPLES, ExpectedEnds, RuntimeHistory
from tests.support.records import replace
from tests.support.scenario import START
from tests.support.worlds import gang


def observed(*runtimes, queue="team", history=None, at=1_000_000.0):
    """A history that has seen pods of ``queue`` end after these times, one after the other."""
    history = history or RuntimeHistory()
    for number, runtime in enumerate(runtimes):
        ran = running(f"ended-{number}", since=at, queue=queue)
        history.observe({ran.key: ran}, (), START + at)
        history.observe({}, uids(ran), START + at + runtime)
    return history


def uids(ran):
    return {member.pod.uid for member in ran.members}


def running(name, *, since=0.0, queue="team", declared=None):
    return replace(gang(name, nodes="a", queue=queue, created=since), expected_runtime=declared)


def expected_end(history, ran, now):
    return ExpectedEnds(history, START + now).end_of(ran, ran.members[0]) - START


def test_like_pods_are_expected_to_run_as_long():
    history = observed(600, 600, 600)
    assert expected_end(history, running("new", since=50), now=60) == 650
    assert ExpectedEnds(history, START).runtime_of(gang("next", pods=1)) == 600


def test_a_few_observations_say_nothing():
    history = observed(*[600] * (MIN_SAMPLES - 1))
    assert math.isinf(expected_end(history, running("new"), now=10))
    assert ExpectedEnds(history, START).runtime_of(gang("next", pods=1)) is None


def test_pods_that_outlast_what_was_observed_have_no_expected_end():
    assert math.isinf(expected_end(observed(600, 600, 600), running("new"), now=601))


def test_other_kinds_tell_nothing_but_other_queues_do():
    history = observed(600, 600, 600)
    assert expected_end(history, running("new", queue="other"), now=1) == 600
    larger = gang("larger", nodes="a", gpus=2)
    assert math.isinf(ExpectedEnds(history, START + 1).end_of(larger, larger.members[0]))
    wide = gang("wide", nodes="aa")
    assert math.isinf(ExpectedEnds(history, START + 1).end_of(wide, wide.members[0]))


def test_its_own_queue_comes_before_others():
    history = observed(60, 60, 60, queue="other", history=observed(600, 600, 600))
    assert expected_end(history, running("new"), now=1) == 600
    assert expected_end(history, running("new", queue="other"), now=1) == 60


def test_one_run_of_the_same_name_but_for_its_numbers_tells():
    once = observed(90, history=observed(600, 600, 600, queue="other"))
    assert expected_end(once, running("ended-20261122"), now=1) == 90
    assert expected_end(once, running("began-20261122"), now=1) == 600
    assert expected_end(once, running("ended-20261122", queue="third"), now=1) == 600
    assert expected_end(once, running("ended-20261122"), now=91) == 600, "it outlasts the other"


def test_a_declared_runtime_comes_first():
    history = observed(600, 600, 600)
    assert expected_end(history, running("new", declared=100.0), now=1) == 100
    assert expected_end(history, running("new", declared=100.0), now=200) == 600, "it overstays"


def test_a_pod_that_reaches_its_declared_runtime_and_goes_on_has_no_expected_end():
    ran = running("new", declared=50.0)
    assert expected_end(RuntimeHistory(), ran, now=49) == 50
    assert math.isinf(expected_end(RuntimeHistory(), ran, now=50))


def test_pods_that_did_not_succeed_tell_nothing():
    history = RuntimeHistory()
    for number in range(5):
        ran = running(f"deleted-{number}", since=1)
        history.observe({ran.key: ran}, (), START + 2)
        history.observe({}, (), START + 19)
    assert not history


def test_a_pod_that_succeeded_tells_although_its_gang_goes_on():
    history, pair = RuntimeHistory(), gang("pair-1", nodes="aa", queue="team", created=0)
    rest = replace(pair, members=pair.members[1:])
    history.observe({pair.key: pair}, (), START)
    history.observe({pair.key: rest}, {pair.members[0].pod.uid}, START + 90)
    later = gang("pair-2", nodes="aa", queue="team", created=50)
    assert expected_end(history, later, now=60) == 140


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=40), st.integers(0, 1000))
def test_the_expected_end_is_one_that_was_observed_and_has_not_passed(runtimes, age):
    history, new = observed(*runtimes), gang("new", pods=1)
    found = history.expected_runtime(new, new.members[0], age)
    longer = [each for each in runtimes[-MAX_SAMPLES:] if each > age]
    assert (found is not None) == (len(longer) >= MIN_SAMPLES)
    assert found is None or (found in longer and found >= sorted(longer)[len(longer) // 2])


def test_what_serves_requests_tells_nothing_and_has_no_expected_end():
    serving = Owner("apps/v1", "Deployment", "default", "serve", "uid")
    history = RuntimeHistory()
    for number in range(MIN_SAMPLES):
        scaled_down = replace(running(f"serve-{number}", since=1000), owner=serving)
        history.observe({scaled_down.key: scaled_down}, (), START + 1000)
        history.observe({}, uids(scaled_down), START + 1600)
    assert not history
    ran = replace(running("serve"), owner=serving)
    assert math.isinf(expected_end(observed(600, 600, 600), ran, now=10))


@pytest.mark.parametrize(
    ("states", "runtime"), [("rr", 100.0), ("ww", 700.0), ("rw", 700.0), ("", 0.0)]
)
def test_pods_to_start_say_how_long_a_gang_runs_and_those_that_run_if_none_is_left(states, runtime):
    made = gang("g", nodes=states.replace("r", "a").replace("w", "-"))
    members = tuple(replace(each, charge={"gpu": n + 1.0}) for n, each in enumerate(made.members))
    known = {"a": 100.0, "": 700.0}
    history = SimpleNamespace(expected_runtime=lambda _gang, member: known[member.node])
    ends = ExpectedEnds(history, START)
    assert ends.runtime_of(replace(made, members=members)) == runtime
