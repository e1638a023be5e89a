"""What is remembered of starts: a step of a cycle by itself, each condition of it alone."""

import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Stage
from kai_py.plan.session.startups import (
    AVOIDED_SECONDS,
    FORGET_SECONDS,
    MAX_BLAMES,
    SETTLED_SECONDS,
    Attempts,
    Blame,
    FailedStart,
    ReadyRule,
    Startups,
    has_ready_limit,
    min_member_is_ready,
    ready_rule,
    ready_rules,
    with_avoided_nodes,
)
from kai_py.snapshot.pod_failures import NodeRefusal
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.records import replace
from tests.support.scenario import START
from tests.support.worlds import gang, subgroup, world

NOW = START + 10_000.0
RULES = {"team": ReadyRule(300.0)}
RUNS = gang("runs", nodes="ab")
KEY = RUNS.key
WAITS = Unschedulable(Stage.NOT_READY, "it was started once")


def cycle(now, *gangs, unready=()):
    """A snapshot in which the pods of gangs ``unready`` are not ready."""
    seen = world({"a": 2, "b": 2}, *gangs).snapshot(now - START)
    starting = {each.key: {m.pod.uid: "" for m in each.bound} for each in unready}
    return replace(seen, starting=starting)


def attempts(**changed):
    known = Attempts(RUNS.owner.uid, 1, NOW - 900, 0.0, NOW - 600, NOW + 60, WAITS)
    return replace(known, **changed)


def blames(*tenants, age=0.0):
    return tuple(Blame(NOW - age, queue, namespace, key) for queue, namespace, key in tenants)


STATES = "ready", "unready", "gone"
TWO_TENANTS = ("q", "one", "g"), ("r", "two", "h")


@given(st.lists(st.tuples(st.sampled_from((1, 30, 59, 60)), st.sampled_from(STATES))))
def test_a_start_is_over_once_a_gang_has_been_ready_for_a_minute(steps):
    startups, now = Startups(attempts={KEY: attempts(timeout=0.0)}), NOW
    began = ready = None
    settled = False
    for seconds, state in steps:
        now += seconds
        if state == "gone":
            began = None
        elif state == "unready":
            if began is None or (ready is not None and now - ready >= SETTLED_SECONDS):
                began = now
            ready = None
        elif began is not None:
            ready = now if ready is None else ready
            if now - ready >= SETTLED_SECONDS:
                began, settled = None, True
        ready = None if began is None else ready
        gangs = () if state == "gone" else (RUNS,)
        startups.observe(cycle(now, *gangs, unready=gangs if state == "unready" else ()), RULES)
        assert startups.since == ({} if began is None else {KEY: (began, ready)})
        if settled:
            assert not startups.attempts


@pytest.mark.parametrize("ready", [None, NOW + 1000.0])
def test_a_start_takes_its_whole_time_again_once_the_clock_was_set_back(ready):
    startups = Startups(since={KEY: (NOW + 1000.0, ready)})
    startups.observe(cycle(NOW, RUNS, unready=(RUNS,)), RULES)
    assert startups.since == {KEY: (NOW, None)}


def test_the_minute_of_readiness_begins_again_once_the_clock_was_set_back():
    startups = Startups(since={KEY: (NOW - 400.0, NOW + 1000.0)})
    startups.observe(cycle(NOW, RUNS), RULES)
    assert startups.since == {KEY: (NOW - 400.0, NOW)}


@pytest.mark.parametrize("bound", ["ab", "a-"])
@pytest.mark.parametrize("rules", [RULES, {}])
def test_only_gangs_with_their_minimum_and_a_limit_are_timed(bound, rules):
    startups, made = Startups(), gang("runs", nodes=bound)
    startups.observe(cycle(NOW, made, unready=(made,)), rules)
    assert bool(startups.since) == (bound == "ab" and bool(rules))


@pytest.mark.parametrize(
    ("known", "is_present", "kept"),
    [
        ({}, True, True),
        ({"owner": "another"}, True, False),
        ({"timeout": 5.0}, True, False),
        ({"failed": NOW - FORGET_SECONDS - 1}, True, True),
        ({"failed": NOW - FORGET_SECONDS - 1}, False, False),
        ({"failed": NOW - FORGET_SECONDS + 1, "owner": "another"}, False, True),
    ],
)
def test_failed_starts_are_forgotten_with_their_gang(known, is_present, kept):
    startups = Startups(attempts={KEY: attempts(**known)})
    startups.observe(cycle(NOW, *((RUNS,) if is_present else ())), RULES)
    assert bool(startups.attempts) == kept


