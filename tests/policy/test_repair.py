from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kai_py.policy.exact_assignment import PodClass, assign
from tests.support.cpu_limit import cpu_limit
from tests.support.patience import processor_seconds


def fits(pods, capacities, rows):
    return all(
        sum(size for size, row in zip(pods, rows, strict=True) if row == node) <= capacity
        for node, capacity in enumerate(capacities)
    )


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=5),
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
)
def test_it_finds_an_assignment_exactly_if_there_is_one(pods, capacities):
    sizes = sorted(set(pods), reverse=True)
    kinds = [
        PodClass(pods.count(size), np.array([float(size)]), np.ones(len(capacities), np.bool_))
        for size in sizes
    ]
    found = assign(kinds, np.array([capacities], dtype=np.float64), 100_000)
    every = product(range(len(capacities)), repeat=len(pods))
    assert (found is not None) == any(fits(pods, capacities, rows) for rows in every)
    if found is not None:
        in_order = [size for size in sizes for _ in range(pods.count(size))]
        assert fits(in_order, capacities, [row for rows in found for row in rows])


def test_nodes_out_of_bounds_are_not_used_and_the_search_ends():
    only_second = PodClass(2, np.array([1.0]), np.array([False, True]))
    free = np.array([[9.0, 2.0]])
    assert assign([only_second], free, 10) == [[1, 1]]
    assert assign([only_second], free, 1) is None
    assert free.tolist() == [[9.0, 2.0]]


def test_ten_thousand_nodes_are_no_burden():
    """One large pod more than there are nodes that hold one."""
    free = np.full((1, 10_000), 3.0)
    free[0, :63] = 8.0
    everywhere = np.ones(10_000, np.bool_)
    kinds = [PodClass(64, np.array([5.0]), everywhere), PodClass(1, np.array([1.0]), everywhere)]
    with cpu_limit(processor_seconds(0.5)):
        assert assign(kinds, free, 256) is None
    kinds[0] = PodClass(63, np.array([5.0]), everywhere)
    found = assign(kinds, free, 256)
    assert found is not None
    assert sorted(found[0]) == list(range(63))
