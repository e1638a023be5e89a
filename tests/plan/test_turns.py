"""What goes wrong while one gang is planned stays with that gang."""

import time

import pytest

from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.plan.actions.allocate_batch import EquivalentGangs
from kai_py.plan.actions.turnover import Turnover
from kai_py.plan.cycle import action_turns as actions
from kai_py.plan.cycle import opening, outcome, run
from kai_py.plan.cycle.deadlines import next_deadline
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.cycle.run import run_cycle
from kai_py.plan.placement.gang import Placer
from kai_py.plan.plan import Action, Stage
from kai_py.plan.session.settings import CycleSettings
from kai_py.plan.session.spot_choices import SpotChoices
from kai_py.plan.session.startups import Startups
from kai_py.plan.session.turns import CycleOverLimitError
from kai_py.plan.state import assignment
from kai_py.plan.state.eviction_limits import EvictionLimits
from kai_py.plan.state.statement import Statement
from kai_py.plan.victims import order
from kai_py.plan.victims.search import VictimSearch
from kai_py.policy.runtime_history import RuntimeHistory
from kai_py.watchdog import CycleTimer
from tests.support.records import replace
from tests.support.scenario import START, evicted, placed
from tests.support.worlds import gang, member, subgroup, world


class Broken(RuntimeError):
    pass


def failing(*_, **__):
    raise Broken


@pytest.fixture
def poison(monkeypatch):
    """Placing any gang whose name begins with "bad" fails, after some of it was placed."""
    place = Placer.place

    def failing(self, statement, each, members, action, **options):
        done = place(self, statement, each, members, action, **options)
        if each.owner.name.startswith("bad"):
            raise Broken("no such\nnumber")
        return done

    monkeypatch.setattr(Placer, "place", failing)


def played(before, memory, now=1000.0, watch=None, **settings):
    return run_cycle(before.snapshot(now), CycleSettings(**settings), memory, watch)


def mixed(name, second=2, **options):
    """Of two shapes, so that it is placed by itself and not in a batch."""
    tree = subgroup("", children=[subgroup("a", 1), subgroup("b", 1)])
    pods = (member(f"{name}-a", 1, "", "a"), member(f"{name}-b", second, "", "b"))
    return replace(gang(name, pods=1, tree=tree, **options), members=pods)


@pytest.mark.usefixtures("poison")
def test_an_error_in_one_gang_undoes_it_and_leaves_the_others_alone():
    memory = CycleMemory(ClusterDevices())
    before = world({"n": 8}, mixed("bad"), mixed("good", created=5))
    plan = played(before, memory)
    assert set(placed(plan)) == {"good-a", "good-b"}
    [failure] = plan.set_aside
    assert failure.gang == "default/Gang/bad"
    assert "Broken" in failure.error
    [pending] = plan.unplaced
    assert pending.stage is Stage.SCHEDULER_ERROR
    assert pending.message == (
        "planning it failed (Broken: no such number); it is set aside and tried again after 10 s."
    )


@pytest.mark.usefixtures("poison")
def test_a_gang_that_failed_waits_twice_as_long_each_time():
    memory = CycleMemory(ClusterDevices())
    before = world({"n": 8}, mixed("bad"))
    failed_at = []
    for now in range(1000, 1100):
        if played(before, memory, float(now)).set_aside:
            failed_at.append(now)
        deadline = next_deadline(before.snapshot(now), CycleSettings(), memory)
        assert deadline == START + failed_at[-1] + 10 * 2 ** (len(failed_at) - 1)
    assert failed_at == [1000, 1010, 1030, 1070]
    assert memory.backoffs["default/Gang/bad"].failures == 4
    played(world({"n": 8}), memory, 1101.0)
    assert not memory.backoffs, "a deleted gang is forgotten"


