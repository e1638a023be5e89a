"""Totals of costs have the same bits whether costs are one object or several equal ones."""

from hypothesis import given
from hypothesis import strategies as st

from kai_py.snapshot.accounting import total

AMOUNTS = st.floats(0, 1e12) | st.integers(-(2**60), 2**60).map(float)
COSTS = st.dictionaries(st.sampled_from(("gpu", "cpu", "memory")), AMOUNTS)


@given(st.lists(COSTS, min_size=1, max_size=4), st.lists(st.integers(0, 3), max_size=40))
def test_of_costs_that_repeat(costs, order):
    costs = [costs[each % len(costs)] for each in order]
    expected = {}
    for cost in costs:
        for name, amount in cost.items():
            expected[name] = expected.get(name, 0.0) + amount
    assert total(costs) == expected
    assert total(map(dict, costs)) == expected


def test_of_whole_numbers_that_are_rounded_at_each_step():
    cost = {"memory": 2.0**53 + 2, "cpu": 0.1}
    expected = {"memory": 0.0, "cpu": 0.0}
    for _ in range(7):
        expected = {name: expected[name] + amount for name, amount in cost.items()}
    assert expected != {name: 7 * amount for name, amount in cost.items()}
    assert total([cost] * 7) == expected
