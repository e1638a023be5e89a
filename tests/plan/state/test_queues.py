"""Fair shares are divided again exactly when something that they follow from has changed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.plan.state import queues
from kai_py.plan.state.queues import FairShareCache, _add_repeatedly
from kai_py.policy.fairness_rules import KAI, NATIVE
from kai_py.snapshot.tables.queues import QueueInfo

RESOURCES = ("gpu", "cpu")
QUEUES = (QueueInfo(name="a", deserved={"gpu": 4.0}), QueueInfo(name="b"))


@pytest.fixture
def divisions(monkeypatch):
    """How often shares were divided."""
    calls = []
    real = queues.fair_share

    def counted(*args):
        calls.append(args)
        return real(*args)

    monkeypatch.setattr(queues, "fair_share", counted)
    return calls


def shares(
    kept,
    *,
    queues=QUEUES,
    resources=RESOURCES,
    total=(8.0, 64.0),
    gpus=6.0,
    rules=NATIVE,
    past=None,
):
    table, _ = kept.tree(queues, resources)
    demand = np.full((len(resources), len(queues)), gpus)
    return kept.compute(table, np.array(total[: len(resources)]), demand, rules, past)


def test_the_same_inputs_are_divided_once(divisions):
    kept = FairShareCache()
    first = shares(kept, past=np.zeros((2, 2)))
    assert shares(kept, past=np.zeros((2, 2))) is first
    assert len(divisions) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"queues": (QueueInfo(name="a", deserved={"gpu": 5.0}), QueueInfo(name="b"))},
        {"resources": ("gpu", "cpu", "memory"), "total": (8.0, 64.0, 1.0)},
        {"total": (7.0, 64.0)},
        {"gpus": 3.0},
        {"rules": KAI},
        {"past": np.array([[0.5, 0.0], [0.0, 0.0]])},
    ],
    ids=lambda change: next(iter(change)),
)
def test_any_change_divides_again(divisions, change):
    kept = FairShareCache()
    shares(kept)
    found, again = shares(kept, **change), shares(FairShareCache(), **change)
    assert len(divisions) == 3
    np.testing.assert_array_equal(found.fair, again.fair)


@given(st.integers(1, 5), st.lists(st.floats(0, 1e9), min_size=2, max_size=2))
def test_costs_of_several_gangs_have_the_bits_of_single_charges(count, amounts):
    cost, expected = np.array(amounts), np.array([[0.1, 0.2, 0.3]] * 2)
    added = _add_repeatedly(expected, cost, count)
    for _ in range(count):
        expected = expected + cost[:, None]
    assert (added == expected).all()