def test_an_error_in_a_search_for_victims_undoes_its_evictions(monkeypatch):
    tried = VictimSearch._try_victims

    def failing(self, units):
        done = tried(self, units)
        if self._gang.owner.name.startswith("bad"):
            raise Broken
        return done

    monkeypatch.setattr(VictimSearch, "_try_victims", failing)
    before = world(
        {"n": 2, "m": 2},
        gang("low", node="n", pods=2),
        gang("low2", node="m", pods=2),
        gang("bad", pods=1, gpus=2, priority=10),
        gang("good", pods=1, gpus=2, priority=9),
    )
    plan = played(before, CycleMemory(ClusterDevices()), actions=(Action.ALLOCATE, Action.PREEMPT))
    assert [each.pod.name for each in plan.nominations] == ["good-0"]
    assert len(evicted(plan)) == 2
    assert [each.gang for each in plan.set_aside] == ["default/Gang/bad"]


def test_a_running_gang_that_cannot_be_divided_is_no_victim(monkeypatch):
    divided = order.victim_units

    def failing(each, statement):
        if each.owner.name == "bad":
            raise Broken
        return divided(each, statement)

    monkeypatch.setattr(order, "victim_units", failing)
    before = world(
        {"n": 2, "m": 2},
        gang("bad", node="n", pods=2),
        gang("low", node="m", pods=2, priority=1),
        gang("urgent", pods=1, gpus=2, priority=10),
    )
    memory = CycleMemory(ClusterDevices())
    plan = played(before, memory)
    assert evicted(plan) == ["low-0", "low-1"]
    assert [each.gang for each in plan.set_aside] == ["default/Gang/bad"]
    assert not played(before, memory, 1001.0).set_aside, "told once"


def test_an_error_in_the_explanation_of_a_gang_is_its_reason(monkeypatch):
    explained = outcome.elastic_pods

    def failing(each, *rest):
        if each.owner.name == "bad":
            raise Broken("no such number")
        return explained(each, *rest)

    monkeypatch.setattr(outcome, "elastic_pods", failing)
    before = world({"n": 3}, mixed("good"), mixed("bad", created=5), mixed("last", created=9))
    plan = played(before, CycleMemory(ClusterDevices()))
    assert set(placed(plan)) == {"good-a", "good-b"}
    assert [each.gang for each in plan.set_aside] == ["default/Gang/bad"]
    reasons = {each.gang: each for each in plan.unplaced}
    assert reasons["default/Gang/bad"].stage is Stage.SCHEDULER_ERROR
    assert reasons["default/Gang/last"].stage is Stage.RESOURCES


