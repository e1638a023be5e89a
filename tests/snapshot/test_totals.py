"""Totals of costs have the same bits whether costs are one object or several equal ones."""

from hypothesis import given
from hypothesis import strategies as st

from kai_py.snapshot.accounting import total

AMOUNTS = st.floats(0, 1e12)
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
