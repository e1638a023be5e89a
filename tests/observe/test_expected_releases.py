"""What frees up when: terminating pods and declared runtimes, as far as the gang needs it."""

from msgspec.structs import replace

from kai_py.api.records.core import Condition
from kai_py.observe.explanation import ExpectedRelease, Explainer, releases_for
from kai_py.policy.runtime_history import ExpectedEnds, RuntimeHistory
from tests.support.scenario import START, at, cluster, node, pod, queue


def release(at, gpus):
    return ExpectedRelease(float(at), float(gpus))


def explained(*objects, ends=None):
    ours = cluster(node("a", 8), queue("q", 8), *objects)
    return Explainer(ours.snapshot(), ours.plan(), ends).explain("default/Pod/waits")


def running(name, gpus, **given):
    runs = pod(name, gpus, queue="q", node="a", **given)
    bound = Condition(type="PodScheduled", status="True", last_transition_time=at(0.0))
    return replace(runs, status=replace(runs.status, conditions=(bound,)))


def test_a_gang_is_told_of_as_many_ends_as_it_needs():
    ours = cluster(node("a", 8), queue("q", 8), pod("waits", 4, queue="q"))
    gang = ours.snapshot().gangs["default/Pod/waits"]
    ends = [release(0, 1), release(10, 2), release(20, 2), release(30, 8)]
    assert releases_for(gang, ends) == (release(0, 1), release(10, 3), release(20, 5))
    assert releases_for(gang, ()) == ()


def test_pods_that_are_terminating_are_said_only_where_waiting_helps():
    leaving = pod("old", 8, queue="q", node="a", leaving=True)
    found = explained(leaving, pod("waits", 16, queue="q"))
    assert (found.is_infeasible, found.releases) == (True, ())


def test_a_declared_runtime_says_when():
    runs = running("old", 8, annotations={"scheduling.kai.io/expected-runtime": "1h"})
    found = explained(runs, pod("waits", 8, queue="q"))
    assert found.releases == (release(START + 3600.0, 8),)


def test_without_one_the_runtimes_of_earlier_pods_of_the_kind_say_when():
    history, past = RuntimeHistory(), cluster(node("a", 8), queue("q", 8), running("past", 4))
    gangs = past.snapshot().gangs
    uids = {member.pod.uid for gang in gangs.values() for member in gang.members}
    for _ in range(3):
        history.observe(gangs, (), START)
        history.observe({}, uids, START + 7200.0)
    ends = ExpectedEnds(history, START + 1000.0)
    declares = {"scheduling.kai.io/expected-runtime": "1h"}
    first, second = running("first", 4, annotations=declares), running("second", 4)
    found = explained(first, second, pod("waits", 8, queue="q"), ends=ends)
    assert found.releases == (
        release(START + 3600.0, 4),
        ExpectedRelease(START + 7200.0, 8.0, is_observed=True),
    )