class Clock:
    """Time that passes with each look at it."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def test_a_cycle_over_its_limit_ends_and_names_the_gang_that_took_the_most(monkeypatch):
    clock = Clock(0.001)
    place = Placer.place

    def slow(self, statement, each, members, action, **options):
        if each.owner.name == "hog":
            clock.now += 20.0
        return place(self, statement, each, members, action, **options)

    monkeypatch.setattr(Placer, "place", slow)
    memory = CycleMemory(ClusterDevices())
    before = world(
        {"n": 3}, mixed("hog", created=0), mixed("good", created=5), mixed("last", created=9)
    )
    first = played(before, memory, watch=CycleTimer(10.0, clock))
    assert [each.gang for each in first.set_aside] == ["default/Gang/hog"]
    stages = {each.gang: each.stage for each in first.unplaced}
    assert stages["default/Gang/good"] is Stage.SEARCH_BUDGET
    second = played(before, memory, 1001.0, watch=CycleTimer(10.0, clock))
    assert set(placed(second)) == {"good-a", "good-b"}, "the others go on"
    reasons = {each.gang: each.message for each in second.unplaced}
    assert reasons["default/Gang/hog"] == (
        "it took 20.0 s of a cycle that was ended after 10 s; it is set aside and tried again "
        "after 10 s."
    )
    assert placed(played(world({"n": 3}, mixed("hog")), memory, 1011.0))


def test_what_a_cycle_decided_before_its_end_stands(monkeypatch):
    clock = Clock(0.001)
    place = Placer.place

    def slow(self, statement, each, members, action, **options):
        if each.owner.name == "hog":
            clock.now += 20.0
            self.poll()
        return place(self, statement, each, members, action, **options)

    monkeypatch.setattr(Placer, "place", slow)
    before = world({"n": 6}, mixed("good", created=0), mixed("hog", created=5))
    plan = played(before, CycleMemory(ClusterDevices()), watch=CycleTimer(10.0, clock))
    assert set(placed(plan)) == {"good-a", "good-b"}


def test_waiting_for_a_processor_counts_for_no_gang():
    timer = CycleTimer(0.05)
    timer.begin("waits")
    time.sleep(0.1)
    timer.poll()
    timer.begin("computes")

    def compute():
        while True:
            timer.poll()

    with pytest.raises(CycleOverLimitError) as ended:
        compute()
    assert list(ended.value.longest) == ["computes"]


def test_the_timer_names_the_longest_turn_and_not_the_last():
    clock = Clock(0.0)
    timer = CycleTimer(10.0, clock)
    for key, seconds in (("a", 2.0), ("b", 7.0), ("a", 2.0)):
        timer.begin(key)
        clock.now += seconds
        timer.begin("")
    timer.begin("c")
    with pytest.raises(Exception, match="over its limit") as ended:
        timer.poll()
    assert ended.value.longest == {"b": 7.0}


@pytest.mark.parametrize(("turns", "named"), [
    ({"a": 6.0, "b": 3.0, "c": 3.0}, {"a"}),
    ({"a": 3.0, "b": 3.0, "c": 3.0, "d": 3.0}, {"a", "b"}),
    ({f"each {n}": 1.0 for n in range(11)}, {f"each {n}" for n in range(6)}),
    ({f"short {n}": 0.0625 for n in range(300)}, {"short 0"}),
])  # fmt: skip
def test_the_longest_turns_that_took_half_of_the_time_are_named(turns, named):
    clock = Clock(0.0)
    timer = CycleTimer(10.0, clock)
    for key, seconds in turns.items():
        timer.begin(key)
        clock.now += seconds
    timer.begin("")
    with pytest.raises(CycleOverLimitError) as ended:
        timer.poll()
    assert set(ended.value.longest) == named


def test_twenty_gangs_that_take_long_keep_another_waiting_for_a_few_cycles(monkeypatch):
    clock = Clock(0.001)
    place = Placer.place

    def slow(self, statement, each, members, action, **options):
        if each.owner.name.startswith("hog"):
            clock.now += 4.0
            self.poll()
        return place(self, statement, each, members, action, **options)

    monkeypatch.setattr(Placer, "place", slow)
    memory = CycleMemory(ClusterDevices())
    hogs = [mixed(f"hog-{n}", second=4, created=n) for n in range(20)]
    before = world({"n": 6}, gang("runs", pods=3, node="n"), *hogs, mixed("good", created=50))
    bound = (
        placed(played(before, memory, 1000.0 + clock.now, watch=CycleTimer(10.0, clock)))
        for _ in range(12)
    )
    assert any("good-a" in each for each in bound)


STEPS = {
    "spot nodes": (SpotChoices, "applied"),
    "starts": (Startups, "observe"),
    "ends": (RuntimeHistory, "observe"),
    "unhealthy": (run, "evict_unhealthy"),
    "unready": (run, "evict_unready"),
    "departure": (run, "leave_nodes"),
    "reserve for expected pods": (run, "reserve_expected"),
    "resume": (run, "resume"),
    "reserve": (run, "reserve"),
    "turnover": (run, "Turnover"),
    "known answers": (CycleMemory, "take_settled"),
    "record searches": (CycleMemory, "record_searches"),
    "record evictions": (CycleMemory, "record_evictions"),
    "record starts": (Startups, "record"),
    "next end": (run, "_next_end"),
    "ready rules": (opening, "ready_rules"),
    "queue shares": (EvictionLimits, "counted_evictions"),
    "conclude": (Statement, "conclude"),
    "consolidate": (actions, "ACTIONS"),
    "reclaim": (actions, "ACTIONS"),
    "preempt": (actions, "ACTIONS"),
    "stale": (actions, "ACTIONS"),
    "return to spot nodes": (run, "return_to_spot"),
    "explain what is infeasible": (run, "explain_infeasible"),
    "explain names": (run, "explain_unresolved_names"),
    "explain protections": (run, "explain_protections"),
    "explain what waits": (run, "explain_postponed"),
    "explain spot nodes": (run, "explain_fallback"),
    "report reservations": (run, "report_reservations"),
    "admit": (run, "admit"),
    "evictions": (run, "list_evictions"),
    "problems": (outcome, "object_problems"),
    "holds": (outcome, "capacity_holds"),
    "spares": (outcome, "_spares"),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_fails_is_left_out_and_gangs_start(step, monkeypatch):
    where, name = STEPS[step]
    broken = {**actions.ACTIONS, Action(step): failing} if where is actions else failing
    monkeypatch.setattr(where, name, broken)
    before = world(
        {"n": 8},
        gang("runs", node="n", pods=2),
        gang("good", pods=2),
        gang("large", pods=9, priority=10),
    )
    plan = played(before, CycleMemory(ClusterDevices()))
    assert set(placed(plan)) == {"good-0", "good-1"}
    assert f"step {step}" in {each.gang for each in plan.failed_extensions}
    assert not plan.set_aside


def test_a_reservation_that_fails_reserves_nothing(monkeypatch):
    monkeypatch.setattr(Turnover, "reserve_for_largest", failing)
    plan = played(world({"n": 8}, gang("good", pods=2)), CycleMemory(ClusterDevices()))
    assert set(placed(plan)) == {"good-0", "good-1"}
    assert [each.gang for each in plan.failed_extensions] == ["step turnover"]


@pytest.mark.parametrize("name", ["settle", "next_deadline"])
def test_answers_that_cannot_be_kept_are_found_again(name, monkeypatch):
    monkeypatch.setattr(run, name, failing)
    memory = CycleMemory(ClusterDevices())
    before = world({"n": 1}, gang("large", pods=2))
    for now in (1000.0, 1001.0):
        plan = played(before, memory, now)
        assert [each.gang for each in plan.failed_extensions] == ["step settle"]
        assert [each.stage for each in plan.unplaced] == [Stage.RESOURCES]
    assert memory.settled is None


def test_an_action_that_one_gang_makes_fail_is_run_for_each_alone(monkeypatch):
    place_batch = EquivalentGangs.place_batch

    def failing(self):
        if any(each.owner.name == "bad" for each in self.gangs):
            raise Broken
        return place_batch(self)

    def remember(self, state, gang_queue):
        init(self, state, gang_queue)
        self.gangs = [each for found in gang_queue.peek(99) for each in found[1]]

    init = EquivalentGangs.__init__
    monkeypatch.setattr(EquivalentGangs, "__init__", remember)
    monkeypatch.setattr(EquivalentGangs, "place_batch", failing)
    before = world({"n": 8}, gang("bad", pods=1), gang("good", pods=2), gang("fine", pods=1))
    memory = CycleMemory(ClusterDevices())
    plan = played(before, memory)
    assert set(placed(plan)) == {"good-0", "good-1", "fine-0"}
    assert [each.gang for each in plan.set_aside] == ["default/Gang/bad"]
    assert not played(before, memory, 1001.0).failed_extensions, "bad has no turn meanwhile"


def test_a_gang_whose_placement_cannot_be_told_is_set_aside(monkeypatch):
    def failing(each):
        if each.owner.name == "bad":
            raise Broken
        return False

    monkeypatch.setattr(assignment, "is_fragile", failing)
    before = world({"n": 8}, gang("bad", pods=1), gang("good", pods=2))
    memory = CycleMemory(ClusterDevices())
    plan = played(before, memory)
    assert set(placed(plan)) == {"good-0", "good-1"}
    assert [each.gang for each in plan.set_aside] == ["default/Gang/bad"]
    assert memory.backoffs
