"""Whether rules between pods of a preemptor still hold once victims have been relocated."""

from types import SimpleNamespace

import numpy as np
import pytest

from kai_py.plan.victims import relocate


def preemptor(monkeypatch, *rows, **rules):
    """Pods of one shape with these rules; a row, or None for a pod that is not placed."""
    monkeypatch.setattr(relocate, "rules_of", lambda shape: shape.rules)
    shape = SimpleNamespace(number=1, rules=SimpleNamespace(**rules))
    members = [
        SimpleNamespace(shape=shape, labels={}, pod=SimpleNamespace(uid=n, namespace="ns"))
        for n in range(len(rows))
    ]
    placed = {n: SimpleNamespace(row=row) for n, row in enumerate(rows) if row is not None}
    return SimpleNamespace(members=members), placed


@pytest.mark.parametrize(
    ("rows", "is_own", "later", "stays"),
    [
        ([0], True, [0, 1, 0], True),
        ([0], True, [0, 1, 1], False),
        ([0], True, [0, 2, 1], True),
        ([0, 0], True, [0, 2, 0], True),
        ([0, 1], True, [0, 1, 2], False),
        ([0, None], True, [0, 1, 0], True),
        ([None], True, [0, 0, 1], True),
        ([0], True, [5, 1, 0], True),
        ([0], False, [0, 1, 0], True),
        ([0], False, [0, 0, 1], False),
        ([0], False, [0, 0, 0], True),
    ],
)
def test_pods_stay_near_those_that_may_start_before_them(monkeypatch, rows, is_own, later, stays):
    """``later``: matching pods by domain; node 0 is in domain 1, node 1 in 2, others in 0."""
    rules = {"affinity": ("terms",), "affinity_keys": ("rack",)}
    beneficiary, placed = preemptor(monkeypatch, *rows, **rules)
    monkeypatch.setattr(relocate, "selects", lambda *_: is_own)
    counts = SimpleNamespace(codes=np.array([1, 2, 0]), later=np.array(later))
    pod_rules = SimpleNamespace(selected=lambda _term: counts)
    state = SimpleNamespace(
        statement=SimpleNamespace(placed=placed, pod_rules=pod_rules),
        snapshot=SimpleNamespace(namespaces={}),
    )
    assert relocate._stays_near(state, beneficiary) is stays


@pytest.mark.parametrize(
    ("rows", "has_rules", "stays"),
    [
        ([0, 0], True, True),
        ([0, 1], True, False),
        ([1, 0], True, False),
        ([0, None], True, True),
        ([1, 1], False, True),
        ([], True, True),
    ],
)
def test_pods_stay_spread_if_each_that_is_placed_is(monkeypatch, rows, has_rules, stays):
    beneficiary, placed = preemptor(monkeypatch, *rows, spread=has_rules)
    rules = SimpleNamespace(is_spread=lambda _shape, row: row == 0)
    statement = SimpleNamespace(placed=placed, pod_rules=SimpleNamespace(rules=lambda _: rules))
    assert relocate._stays_spread(SimpleNamespace(statement=statement), beneficiary) is stays
