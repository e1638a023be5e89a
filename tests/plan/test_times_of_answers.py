"""How long what a cycle found holds: every reason for which it ends, each of them alone."""

import math
from types import SimpleNamespace

import pytest

from kai_py.plan.cycle.deadlines import UNFINISHED_PAUSE, next_deadline
from kai_py.plan.cycle.settled import SettledCycle, _depends_on_time
from kai_py.plan.observations import SetAside
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import ProtectionRule, Stage
from kai_py.plan.search_cache.inputs import Decisions, InputsChange
from kai_py.plan.session.settings import CycleSettings
from kai_py.plan.session.turns import FIRST_BACKOFF, FORGET_AFTER, TurnBackoff, updated_backoffs
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.records import replace
from tests.support.worlds import gang

NOW = 1000.0
DECISIONS = Decisions((), ("a",), (b"u",), (b"s",), "past", "scores")


@pytest.mark.parametrize(
    ("now", "change", "other", "holds"),
    [
        (NOW, InputsChange.UNCHANGED, {}, True),
        (NOW + 59.0, InputsChange.UNCHANGED, {}, True),
        (NOW + 60.0, InputsChange.UNCHANGED, {}, False),
        (NOW - 1.0, InputsChange.UNCHANGED, {}, False),
        (NOW, InputsChange.NO_DEPARTURES, {}, False),
        (NOW, InputsChange.UNCHANGED, {"shares": (b"other",)}, True),
        (NOW, InputsChange.UNCHANGED, {"placed": (("a", 0, None),)}, False),
        (NOW, InputsChange.UNCHANGED, {"evicted": ()}, False),
        (NOW, InputsChange.UNCHANGED, {"usage": (b"other",)}, False),
        (NOW, InputsChange.UNCHANGED, {"past_evictions": ""}, False),
        (NOW, InputsChange.UNCHANGED, {"scores": ""}, False),
    ],
)
def test_answers_hold_for_a_time_and_after_the_same_decisions(now, change, other, holds):
    settled = SettledCycle(DECISIONS, since=NOW, until=NOW + 60.0, gangs={})
    history = SimpleNamespace(change=change)
    assert settled.holds(history, replace(DECISIONS, **other), now) is holds


def unplaced(rule):
    return SimpleNamespace(protections=(SimpleNamespace(rule=rule),))


AGES = replace(gang("g", pods=1), settings=replace(gang("g").settings, ageing=3.0))


@pytest.mark.parametrize(
    ("fields", "pending", "told", "depends"),
    [
        ({}, [gang("g", pods=1)], [], False),
        ({"queues": [QueueInfo(name="q", reserve_after=60.0)]}, [], [], True),
        ({"active": ("reservation",)}, [], [], True),
        ({"waiting": ("gang",)}, [], [], True),
        ({"postponed": ("gang",)}, [], [], True),
        ({"default": 3.0}, [], [], True),
        ({"seconds": {"q": 0.0, "r": 3.0}}, [], [], True),
        ({"seconds": {"q": 0.0}}, [], [], False),
        ({}, [gang("g", pods=1), AGES], [], True),
        ({"settling": True}, [gang("g", pods=1)], [], True),
        ({"settling": True}, [], [], False),
        ({}, [], [unplaced(ProtectionRule.MIN_RUNTIME)], True),
        ({}, [], [unplaced(ProtectionRule.PRIORITY)], False),
    ],
)
def test_answers_that_time_alone_may_change_are_not_kept(fields, pending, told, depends):
    known = {"queues": [], "active": (), "waiting": (), "postponed": (), "settling": False}
    known |= {"default": 0.0, "seconds": {}} | fields
    state = SimpleNamespace(
        snapshot=SimpleNamespace(queues=known["queues"]),
        placer=SimpleNamespace(reservations=SimpleNamespace(active=known["active"])),
        waiting=known["waiting"],
        postponed=known["postponed"],
        ageing=SimpleNamespace(
            default=SimpleNamespace(seconds=known["default"]), seconds=known["seconds"]
        ),
        eviction_limits=SimpleNamespace(has_settling_pods=known["settling"]),
    )
    assert _depends_on_time(state, pending, told) is depends


def backoff(until):
    return TurnBackoff(1, until, Unschedulable(Stage.SCHEDULER_ERROR, ""))


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, None),
        ({"backoffs": {"n/a": backoff(NOW + 5.0), "n/b": backoff(NOW + 3.0)}}, 3.0),
        ({"extension_backoffs": {"a": backoff(NOW + 4.0)}}, 4.0),
        ({"backoffs": {"n/a": backoff(NOW)}}, None),
        ({"wake_at": NOW + 7.5}, 8.0),
        ({"counts_until": NOW + 6.0}, 6.0),
        ({"counts_until": math.inf}, None),
        ({"is_unfinished": True}, UNFINISHED_PAUSE),
        ({"evicted": NOW - 20.0}, 40.0),
        ({"evicted": NOW - 60.0}, None),
        ({"evicted": NOW - 20.0, "wake_at": NOW + 9.0}, 9.0),
    ],
)
def test_the_next_plan_is_due_at_the_first_moment_that_may_change_it(fields, found):
    known = {"backoffs": {}, "extension_backoffs": {}, "wake_at": None, "is_unfinished": False}
    evicted, until = fields.pop("evicted", None), fields.pop("counts_until", -math.inf)
    memory = SimpleNamespace(
        incomplete=SimpleNamespace(counts_until=until),
        evictions=SimpleNamespace(last_of=lambda _gang, _now: evicted or 0.0),
        **(known | fields),
    )
    short = gang("short", nodes="a", floor=2)
    snapshot = SimpleNamespace(
        now=NOW,
        queues=(),
        gangs={short.key: short},
        pending=(),
        below_min_members=() if evicted is None else (short.key,),
        started_in_part=(),
    )
    due = next_deadline(snapshot, CycleSettings(staleness_grace=60.0), memory)
    assert (None if due is None else due - NOW) == found


def test_failures_count_until_they_are_forgotten_and_their_gang_is_gone():
    failed = {"n/a": SetAside("n/a", "it failed", "trace")}
    first = updated_backoffs({}, failed, ["n/a", "n/b"], NOW)
    assert first["n/a"].failures == 1
    assert first["n/a"].until == NOW + FIRST_BACKOFF
    again = updated_backoffs(first, failed, ["n/a"], NOW + 50.0)
    assert (again["n/a"].failures, again["n/a"].until) == (2, NOW + 50.0 + 2 * FIRST_BACKOFF)
    end = first["n/a"].until + FORGET_AFTER
    assert updated_backoffs(first, {}, ["n/a"], end - 1.0) == first
    assert updated_backoffs(first, {}, ["n/a"], end) == {}
    assert updated_backoffs(first, failed, ["n/a"], end)["n/a"].failures == 1
    assert updated_backoffs(first, failed, ["n/b"], NOW) == {}
