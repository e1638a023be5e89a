"""Which gangs leave nodes, and how: each condition alone makes the difference."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from kai_py.api.node_departures import DepartureRules, DepartureStage
from kai_py.grouping.gang_settings import DEFAULT_SETTINGS
from kai_py.plan.actions import leave_nodes
from kai_py.plan.actions.leave_nodes import ASKED, REQUEST_LIFETIME
from tests.support.records import replace
from tests.support.worlds import gang

NOW = 1000.0
STAGES = {"l": DepartureStage.LEAVING, "x": DepartureStage.LOST, "s": DepartureStage.SUSPECT}
TWO = gang("g", nodes="ab")


def a_state(*gangs, departures=STAGES, deleted=(), disrupted=(), rebooted=(), **rules):
    nodes = {name: SimpleNamespace(stage=each, signal="sign") for name, each in departures.items()}
    return SimpleNamespace(
        snapshot=SimpleNamespace(
            now=NOW,
            nodes=SimpleNamespace(departures=nodes),
            deleted_nodes=frozenset(deleted),
            disrupted=dict.fromkeys(disrupted, "pods were ended"),
            rebooted=dict.fromkeys(rebooted, "node"),
            gangs={each.key: each for each in gangs},
        ),
        statement=None,
        settings=SimpleNamespace(departures=DepartureRules(**rules)),
        turns=SimpleNamespace(eligible=list, of=lambda _gang: nullcontext()),
        report=SimpleNamespace(at_risk={}, checkpoints=[], checkpoint_ends=[]),
    )


@pytest.fixture
def found(monkeypatch):
    """What survival says, and what was evicted or moved."""
    world = SimpleNamespace(satisfied=False, fails=False, protection="", moves=True, done=[])
    monkeypatch.setattr(leave_nodes, "running_pods", lambda gang, _statement: gang.members)
    monkeypatch.setattr(leave_nodes, "is_satisfied_without", lambda *_: world.satisfied)
    monkeypatch.setattr(leave_nodes, "would_fail", lambda *_: world.fails)
    monkeypatch.setattr(leave_nodes, "protection_of", lambda *_: world.protection)

    def evict(_state, _gang, members, _action, _reason):
        world.done.append([each.pod.name for each in members])

    def move(*_):
        world.done += ["moved"] * world.moves
        return world.moves

    monkeypatch.setattr(leave_nodes, "evict_for_itself", evict)
    monkeypatch.setattr(leave_nodes, "move_whole", move)
    return world


@pytest.mark.parametrize(
    ("nodes", "events", "has_turn"),
    [
        ("ab", {}, False),
        ("al", {}, True),
        ("ax", {}, True),
        ("as", {}, False),
        ("ad", {"deleted": "d"}, True),
        ("ab", {"deleted": "d"}, False),
        ("ab", {"disrupted": ["default/Gang/g"]}, True),
        ("ab", {"disrupted": ["default/Gang/h"]}, False),
        ("ab", {"rebooted": ["g-1"]}, True),
        ("ab", {"rebooted": ["h-1"]}, False),
    ],
)
def test_gangs_on_nodes_that_go_and_those_that_lost_pods_have_a_turn(
    monkeypatch, nodes, events, has_turn
):
    turns = []
    monkeypatch.setattr(leave_nodes, "_leave", lambda _state, gang: turns.append(gang.key))
    leave_nodes.leave_nodes(a_state(gang("g", nodes=nodes), **events))
    assert bool(turns) is has_turn


@pytest.mark.parametrize(
    ("own", "rules", "kind", "whole"),
    [
        ({}, {}, "Job", True),
        ({}, {}, "Deployment", False),
        ({}, {"restart_whole": False}, "Job", False),
        ({"restarts_whole": False}, {}, "Job", False),
        ({"restarts_whole": True}, {"restart_whole": False}, "Deployment", True),
        ({"staleness_grace": -1.0, "restarts_whole": True}, {}, "Job", False),
        ({"staleness_grace": 0.0}, {}, "Job", True),
    ],
)
def test_gangs_restart_whole_unless_they_replace_lost_pods(own, rules, kind, whole):
    made = replace(
        TWO, settings=replace(DEFAULT_SETTINGS, **own), owner=replace(TWO.owner, kind=kind)
    )
    assert leave_nodes._restarts_whole(a_state(**rules), made) is whole


@pytest.mark.parametrize(
    ("nodes", "deleted", "lost", "leaving"),
    [
        ("axl", "", ["g-1"], ["g-2"]),
        ("ad", "d", ["g-1"], []),
        ("ld", "d", ["g-1"], ["g-0"]),
        ("sa", "", [], []),
    ],
)
def test_pods_on_a_deleted_node_are_lost(found, nodes, deleted, lost, leaving):
    state, made = a_state(deleted=deleted), gang("g", nodes=nodes)
    for stage, names in ((DepartureStage.LOST, lost), (DepartureStage.LEAVING, leaving)):
        assert [each.pod.name for each in leave_nodes._on(state, made, stage)] == names


@pytest.mark.parametrize(
    ("rebooted", "satisfied", "uid"),
    [((), False, ""), (("g-1",), False, "g-1"), (("g-0", "g-1"), False, ""), (("g-1",), True, "")],
)
def test_a_reboot_counts_if_it_parts_pods_that_work_together(found, rebooted, satisfied, uid):
    found.satisfied = satisfied
    assert leave_nodes._rebooted_apart(a_state(rebooted=rebooted), TWO) == uid


@pytest.mark.parametrize(
    ("satisfied", "fails", "restarts", "evicted"),
    [
        (False, False, True, [["g-0", "g-1"]]),
        (True, False, True, [["g-1"]]),
        (False, False, False, [["g-1"]]),
        (False, True, True, []),
    ],
)
def test_lost_pods_take_the_others_with_them_if_these_cannot_go_on(
    found, satisfied, fails, restarts, evicted
):
    found.satisfied, found.fails = satisfied, fails
    state = a_state(restart_whole=restarts)
    leave_nodes._leave(state, gang("g", nodes="ax"))
    assert found.done == evicted


@pytest.mark.parametrize(
    ("nodes", "floor", "fails", "evicted"),
    [("ab-", 3, False, [["g-0", "g-1", "g-2"]]), ("ab-", 2, False, []), ("ab-", 3, True, [])],
)
def test_a_gang_that_lost_pods_from_outside_restarts_if_too_few_are_left(
    found, nodes, floor, fails, evicted
):
    found.fails = fails
    made = gang("g", nodes=nodes, floor=floor)
    leave_nodes._leave(a_state(disrupted=[made.key]), made)
    assert found.done == evicted


def asked(by, *, done=False, pods=2):
    members = [
        replace(each, checkpoint_by=by, checkpointed=done) if n < pods else each
        for n, each in enumerate(TWO.members)
    ]
    return replace(TWO, members=tuple(members))


@pytest.mark.parametrize(
    ("made", "requested"),
    [
        (TWO, 2),
        (asked(NOW + 10, pods=1), 1),
        (asked(NOW - REQUEST_LIFETIME), 2),
        (asked(NOW - REQUEST_LIFETIME + 1), 0),
        (asked(NOW + 10), 0),
    ],
)
@pytest.mark.parametrize("grace", [None, 7.0])
def test_each_pod_is_asked_for_a_checkpoint_once_per_departure(found, made, requested, grace):
    state = a_state(checkpoint_grace=60.0)
    made = replace(made, settings=replace(DEFAULT_SETTINGS, checkpoint_grace=grace))
    leave_nodes._checkpoint(state, made, "why")
    requests = state.report.checkpoints
    assert sum(len(each.pods) for each in requests) == requested
    assert {each.by for each in requests} == ({NOW + (grace or 60.0)} if requested else set())


@pytest.mark.parametrize(
    ("made", "waits", "protection", "moves", "done"),
    [
        (asked(NOW + 10), True, "", True, []),
        (asked(NOW), False, "", True, ["moved"]),
        (asked(NOW + 10, done=True), False, "", True, ["moved"]),
        (asked(NOW, done=True), False, "", False, [["g-0", "g-1"]]),
        (asked(NOW), False, "a budget", True, []),
    ],
)
def test_a_gang_goes_when_it_has_saved_its_work_or_its_time_is_over(
    found, made, waits, protection, moves, done
):
    found.protection, found.moves = protection, moves
    state = a_state()
    leave_nodes._checkpoint(state, made, "why")
    assert found.done == done
    assert state.report.checkpoint_ends == ([NOW + 10] if waits else [])
    risk = state.report.at_risk.get(made.key)
    assert (risk is not None and risk.message.endswith(ASKED)) is waits


def test_a_gang_waits_for_the_last_of_its_checkpoints(found):
    state, (first, second) = a_state(), asked(NOW + 10).members
    made = replace(TWO, members=(replace(first, checkpoint_by=NOW + 20), second))
    leave_nodes._checkpoint(state, made, "why")
    assert state.report.checkpoint_ends == [NOW + 20]