@pytest.mark.parametrize(
    ("age", "node", "kept"),
    [
        (0.0, "a", True),
        (AVOIDED_SECONDS - 1, "a", True),
        (AVOIDED_SECONDS, "a", False),
        (0.0, "x", False),
    ],
)
def test_blames_end_with_their_time_or_their_node(age, node, kept):
    found = blames(*TWO_TENANTS, age=age)
    device = "driver", "pool", "gpu-0"
    startups = Startups(blames={node: found}, device_blames={device: found})
    seconds = [AVOIDED_SECONDS - age] if age < AVOIDED_SECONDS else []
    assert list(startups.devices_to_avoid(NOW)) == [(device, each) for each in seconds]
    startups.observe(cycle(NOW), RULES)
    assert startups.blames == ({node: found} if kept else {})
    assert bool(startups.device_blames) == (age < AVOIDED_SECONDS)


@pytest.mark.parametrize(
    ("tenants", "avoided"),
    [
        (TWO_TENANTS, "2 gangs of 2 queues did not get ready on it"),
        ((*TWO_TENANTS, ("q", "one", "i")), "3 gangs of 2 queues did not get ready on it"),
        ((("q", "one", "g"),), ""),
        ((("q", "one", "g"), ("q", "two", "h")), ""),
        ((("q", "one", "g"), ("r", "one", "h")), ""),
    ],
)
def test_only_several_queues_and_namespaces_make_a_node_avoided(tenants, avoided):
    startups = Startups(blames={"a": blames(*tenants)})
    found = startups.avoided()
    assert [each.signal for each in found.values()] == ([avoided] if avoided else [])
    before = cycle(NOW)
    after = with_avoided_nodes(before, startups)
    assert (after is before) == (not avoided)
    assert ("a" in after.nodes.departures) == bool(avoided)
    assert with_avoided_nodes(before, startups).nodes is after.nodes, "compared by identity"
    known, other = after.nodes, cycle(NOW)
    assert with_avoided_nodes(other, startups).nodes is not known or not avoided
    startups.blames["b"] = startups.blames["a"]
    assert ("b" in with_avoided_nodes(other, startups).nodes.departures) == bool(avoided)


def test_a_refusal_blames_its_node_once_and_the_oldest_are_forgotten():
    refused = replace(RUNS, refusals=(NodeRefusal("a", "OutOfcpu", 1, NOW, NOW + 60.0),))
    startups = Startups(
        blames={"a": tuple(Blame(NOW, "q", "one", str(n)) for n in range(MAX_BLAMES))}
    )
    seen = replace(cycle(NOW, refused), refused=(KEY, "default/Gang/gone"))
    for _ in range(2):
        startups.observe(seen, RULES)
        assert len(startups.blames["a"]) == MAX_BLAMES
        assert [each.gang for each in startups.blames["a"]][:: MAX_BLAMES - 1] == ["1", KEY]


@pytest.mark.parametrize(
    ("known", "nodes", "is_held"),
    [
        ({}, "--", True),
        ({}, "a-", False),
        ({"until": NOW}, "--", False),
        ({"until": NOW + 1}, "--", True),
        ({"until": NOW + 3600 + 60}, "--", True),
        ({"until": NOW + 3600 + 61}, "--", False),  # the clock was set back
        ({"until": math.inf}, "--", True),
        (None, "--", False),
    ],
)
def test_a_gang_is_not_started_again_before_its_time(known, nodes, is_held):
    made = gang("runs", nodes=nodes)
    startups = Startups(attempts={KEY if known is not None else "gone": attempts(**(known or {}))})
    assert startups.held(cycle(NOW, made)) == ({KEY: WAITS} if is_held else {})


def failed(made=RUNS, *, allowed=3, nodes=(), devices=()):
    return FailedStart(made, ReadyRule(300.0, allowed), "it crashes", nodes, devices)


