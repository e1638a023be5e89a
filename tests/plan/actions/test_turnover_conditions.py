"""For which pods gangs wait, and what is kept for them: each condition alone decides."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.plan.actions import turnover
from kai_py.plan.actions.turnover import Turnover, _first, _Patience
from tests.support.worlds import gang

NOW = 1000.0


@pytest.mark.parametrize(
    ("needed", "taken"),
    [(0, {}), (2, {4: 2}), (3, {4: 2, 1: 1}), (5, {4: 2, 1: 3}), (9, {4: 2, 1: 3})],
)
def test_the_first_replicas_are_taken(needed, taken):
    assert _first({4: 2, 1: 3}, needed) == taken


@pytest.mark.parametrize(
    ("gpus", "devices", "idle"),
    [([1.0], False, True), ([0.9], False, False), ([0.0], True, True), (None, False, False)],
)
def test_others_could_use_a_node_with_an_idle_gpu_or_where_devices_are_claimed(gpus, devices, idle):
    positions = {} if gpus is None else {GPU_RESOURCE: 0}
    state = SimpleNamespace(
        statement=SimpleNamespace(free=lambda _capacity: np.array([gpus or [9.0]])),
        snapshot=SimpleNamespace(resources=SimpleNamespace(positions=positions)),
    )
    shape = SimpleNamespace(needs_devices=devices)
    assert Turnover._has_idle(SimpleNamespace(_state=state), shape, 0) is idle


def test_only_pods_that_stay_until_they_end_are_waited_for_the_earliest_first():
    pods = {"late": ("a", 30.0), "b": ("b", 10.0), "a": ("a", 10.0), "gone": ("x", 5.0)}
    pods |= {"evicted": ("a", 5.0), "too late": ("a", 30.1)}
    ends = [
        SimpleNamespace(at=at, member=SimpleNamespace(node=on, pod=SimpleNamespace(uid=uid)))
        for uid, (on, at) in pods.items()
    ]
    state = SimpleNamespace(
        snapshot=SimpleNamespace(nodes=SimpleNamespace(positions={"a": 0, "b": 1})),
        statement=SimpleNamespace(evicted={"evicted"}),
        pod_ends=lambda: ends,
    )
    found = Turnover._ends_until(SimpleNamespace(_state=state), 30.0)
    assert [each.member.pod.uid for each in found] == ["a", "b", "late"]


@pytest.mark.parametrize(
    ("fields", "waits"),
    [
        ({}, True),
        ({"any_end": False}, False),
        ({"may_preempt": False}, False),
        ({"serves": True}, False),
        ({"constrained": True}, False),
        ({"patience": 0.0}, False),
        ({"requests": False}, False),
        ({"waiting": turnover.MAX_WAITING - 1}, True),
        ({"waiting": turnover.MAX_WAITING}, False),
        ({"failed": {(7, 2, 60.0)}}, False),
        ({"failed": {(7, 2, 30.0), (7, 1, 60.0), (6, 2, 60.0)}}, True),
    ],
)
def test_gangs_may_wait_if_they_may_evict_and_enough_pods_end_soon(monkeypatch, fields, waits):
    monkeypatch.setattr(turnover, "is_service", lambda gang: gang.serves)
    monkeypatch.setattr(turnover, "has_topology_constraint", lambda tree: tree)
    usual = {"may_preempt": True, "serves": False, "constrained": False, "any_end": True}
    usual |= {"patience": 60.0, "requests": True, "waiting": 0, "failed": set()}
    case = SimpleNamespace(**usual | fields)
    asking = SimpleNamespace(
        may_preempt=case.may_preempt, serves=case.serves, tree=case.constrained
    )
    pods = [SimpleNamespace(shape=SimpleNamespace(number=7))] * 2
    request = SimpleNamespace(members=pods) if case.requests else None
    known = SimpleNamespace(
        _state=SimpleNamespace(
            next_request=lambda _: request, waiting=dict.fromkeys(range(case.waiting))
        ),
        _patience=case.patience,
        _failed=case.failed,
        _ends_soon=lambda: [1] * case.any_end,
    )
    assert Turnover.may_wait(known, asking) is waits


@pytest.mark.parametrize(
    ("elastic", "now", "active", "known", "found", "reserved"),
    [
        (False, NOW, "", False, True, True),
        (True, NOW, "", False, True, False),
        (False, NOW - 1, "", False, True, False),
        (False, NOW, "team", False, True, False),
        (False, NOW, "other", False, True, True),
        (False, NOW, "", True, True, False),
        (False, NOW, "", False, False, False),
    ],
)
def test_a_gang_that_waited_too_long_gets_nodes_reserved_one_of_a_queue_at_a_time(
    elastic, now, active, known, found, reserved
):
    made, done = gang("g", pods=2), []
    kind = made.members[0].shape.number, 2, math.inf
    others = [SimpleNamespace(gang=gang("h", queue=active))] if active else []
    state = SimpleNamespace(
        snapshot=SimpleNamespace(now=now),
        placer=SimpleNamespace(reservations=SimpleNamespace(active=others)),
    )
    waiting = SimpleNamespace(
        _state=state,
        _failed={kind} if known else set(),
        _ends_until=lambda _until: [],
        _rows_after_ends=lambda *_: (NOW, {0: 2}) if found else None,
        _await=lambda *_: done.append("awaited"),
        _reserve_drained=lambda *_: done.append("reserved"),
    )
    request = SimpleNamespace(members=made.members, is_elastic=elastic)
    patience = _Patience(NOW - 50.0, 10.0, may_evict=True, reserve_after=50.0)
    Turnover._reserve_after_waiting(waiting, made, request, patience)
    assert done == (["awaited", "reserved"] if reserved else [])
    assert (kind in waiting._failed) is (known or not found)
