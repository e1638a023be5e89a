"""A gang or queue with which a cycle can't be opened is left out, and the others are planned."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.plan.actions.turnover import Turnover
from kai_py.plan.cycle import left_out, opening
from kai_py.plan.cycle.left_out import LeftOut, find_failing, without
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.cycle.run import run_cycle
from kai_py.plan.plan import Action, Stage
from kai_py.plan.session.settings import CycleSettings
from kai_py.policy.lost_work import LossRules
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.records import replace
from tests.support.scenario import START, evicted, placed
from tests.support.worlds import gang, world

API = "scheduling.kai.io/v1alpha1"
QUEUES = (
    QueueInfo(name="top", deserved={"gpu": 4}, max={"gpu": 4}, api_version=API),
    QueueInfo(name="bad", parent="top", deserved={"gpu": 2}, api_version=API),
    QueueInfo(name="below", parent="bad", deserved={"gpu": 2}),
    QueueInfo(name="team", parent="top", deserved={"gpu": 2}),
    QueueInfo(name="other", deserved={"gpu": 4}),
)
PARTS = (
    "_quota",
    "_spares",
    "_shape_placer",
    "CycleDevices",
    "Statement",
    "EvictionLimits",
    "quota_of",
    "scoring_of",
    "due_amounts",
)
"""What opening a cycle calls with a snapshot, or with something of it."""


class Broken(RuntimeError):
    pass


def played(before, memory, now=1000.0, **settings):
    return run_cycle(before.snapshot(now), CycleSettings(**settings), memory)


def break_for(monkeypatch, part, is_bad):
    """The part of opening a cycle fails with a snapshot for which ``is_bad``."""
    whole, known = getattr(opening, part), {}
    start = CycleMemory.start_cycle

    def start_cycle(self, snapshot, settings):
        known["snapshot"] = snapshot
        start(self, snapshot, settings)

    def failing(*args, **options):
        if is_bad(known["snapshot"]):
            raise Broken("no such\nnumber")
        return whole(*args, **options)

    monkeypatch.setattr(CycleMemory, "start_cycle", start_cycle)
    monkeypatch.setattr(opening, part, failing)


def has_gang(snapshot: Snapshot) -> bool:
    return any(each.owner.name.startswith("bad") for each in snapshot.gangs.values())


def has_queue(snapshot: Snapshot) -> bool:
    return any(each.name == "bad" for each in snapshot.queues)


@pytest.mark.parametrize("part", PARTS)
def test_a_gang_that_makes_opening_fail_is_left_out(part, monkeypatch):
    break_for(monkeypatch, part, has_gang)
    memory = CycleMemory(ClusterDevices())
    waiting = [gang(f"good{n}", pods=2, created=n) for n in range(5)]
    before = world({"n": 4}, gang("bad", pods=1), *waiting)
    settings = {"loss_rules": LossRules(patience=60.0)}
    plan = played(before, memory, **settings)
    assert set(placed(plan)) == {"good0-0", "good0-1", "good1-0", "good1-1"}
    [failure] = plan.set_aside
    assert failure.gang == "default/Gang/bad"
    assert "Broken" in failure.error
    reasons = {each.gang: each for each in plan.unplaced}
    assert reasons["default/Gang/bad"].stage is Stage.SCHEDULER_ERROR
    assert reasons["default/Gang/bad"].message == (
        "planning it failed (Broken: no such number); it is set aside and tried again after 10 s."
    )
    assert reasons["default/Gang/good2"].stage is Stage.RESOURCES
    assert not plan.failed_extensions


def test_it_is_tried_again_when_its_backoff_ends(monkeypatch):
    break_for(monkeypatch, "quota_of", has_gang)
    memory = CycleMemory(ClusterDevices())
    before = world({"n": 8}, gang("bad", pods=1), gang("good", pods=2))
    told = [now for now in range(1000, 1040) if played(before, memory, float(now)).set_aside]
    assert told == [1000, 1010, 1030]
    for now in (1041.0, 1060.0):
        plan = played(before, memory, now)
        assert set(placed(plan)) == {"good-0", "good-1"}
        assert {each.gang for each in plan.unplaced} == {"default/Gang/bad"}
    monkeypatch.undo()
    assert "bad-0" in placed(played(before, memory, 1071.0))
    played(world({"n": 8}), memory, 1072.0)
    played(world({"n": 8}), memory, 1073.0)
    assert not memory.left_out, "a deleted gang is forgotten"


def test_what_a_gang_that_is_left_out_holds_is_counted_and_it_is_no_victim(monkeypatch):
    break_for(monkeypatch, "Statement", has_gang)
    before = world(
        {"n": 2, "m": 2},
        gang("bad", node="n", pods=2),
        gang("low", node="m", pods=2, priority=1),
        gang("urgent", pods=1, gpus=2, priority=10),
    )
    plan = played(before, CycleMemory(ClusterDevices()))
    assert evicted(plan) == ["low-0", "low-1"]
    [share] = plan.queues
    assert share.allocated["gpu"] == 4 + 2 - 2
    assert [each.gang for each in plan.set_aside] == ["default/Gang/bad"]


@pytest.mark.parametrize("count", [2, 40])
def test_many_gangs_that_fail_are_left_out(count, monkeypatch):
    break_for(monkeypatch, "scoring_of", has_gang)
    bad = [gang(f"bad{n}", pods=1) for n in range(count)]
    theirs = [replace(each, owner=replace(each.owner, namespace="theirs")) for each in bad]
    fine = gang("fine", pods=1)
    fine = replace(fine, owner=replace(fine.owner, namespace="theirs"))
    before = world({"n": 99}, *theirs, gang("good", pods=2), fine)
    plan = played(before, CycleMemory(ClusterDevices()))
    together = count > left_out.MAX_FOUND
    assert set(placed(plan)) == {"good-0", "good-1"} | (set() if together else {"fine-0"})
    assert len(plan.set_aside) == count + together


@pytest.mark.parametrize("part", PARTS)
def test_a_queue_that_makes_opening_fail_is_left_out(part, monkeypatch):
    break_for(monkeypatch, part, has_queue)
    memory = CycleMemory(ClusterDevices())
    before = world(
        {"n": 12},
        gang("runs", node="n", pods=1, queue="bad"),
        gang("runs-below", node="n", pods=1, queue="below"),
        gang("waits", pods=1, queue="below"),
        gang("good", pods=2, queue="team"),
        gang("more", pods=1, queue="team", created=1),
        gang("fine", pods=2, queue="other"),
        queues=QUEUES,
    )
    settings = {"loss_rules": LossRules(patience=60.0)}
    plan = played(before, memory, **settings)
    assert set(placed(plan)) == {"good-0", "good-1", "fine-0", "fine-1"}, "top is full then"
    reasons = {each.gang: each for each in plan.unplaced}
    assert reasons["default/Gang/waits"].stage is Stage.SCHEDULER_ERROR
    assert 'queue "below", or one above it, ' in reasons["default/Gang/waits"].message
    assert reasons["default/Gang/more"].stage is Stage.QUEUE_MAX
    assert [each.gang for each in plan.failed_extensions] == ["queue bad"]
    [problem] = plan.problems
    assert (problem.object.kind, problem.object.name) == ("Queue", "bad")
    assert problem.message == (
        "queue bad failed (Broken: no such number); it is set aside and tried again after 10 s."
    )
    again = played(before, memory, 1001.0, **settings)
    assert set(placed(again)) == {"good-0", "good-1", "fine-0", "fine-1"}
    assert not again.failed_extensions, "told once"
    monkeypatch.undo()
    later = {each.gang: each for each in played(before, memory, 1011.0, **settings).unplaced}
    assert later["default/Gang/waits"].stage is Stage.QUEUE_MAX


def test_a_failure_of_what_is_remembered_ends_with_it(monkeypatch):
    memory = CycleMemory(ClusterDevices())
    before = world({"n": 8}, gang("good", pods=2))
    played(before, memory)
    remembered = memory.pending

    def updated(self, snapshot):
        if self is remembered:
            raise Broken
        return type(self)(snapshot.gangs, snapshot.pending)

    monkeypatch.setattr(type(remembered), "updated", updated)
    plan = played(before, memory, 1001.0)
    assert set(placed(plan)) == {"good-0", "good-1"}
    assert [each.gang for each in plan.failed_extensions] == ["step opening"]
    assert not plan.set_aside


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("_spares", "spares"),
        ("scoring_of", "scores"),
        ("due_amounts", "served shares"),
    ],
)
def test_a_part_that_always_fails_is_done_without(part, name, monkeypatch):
    break_for(monkeypatch, part, lambda _: True)
    before = world({"n": 8}, gang("good", pods=2), gang("large", pods=9))
    settings = {"loss_rules": LossRules(patience=60.0)}
    plan = played(before, CycleMemory(ClusterDevices()), **settings)
    assert set(placed(plan)) == {"good-0", "good-1"}
    assert {each.gang for each in plan.failed_extensions} == {f"step {name}", "step opening"}
    assert not plan.set_aside


def test_without_turnover_gangs_reclaim_at_once(monkeypatch):
    def failing(*_):
        raise Broken

    monkeypatch.setattr(Turnover, "__init__", failing)
    before = world(
        {"n": 2},
        gang("low", node="n", pods=2, queue="team"),
        gang("due", pods=2, queue="other"),
        queues=(QueueInfo(name="team"), QueueInfo(name="other", deserved={"gpu": 2})),
    )
    plan = played(before, CycleMemory(ClusterDevices()))
    assert evicted(plan) == ["low-0", "low-1"]
    assert {each.action for each in plan.evictions} == {Action.RECLAIM}


@given(
    bad=st.sets(st.integers(0, 30), max_size=8),
    pair=st.none() | st.tuples(st.integers(0, 30), st.integers(0, 30)),
)
def test_what_is_found_suffices_and_is_no_more_than_needed(bad, pair):
    gangs = [gang(f"g{n:02}", pods=1) for n in range(31)]
    snapshot = world({"n": 1}, *gangs).snapshot(START)

    def attempt(tried: Snapshot) -> Exception | None:
        names = {int(each.owner.name[1:]) for each in tried.gangs.values()}
        fails = bool(names & bad) or (pair is not None and names >= set(pair))
        return Broken() if fails else None

    found = find_failing(snapshot, attempt) if attempt(snapshot) else LeftOut()
    assert attempt(without(snapshot, found)) is None
    assert len(found.gangs) <= len(bad) + 1
    assert found.gangs <= {f"default/Gang/g{n:02}" for n in (*bad, *(pair or ()))}


def test_what_no_gang_or_queue_is_to_blame_for_is_not_found():
    snapshot = world({"n": 1}, gang("a", pods=1)).snapshot(START)
    assert find_failing(snapshot, lambda _: Broken()) is None
