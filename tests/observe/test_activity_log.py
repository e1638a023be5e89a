"""What the log says of what the scheduler did.

What is set aside is logged when it fails, not in each cycle in which it does.
"""

import io
import json
import logging

import pytest

from kai_py.api.settings import LogFormat
from kai_py.observe.activity_log import SetAsideLog, log_decisions, log_queue_change
from kai_py.observe.decision_log import DecisionLog
from kai_py.observe.log import BURST, PERIOD_SECONDS, Outages, RateLimit, configure_logging
from kai_py.plan.observations import SetAside
from kai_py.plan.plan import Action, Plan
from kai_py.watch.errors import Conflict, ServerError, TimedOut, Unreachable
from tests.support.records import replace
from tests.support.scenario import START, queue
from tests.support.worlds import gang, world


@pytest.fixture
def lines(logging_as_before):
    stream = io.StringIO()
    configure_logging(LogFormat.JSON, stream=stream)

    def read():
        text = stream.getvalue()
        stream.seek(0)
        stream.truncate()
        return [json.loads(line) for line in text.splitlines()]

    return read


def test_a_gang_that_is_placed_is_one_record(lines):
    train = gang("train", pods=3, gpus=4)
    before = world({"n1": 8, "n2": 8}, train)
    snapshot = before.snapshot(30.0)
    decisions = DecisionLog().record(before.plan(30.0), snapshot.gangs, START + 30)
    log_decisions(decisions, snapshot.gangs, 7, START + 30)
    [line] = lines()
    assert (line["gang"], line["queue"], line["cycle"]) == (train.key, "team", 7)
    assert (line["pods"], sorted(line["nodes"]), line["seconds"]) == (3, ["n1", "n2"], 30.0)
    assert (line["rule"], line["level"]) == ("allocate", "info")


def test_a_victim_is_told_with_rule_preemptor_and_numbers(lines):
    low = gang("low", node="n1", pods=2, gpus=4, priority=1)
    high = gang("high", pods=1, gpus=8, priority=5, created=10.0)
    before = world({"n1": 8}, low, high)
    snapshot, plan = before.snapshot(600.0), before.plan(600.0)
    decisions = DecisionLog().record(plan, snapshot.gangs, START + 600)
    log_decisions(decisions, snapshot.gangs, 1, START + 600)
    [line] = [each for each in lines() if each["message"].endswith("evicted")]
    assert (line["gang"], line["pods"], line["rule"]) == (low.key, 2, Action.PREEMPT)
    assert (line["preemptor"], line["preemptor_queue"]) == (high.key, "team")
    assert line["reason"] == plan.evictions[0].reason
    assert "priority" in line["reason"]


def test_a_gang_that_leaves_a_node_is_no_preemptor_of_itself(lines):
    low = gang("low", node="n1", pods=2, gpus=4, priority=1)
    before = world({"n1": 8}, low, gang("high", pods=1, gpus=8, priority=5, created=10.0))
    snapshot, plan = before.snapshot(600.0), before.plan(600.0)
    decisions = DecisionLog().record(plan, snapshot.gangs, START + 600)
    [evicted] = [each for each in decisions if each.gang == low.key and each.preemptor]
    log_decisions([replace(evicted, preemptor=low.key)], snapshot.gangs, 1, START + 600)
    [line] = lines()
    assert line["reason"] == evicted.message
    assert "preemptor" not in line
    assert "preemptor_queue" not in line


def test_a_changed_queue_names_what_it_did_not_have_before(lines):
    log_queue_change(queue("team", 8), queue("team", 8, 16, parent="all"))
    [changed] = lines()
    assert (changed["parent"], changed["max"]) == ("- -> all", "- -> gpu=16")