@pytest.mark.parametrize(
    ("before", "allowed", "count", "waits", "text"),
    [
        (
            0,
            3,
            1,
            60.0,
            "once and was not ready within 300 s: it crashes; it is started again 60 s",
        ),
        (1, 3, 2, 120.0, "it was started 2 times"),
        (2, 3, 3, math.inf, "it crashes; it stays pending until it is created again"),
        (0, 1, 1, math.inf, "it was started once"),
        (9, 99, 10, 3600.0, "again 3600 s after its eviction"),
    ],
)
def test_each_failed_start_doubles_the_wait_until_there_were_too_many(
    before, allowed, count, waits, text
):
    known = {KEY: attempts(count=before)} if before else {}
    startups = Startups(attempts=known, since={KEY: (NOW - 300, None)})
    assert startups.record([failed(allowed=allowed)], NOW) == ()
    found = startups.attempts[KEY]
    assert (found.count, found.until, found.failed) == (count, NOW + waits, NOW)
    assert (found.owner, found.last_bound) == (RUNS.owner.uid, RUNS.last_bound)
    assert text in found.reason.message
    assert startups.since == {}
    again = startups.attempts
    startups.record([failed(allowed=allowed)], NOW + 5)
    assert startups.attempts == again, "an eviction that is tried again is the same start"


def test_a_failed_start_blames_nodes_and_devices():
    device = ("driver", "pool", "gpu-0"), "a"
    old = tuple(Blame(NOW, "q", "one", str(n)) for n in range(MAX_BLAMES))
    startups = Startups(blames={"a": old}, device_blames={device[0]: old})
    [avoided] = startups.record([failed(nodes=("a", "b"), devices=(device,))], NOW)
    assert (avoided.key, avoided.node) == device
    assert [len(startups.blames[name]) for name in "ab"] == [MAX_BLAMES, 1]
    assert len(startups.device_blames[device[0]]) == MAX_BLAMES
    assert startups.device_blames[device[0]][-1] == Blame(NOW, "team", "default", KEY)


def test_a_cycle_is_due_whenever_a_time_ends():
    waiting = gang("waits", nodes="--")
    own = replace(RUNS.settings, ready_timeout=30.0)
    timed = replace(gang("timed", nodes="ab"), settings=own)
    startups = Startups(
        since={KEY: (NOW - 100, None), timed.key: (NOW - 10, None), "ready": (NOW - 99, NOW - 20)},
        attempts={waiting.key: attempts(until=NOW + 7), "ended": attempts(until=math.inf)},
        blames={
            "a": (*blames(TWO_TENANTS[0], age=5.0), *blames(TWO_TENANTS[1])),
            "b": blames(TWO_TENANTS[0], age=9999.0),
        },
    )
    seen = cycle(NOW, RUNS, timed, waiting)
    expected = [NOW + 7, NOW + 200, NOW + 20, NOW + 40, NOW + AVOIDED_SECONDS - 5]
    assert startups.wake_at(seen, RULES) == expected
    assert startups.wake_at(seen, {})[1] == NOW + 20, "without a timeout it is not due"


@pytest.mark.parametrize(
    ("queued", "own", "timeout"),
    [
        (300.0, None, 300.0),
        (300.0, 60.0, 60.0),
        (300.0, 300.0, 300.0),
        (300.0, 900.0, 300.0),
        (0.0, 60.0, 60.0),
        (0.0, None, 0.0),
        (None, 60.0, 60.0),
        (None, 0.0, 0.0),
    ],
)
def test_a_gang_has_the_shorter_time_of_its_queue_and_its_own(queued, own, timeout):
    made = replace(RUNS, settings=replace(RUNS.settings, ready_timeout=own))
    rules = {} if queued is None else {"team": ReadyRule(queued, 5)}
    assert ready_rule(made, rules).timeout == timeout
    assert has_ready_limit(made, rules) == bool(timeout)
    assert ready_rule(made, rules).attempts == (3 if queued is None else 5)


def test_rules_are_inherited_and_none_without_a_timeout():
    top = QueueInfo(name="top", ready_timeout=60.0)
    low = QueueInfo(name="low", parent="top", ready_attempts=7)
    other = QueueInfo(name="other")
    assert ready_rules([low, other]) == {}
    found = ready_rules([top, low, other])
    assert found == {
        "top": ReadyRule(60.0, 3),
        "low": ReadyRule(60.0, 7),
        "other": ReadyRule(0.0, 3),
    }


@pytest.mark.parametrize(
    ("ready", "enough"), [("", False), ("01", False), ("02", True), ("012", True)]
)
def test_enough_pods_of_each_subgroup_are_ready(ready, enough):
    """Three pods, of which the first two are of one subgroup."""
    tree = subgroup("", children=(subgroup("x", 1), subgroup("y", 1)))
    made = gang("g", nodes="abc", leaves="xxy", tree=tree)
    starting = {m.pod.uid: "" for n, m in enumerate(made.members) if str(n) not in ready}
    snapshot = SimpleNamespace(starting={made.key: starting})
    assert min_member_is_ready(snapshot, made) is enough
    assert min_member_is_ready(SimpleNamespace(starting={}), made)
