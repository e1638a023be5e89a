from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.policy.sibling_division import running_sums, water_fill
from tests.policy.exact_shares import pour

competitor = st.tuples(
    st.integers(0, 3), st.sampled_from([0, 1e-3, 1, 3, 1e6]), st.sampled_from([0, 0.3, 2, 7, 1e12])
)


@given(
    st.lists(competitor, max_size=20),
    st.lists(st.sampled_from([0.0, 0.5, 6.0, 1e13]), min_size=4, max_size=4),
)
def test_every_group_is_filled_as_if_it_were_alone(competitors, budgets):
    columns = np.array(competitors, np.float64).reshape(-1, 3).T
    group, (rate, cap) = columns[0].astype(np.int64), columns[1:]
    filled = water_fill(group, np.array(budgets), rate, cap)
    for number, budget in enumerate(budgets):
        members = [i for i, (of, _, _) in enumerate(competitors) if of == number]
        rates = {i: as_fraction(rate[i]) for i in members}
        exact = pour(as_fraction(budget), rates, {i: as_fraction(cap[i]) for i in members})
        expected = [float(exact[i]) for i in members]
        assert filled[members].tolist() == pytest.approx(expected, rel=1e-9, abs=2e-9)


def as_fraction(number):
    return Fraction(float(number))


def test_what_suffices_for_all_is_given_exactly():
    cap = np.array([0.1, 0.2, 1 / 3])
    group = np.zeros(3, np.int64)
    filled = water_fill(group, np.array([cap.sum()]), np.array([3.0, 0.7, 11.0]), cap)
    assert filled.tolist() == cap.tolist()


def test_running_sums_start_again_in_each_group():
    sums = running_sums(np.array([0, 0, 2, 2, 2]), np.array([1.0, 2, 3, 4, 5]))
    assert sums.tolist() == [0, 1, 0, 3, 7]


def test_resources_are_filled_side_by_side_as_each_would_be_alone():
    group = np.array([1, 0, 1, 1])
    budgets = np.array([[3.0, 4.0], [1e15, 5e14], [0.0, 1.0]])
    rates = np.array([[1.0, 2, 3, 0], [5, 1, 0, 1], [1, 1, 1, 1]])
    caps = np.array([[3.0, 9, 1.5, 1], [1e15, 7, 3, 0.1], [0.1, 0.2, 0.4, 0.8]])
    with np.errstate(divide="raise", invalid="raise"):
        filled = water_fill(group, budgets, rates, caps)
    alone = [water_fill(group, *row) for row in zip(budgets, rates, caps, strict=True)]
    assert filled.tolist() == [row.tolist() for row in alone]
    assert filled[0].tolist() == [2.5, 3.0, 1.5, 0.0]
