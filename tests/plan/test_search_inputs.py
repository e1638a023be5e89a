"""Whatever a search depends on: if it changes, no result of before is used."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum

import numpy as np
import pytest
from msgspec import Struct

from kai_py.plan.plan import Action
from kai_py.plan.search_cache.backoff import BackedOff, SearchBackoff
from kai_py.plan.search_cache.cache import SearchCache, SearchFailure, SearchKey
from kai_py.plan.search_cache.inputs import (
    ENTER_AS_FACTS,
    Decisions,
    InputsChange,
    InputsHistory,
    SearchInputs,
    inputs_change,
)
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.search_budgets import SearchBudgets
from kai_py.plan.session.settings import CycleSettings
from kai_py.plan.state.capacity import Capacity
from kai_py.snapshot.gang_changes import GangChanges
from kai_py.snapshot.snapshot import Snapshot
from tests.support.records import replace
from tests.support.scenario import cluster, job_with_pods, node, queue, shared

RUNS, WAITS = "default/Job/runs", "default/Job/waits"
DECISIONS = Decisions((("uid", 0, Capacity.IDLE),), ("other",), (b"1",), (b"2",), None, None)
KEY, FAILED = SearchKey("request"), SearchFailure(reason=None)


def snapshot():
    part = job_with_pods("part", 1, gpus=0, queue="a", node="n1")
    return cluster(
        queue("a", 2),
        node("n0", 2),
        node("n1", 2),
        job_with_pods("runs", 1, queue="a", node="n0"),
        [part[0], *(shared(each, "0.5") for each in part[1:])],
        job_with_pods("waits", 1, gpus=4, queue="a"),
    ).snapshot()


SNAPSHOT = snapshot()
SETTINGS = CycleSettings()


def compared_fields(value):
    """Names of the fields by which the parts of a cycle are compared; None of anything else."""
    if isinstance(value, Struct):
        return value.__struct_fields__
    if is_dataclass(value):
        return [each.name for each in fields(value) if each.init and each.compare]
    return None


def variants(value):
    """Values of the same type that differ in one place, by the name of the place."""
    names = compared_fields(value)
    if names is not None:
        for name in names:
            for path, other in variants(getattr(value, name)):
                yield f"{name}{path}", replace(value, **{name: other})
        return
    yield "", changed(value)
    if isinstance(value, Mapping):
        for key, first in list(value.items())[:1]:
            yield from ((f".{p}", {**value, key: other}) for p, other in inner(first))
    elif isinstance(value, tuple):
        for first in value[:1]:
            yield from ((f".{p}", (other, *value[1:])) for p, other in inner(first))


def changed(value):
    match value:
        case np.ndarray():
            other = value.copy()
            if not other.size or other.dtype.kind not in "bif":
                return np.ones(1)
            other.flat[0] = not other.flat[0] if other.dtype == bool else other.flat[0] + 1
            return other
        case Mapping():
            return {**value, "more": "more"}
        case tuple():
            return (*value, "more")
        case frozenset():
            return value | {"more"}
        case Enum():
            return next(each for each in type(value) if each is not value)
        case bool():
            return not value
        case int() | float():
            return value + 1.0
    return f"{value}-other"


def inner(value):
    return () if compared_fields(value) is None else variants(value)


def named(pairs):
    return [pytest.param(value, id=name) for name, value in pairs]


def snapshots():
    """The snapshot with one place of one field changed, but for fields that enter as facts."""
    for name in Snapshot.__struct_fields__:
        if name not in ENTER_AS_FACTS:
            for path, other in variants(getattr(SNAPSHOT, name)):
                yield f"{name}{path}", replace(SNAPSHOT, **{name: other})


def running_gangs():
    """Every place of a running gang and of its pod, but for the list of pods itself."""
    gang = SNAPSHOT.gangs[RUNS]
    for name in compared_fields(gang):
        if name != "members":
            for path, other in variants(getattr(gang, name)):
                yield f"{name}{path}", replace(gang, **{name: other})
    yield "no members", replace(gang, members=())
    for path, member in variants(gang.members[0]):
        yield f"members.{path}", replace(gang, members=(member,))


def used_after(inputs, decisions=DECISIONS, action=Action.RECLAIM):
    """Whether a result of the cycle before is used with these inputs."""
    cache, history = SearchCache(), InputsHistory()
    for each in (SearchInputs(SNAPSHOT, SETTINGS, (30.0,)), inputs):
        history.start_cycle(each)
        cache.start_cycle(history)
        if each is not inputs:
            cache.entries(Action.RECLAIM, DECISIONS).failures[KEY] = FAILED
    return KEY in cache.entries(action, decisions).failures


def with_snapshot(**changes):
    return SearchInputs(replace(SNAPSHOT, **changes), SETTINGS, (30.0,))


def test_a_result_is_used_while_nothing_changes():
    assert used_after(with_snapshot())
    assert used_after(SearchInputs(snapshot_again(), SETTINGS, (30.0,)))
    assert not used_after(with_snapshot(), action=Action.PREEMPT)


def snapshot_again():
    """The same cluster, its parts not the same objects as far as equality is defined for them."""
    return replace(SNAPSHOT, used=SNAPSHOT.used.copy(), queues=tuple(map(replace, SNAPSHOT.queues)))


@pytest.mark.parametrize("changed", named(snapshots()))
def test_every_field_of_the_snapshot_counts(changed):
    assert not used_after(SearchInputs(changed, SETTINGS, (30.0,)))


@pytest.mark.parametrize("changed", named(running_gangs()))
def test_everything_about_running_gangs_counts(changed):
    assert not used_after(with_snapshot(gangs={**SNAPSHOT.gangs, RUNS: changed}))


@pytest.mark.parametrize("changed", named(variants(SETTINGS)))
def test_every_setting_counts(changed):
    assert not used_after(SearchInputs(SNAPSHOT, changed, (30.0,)))


def test_a_result_does_not_outlive_the_backoff_of_a_candidate():
    assert not used_after(SearchInputs(SNAPSHOT, SETTINGS, (30.0,), frozenset({RUNS})))


@pytest.mark.parametrize("changed", named(variants(DECISIONS)))
def test_everything_decided_before_counts(changed):
    assert not used_after(with_snapshot(), changed)


def test_time_counts_by_the_min_runtimes_that_end():
    started = SNAPSHOT.gangs[RUNS].started
    assert np.isfinite(started)

    def at(seconds):
        return SearchInputs(replace(SNAPSHOT, now=started + seconds), SETTINGS, (30.0,))

    assert inputs_change(at(10.0), at(20.0)) is InputsChange.UNCHANGED
    assert inputs_change(at(20.0), at(40.0)) is InputsChange.CHANGED
    assert inputs_change(at(40.0), at(50.0)) is InputsChange.UNCHANGED


FACTS = {
    "now": "protected",
    "next_device": "devices",
    "next_overdue": "usage",
    "gangs": "gangs with pods on nodes",
    "gang_changes": "gangs with pods on nodes",
    "pending": "which gangs are tried",
    "in_backoff": "which gangs are tried",
    "ignored_markers": "which gangs are tried",
    "below_min_members": "what was decided before",
    "started_in_part": "what was decided before",
    "starting": "what was decided before",
    "misnamed_schedulers": "no pods of ours",
    "queue_allocated": "usage",
    "queue_non_preemptible": "usage",
    "queue_leaving": "usage",
    "queue_requested": "shares",
    "sharing": "usage",
}


def test_no_other_field_is_left_out():
    assert set(FACTS) == ENTER_AS_FACTS


def test_a_device_that_failed_counts_by_its_taint():
    assert used_after(with_snapshot(next_device=SNAPSHOT.now + 60.0))


TIMES = {"now", "next_device", "next_overdue"}


@pytest.mark.parametrize("name", sorted(set(FACTS) - {"gangs", "gang_changes"} - TIMES))
def test_fields_that_enter_as_facts_do_not_count_themselves(name):
    value = getattr(SNAPSHOT, name)
    more = {**value, "more": {}} if isinstance(value, Mapping) else (*value, "more")
    assert used_after(with_snapshot(**{name: more}))


def test_what_is_known_of_changes_does_not_count():
    assert used_after(with_snapshot(gang_changes=GangChanges(keys=tuple(SNAPSHOT.gangs))))


def test_gangs_that_only_wait_do_not_count():
    waits = SNAPSHOT.gangs[WAITS]
    coming = {**SNAPSHOT.gangs, "default/Job/more": replace(waits, key="default/Job/more")}
    assert used_after(with_snapshot(gangs=coming))
    assert used_after(
        with_snapshot(gangs={key: gang for key, gang in SNAPSHOT.gangs.items() if key != WAITS})
    )


def test_every_field_of_the_state_is_an_input_or_known_not_to_be():
    """A field that is added must be put into one of these."""
    inputs = {"snapshot", "settings", "quota", "statement", "placer", "eviction_limits", "turns"}
    inputs |= {"accounting"}
    order_of_gangs = {"ageing", "infeasible_gangs"}
    timing = {"waiting", "postponed", "first_postponed", "served", "due", "expected_ends"}
    results = {"unschedulable", "search_cache", "backoff", "report"}
    derived = {
        "empty_nodes",
        "ready_rules",
        "parts_of_cluster",
        "lost_work_of_pods",
        "freed_by_shape",
        "freed_devices_by_shape",
        "_charged",
        "_requests",
        "_skipped",
        "_preconditions",
        "_queue_refusals",
        "_reclaim_min_runtimes",
        "_lowest_priorities",
    }
    known = inputs | order_of_gangs | timing | results | derived
    assert {each.name for each in fields(CycleState)} == known | {"search_budgets", "spot"}
    budgets = {"probes", "probes_per_gang", "minimised_units"}
    order_of_gangs = {"out_of_probes_before", "cut_short_before", "searches_ended"}
    results = {"searched", "too_many_pods", "cut_short"}
    assert {each.name for each in fields(SearchBudgets)} == budgets | order_of_gangs | results


def test_nothing_is_kept_by_a_cache_that_is_disabled():
    cache, history = SearchCache(enabled=False), InputsHistory()
    for _ in range(2):
        history.start_cycle(with_snapshot())
        cache.start_cycle(history)
        entries = cache.entries(Action.RECLAIM, DECISIONS)
        assert not entries.failures
        entries.failures[KEY] = FAILED


@pytest.mark.parametrize(
    ("idle", "change", "kept"),
    [
        (0.0, {}, True),
        (-1.0, {"used": SNAPSHOT.used + 1}, True),
        (1.0, {"used": SNAPSHOT.used - 1}, False),
        (0.0, {"gangs": {}}, False),
        (0.0, {"namespaces": {"new": {}}}, False),
    ],
)
def test_a_search_backs_off_until_a_pod_has_left_or_a_node_has_come(idle, change, kept):
    backoff, history, before = SearchBackoff(), InputsHistory(), np.full((2, 2), 4.0)

    def cycle(inputs, future_idle):
        history.start_cycle(inputs)
        backoff.start_cycle(history)
        return backoff.searches(Action.CONSOLIDATE, DECISIONS, future_idle)

    cycle(with_snapshot(), before)[KEY] = BackedOff(FAILED, before)
    assert (KEY in cycle(with_snapshot(**change), before + idle)) == kept
