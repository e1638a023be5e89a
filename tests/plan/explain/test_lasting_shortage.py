"""What is said to be too little for good, and which gangs are told so."""

from types import SimpleNamespace

import numpy as np
import pytest

from kai_py.plan.explain import infeasible
from kai_py.plan.placement.attempt import MAX_PODS_TO_REORDER
from kai_py.plan.plan import Stage


@pytest.mark.parametrize(
    ("claims", "extended", "by_plugins", "reason", "may_change"),
    [
        (False, False, True, "", False),
        (True, False, True, "", True),
        (True, False, True, "no such device", False),
        (False, True, True, "", False),
        (False, True, False, "", True),
        (False, True, False, "no such device", False),
    ],
)
def test_only_devices_that_are_missing_for_good_make_a_gang_infeasible(
    monkeypatch, claims, extended, by_plugins, reason, may_change
):
    monkeypatch.setattr(infeasible, "_is_served_by_plugins", lambda *_: by_plugins)
    shape = SimpleNamespace(claims=("claim",) * claims, needs_devices=claims or extended)
    devices = SimpleNamespace(infeasible_reason=lambda *_: reason)
    state = SimpleNamespace(statement=SimpleNamespace(devices=devices))
    empty = SimpleNamespace(state=state, admitted=lambda _shape: None)
    assert infeasible._may_change(empty, shape) is may_change


@pytest.mark.parametrize(
    ("stage", "is_explained"),
    [(Stage.RESOURCES, True), (Stage.QUEUE_MAX, True), (Stage.INVALID, False), (None, False)],
)
def test_gangs_that_nothing_on_nodes_stops_are_not_told(stage, is_explained):
    reasons = {} if stage is None else {"g": SimpleNamespace(stage=stage)}
    state = SimpleNamespace(unschedulable=reasons)
    assert infeasible._is_explained(state, SimpleNamespace(key="g")) is is_explained


def test_a_problem_is_found_once_for_requests_that_are_alike(monkeypatch):
    found = []

    def problem(_empty, gang, _request):
        found.append(gang)
        return f"of {gang}"

    monkeypatch.setattr(infeasible, "_problem", problem)
    monkeypatch.setattr(infeasible, "request_signature", lambda _state, gang, _r: gang[1:] or None)
    empty, known = SimpleNamespace(state=None), {}

    def said(gang, pods=2):
        request = SimpleNamespace(members=range(pods))
        return infeasible._known_problem(empty, gang, request, known)

    assert [said(gang) for gang in ("a1", "b1", "c2", "d", "e")] == [
        *("of a1", "of a1", "of c2", "of d", "of e")
    ]
    assert said("f1", pods=3) == "of f1"
    assert said("g") == "of g"
    assert found == ["a1", "c2", "d", "e", "f1", "g"]


@pytest.mark.parametrize(
    ("held", "may_change", "together", "said"),
    [
        ([1, 1], False, False, True),
        ([2, 1], False, False, False),
        ([2, 2], False, False, False),
        ([0, 0], False, False, False),
        ([1, 1], True, False, False),
        ([1, 1], False, True, False),
    ],
)
def test_pods_are_too_many_for_empty_nodes_if_these_hold_some_but_not_all(
    monkeypatch, held, may_change, together, said
):
    monkeypatch.setattr(infeasible, "_may_change", lambda *_: may_change)
    monkeypatch.setattr(infeasible, "_hold_more_together", lambda *_: together)
    empty = SimpleNamespace(replicas=lambda _shape, _count: np.array(held))
    members = [SimpleNamespace(shape=None)] * 3
    text = infeasible._count_problem(empty, members)
    assert text == ("with nothing else on them, the nodes hold 2 of the 3 pods" if said else "")


@pytest.mark.parametrize(
    ("devices", "pods", "shared", "together"),
    [
        (True, 2, (), True),
        (True, MAX_PODS_TO_REORDER, (), True),
        (True, MAX_PODS_TO_REORDER + 1, (), False),
        (False, 2, (), False),
        (True, 2, ("claim",), False),
    ],
)
def test_devices_of_few_pods_may_be_chosen_for_all_of_them(devices, pods, shared, together):
    asked = []

    def hold_more_together(_shape, replicas, more):
        asked.append((replicas.tolist(), more.tolist()))
        return True

    shape = SimpleNamespace(needs_devices=devices, shared_claims=shared)
    state = SimpleNamespace(
        statement=SimpleNamespace(devices=SimpleNamespace(hold_more_together=hold_more_together))
    )
    empty = SimpleNamespace(
        state=state,
        replicas=lambda _shape, _count: np.array([1, 2]),
        by_resources=lambda _shape: np.array([2, 2]),
    )
    members = [SimpleNamespace(shape=shape)] * pods
    assert infeasible._hold_more_together(empty, members) is together
    assert asked == ([([1, 2], [True, False])] if together else [])


@pytest.mark.parametrize(
    ("reported", "served"),
    [
        ([[4, 4, 0], [1, 1, 0]], True),
        ([[4, 0, 4], [1, 1, 0]], False),
        ([[4, 4, 0], [0, 1, 0]], False),
        ([[4, 4, 0], None], False),
    ],
)
def test_plugins_serve_a_pod_if_they_report_all_it_requests_on_each_node_that_holds_it(
    reported, served
):
    known = [each for each in reported if each is not None]
    snapshot = SimpleNamespace(
        resources=SimpleNamespace(positions=dict(zip("ab", range(len(known)), strict=False))),
        nodes=SimpleNamespace(allocatable=np.array(known, np.float64)),
    )
    empty = SimpleNamespace(
        state=SimpleNamespace(snapshot=snapshot), by_resources=lambda _shape: np.array([1, 2, 0])
    )
    shape = SimpleNamespace(extended=SimpleNamespace(resources=("a", "b")))
    assert infeasible._is_served_by_plugins(empty, shape) is served
