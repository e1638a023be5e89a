"""Which search places pods of several shapes: each condition alone decides."""

from types import SimpleNamespace

import numpy as np
import pytest

from kai_py.plan.placement import gang as placement
from kai_py.plan.placement.gang import Placer
from kai_py.plan.plan import Action


@pytest.mark.parametrize(
    ("in_turn", "action", "assignable", "searched", "exactly", "placed"),
    [
        (True, Action.ALLOCATE, True, False, False, True),
        (False, Action.ALLOCATE, True, False, True, True),
        (False, Action.ALLOCATE, True, True, False, False),
        (False, Action.ALLOCATE, False, True, False, True),
        (False, Action.ALLOCATE, False, False, True, False),
        (False, Action.RECLAIM, True, True, False, True),
        (False, Action.RECLAIM, True, False, True, False),
    ],
)
def test_parts_that_do_not_fit_in_turn_are_assigned_exactly_or_searched_for(
    monkeypatch, in_turn, action, assignable, searched, exactly, placed
):
    masks = []

    def place_exactly(_attempt, _parts, given):
        masks.extend(each.tolist() for each in given)
        return exactly

    monkeypatch.setattr(placement, "can_assign", lambda *_: assignable)
    monkeypatch.setattr(placement, "place_exactly", place_exactly)
    static, inside = np.array([True, True, False]), np.array([True, False, True])
    placer = SimpleNamespace(
        shapes=SimpleNamespace(
            place_in_first=lambda *_: None if in_turn else "no capacity",
            fits=SimpleNamespace(static_fit=lambda *_: SimpleNamespace(mask=static)),
        ),
        _search=lambda *_: searched,
    )
    node_set = SimpleNamespace(of=lambda _shape: SimpleNamespace(mask=inside))
    attempt = SimpleNamespace(statement=None, capacity=None, action=action)
    parts = [[SimpleNamespace(shape=None)]] * 2
    found = Placer._place_mixed(placer, attempt, parts, node_set)
    assert found == (None if placed else "no capacity")
    assert all(each == [True, False, False] for each in masks)


@pytest.mark.parametrize(
    ("fits", "can_search", "searched", "placed"),
    [
        (True, False, False, True),
        (False, True, True, True),
        (False, True, False, False),
        (False, False, True, False),
    ],
)
def test_pods_with_rules_that_fit_in_no_choice_are_searched_for(
    monkeypatch, fits, can_search, searched, placed
):
    monkeypatch.setattr(placement, "dependents_last", lambda _statement, parts, _capacity: parts)
    monkeypatch.setattr(placement, "choices_for_parts", lambda *_: ["anywhere"])
    placer = SimpleNamespace(
        shapes=SimpleNamespace(place_in_first=lambda *_: None if fits else "no capacity"),
        _can_search=lambda *_: can_search,
        _search=lambda *_: searched,
    )
    attempt = SimpleNamespace(statement=None, capacity=None)
    found = Placer._place_with_rules(placer, attempt, [], None)
    assert found == (None if placed else "no capacity")


@pytest.mark.parametrize(
    ("allowed", "exceeds", "fit", "holds", "row", "nowhere"),
    [
        (None, True, True, True, None, True),
        (None, False, True, True, 2, False),
        (None, False, False, True, None, False),
        ([False, True, False], False, True, True, 1, False),
        ([False, True, False], False, True, False, None, True),
        ([False, True, False], False, False, True, None, False),
        ([True, True, False], False, True, True, None, False),
        ([False, False, False], False, True, True, None, True),
    ],
)
def test_the_node_of_a_single_pod_is_known_if_resources_decide_and_all_or_one_are_allowed(
    allowed, exceeds, fit, holds, row, nowhere
):
    running = SimpleNamespace(first_row=lambda: 2, holds=lambda _row: holds) if fit else None
    shapes = SimpleNamespace(
        single_pod_fit=lambda *_: running,
        fits=SimpleNamespace(fits_nowhere=lambda *_: exceeds, running_fit=lambda *_: running),
    )
    rows = None if allowed is None else np.array(allowed)
    found = Placer._row_for_one(SimpleNamespace(shapes=shapes), None, None, None, rows)
    assert found == (row, nowhere)