def test_changes_of_queues_are_told_and_statuses_are_not(lines):
    first = queue("team", 8, 16)
    log_queue_change(None, first)
    log_queue_change(first, replace(first, created=5.0, evictions=()))
    log_queue_change(first, queue("team", 4, 16, priority=7))
    log_queue_change(first, None)
    created, changed, deleted = lines()
    assert created["message"] == "queue team: created"
    assert changed["priority"] == "100 -> 7"
    assert changed["deserved"] == "gpu=8 -> gpu=4"
    assert "max" not in changed
    assert deleted["message"] == "queue team: deleted"


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_an_outage_is_one_record_at_its_start_and_one_at_its_end(lines):
    clock, log = Clock(), logging.getLogger("kai_py.commit.statuses.pod")
    outages = Outages(clock)
    for second in range(200):
        clock.now = float(second)
        outages.observe("patch", "Pod", 0, 0.0)
        outages.observe("watch", "Node", 0, 0.0)
        log.warning("status of pod %s: %s", f"p{second}", Unreachable("refused"))
        log.warning("watching %s: %s", "Node", TimedOut("late"))
        log.warning("lease %s: %s", "kai", ServerError("503"))
    clock.now = 200.5
    outages.observe("list", "Pod", 200, 0.1)
    outages.observe("list", "Node", 200, 0.1)
    begin, end = lines()
    assert (begin["endpoint"], begin["outage"]) == ("the API server", "begin")
    assert (end["outage"], end["seconds"], end["failed_calls"]) == ("end", 200.5, 400)


def test_an_outage_is_told_with_what_the_client_saw(lines):
    outages, failure = Outages(Clock()), "GET /apis: cannot connect to h:1: Connection refused"
    for _ in range(2):
        outages.observe("get", "Discovery", 0, 0.04, failure)
    (begin,) = lines()
    assert begin["message"] == f"the API server fails: {failure} (get Discovery, 0.0 s)"


def test_faults_of_one_kind_are_an_outage_of_that_kind(lines):
    outages = Outages(Clock())
    for _ in range(5):
        outages.observe("list", "Pod", 503, 0.1)
        outages.observe("list", "Node", 200, 0.1)
    outages.observe("list", "Pod", 200, 0.1)
    assert [(each["endpoint"], each["outage"]) for each in lines()] == [
        ("Pod", "begin"),
        ("Pod", "end"),
    ]


def test_a_single_failure_is_retried_and_not_told(lines):
    outages = Outages(Clock())
    for _ in range(5):
        outages.observe("list", "Pod", 0, 0.1)
        outages.observe("list", "Pod", 200, 0.1)
    assert lines() == []


def test_what_the_server_refuses_is_told(lines):
    logging.getLogger("kai_py.commit").warning("claim %s: %s", "a/b", Conflict("changed"))
    assert len(lines()) == 1


def test_a_text_is_repeated_a_few_times_a_minute_and_the_rest_counted():
    clock = Clock()
    limit = RateLimit(clock)

    def records(level=logging.WARNING):
        return [logging.LogRecord("x", level, "", 1, "pod %s", (n,), None) for n in range(100)]

    assert sum(map(limit, records())) == BURST
    assert all(map(limit, records(logging.INFO)))
    clock.now = PERIOD_SECONDS
    first, *_ = [each for each in records() if limit(each)]
    assert first.fields == {"suppressed": 100 - BURST}


def test_a_failure_is_logged_once_until_it_ends_or_differs(caplog):
    caplog.set_level(logging.ERROR)
    log = SetAsideLog()
    fails = Plan(set_aside=(SetAside("ns/Job/a", "no such number", "trace"),))
    differs = Plan(set_aside=(SetAside("ns/Job/a", "no such name", "trace"),))
    action = Plan(failed_extensions=(SetAside("action x", "action x failed"),))
    for plan in (fails, fails, fails, differs, differs, Plan(), fails, action, action):
        log.record(plan)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "a gang is set aside",
        "a gang is set aside",
        "a gang is set aside",
        "an extension is set aside",
    ]
    assert caplog.records[0].fields == {"gang": "ns/Job/a", "exception": "trace"}
