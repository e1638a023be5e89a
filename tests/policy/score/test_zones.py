"""The wish for few NUMA zones: layers filled together equal choosing node by node."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kai_py.api.choices import FillStrategy
from kai_py.policy.fill import fill
from kai_py.policy.numa import fewer_zones, fill_by_numa_zones, zone_layers

ZONES = 3
NEEDS = st.lists(st.integers(1, ZONES), max_size=4).map(sorted)
"""Zones that the pods of a node need, in the order in which they come."""

RANKS = st.integers(0, 3)


@given(
    st.lists(st.tuples(NEEDS, RANKS), min_size=1, max_size=4),
    st.integers(1, 6),
    st.sampled_from(FillStrategy),
)
def test_pods_are_worth_what_they_are_when_each_takes_the_best_node(nodes, count, strategy):
    copies = np.array([len(needs) for needs, _ in nodes])
    rank = np.array([wanted for _, wanted in nodes])
    within = np.array([[sum(n <= z for n in needs) for needs, _ in nodes] for z in (1, 2, 3)])
    chunks = fill_by_numa_zones(
        count,
        copies,
        ZONES * rank + zone_layers(within),
        np.zeros(len(nodes)),
        strategy,
        replicas_by_zones=np.minimum(within, count),
    )
    given_to = np.zeros(len(nodes), dtype=int)
    for row, pods in chunks:
        given_to[row] += pods
    assert (given_to <= copies).all()
    assert given_to.sum() == min(count, copies.sum())
    worth = [
        ZONES * rank[row] - (need - 1)
        for row, (needs, _) in enumerate(nodes)
        for need in needs[: given_to[row]]
    ]
    assert sorted(worth) == sorted(one_by_one(nodes, count))


def one_by_one(nodes, count):
    """What each pod is worth that goes to the node that is best for it just then."""
    left = [(list(needs), wanted) for needs, wanted in nodes]
    worth = []
    for _ in range(count):
        open_to_it = [
            (ZONES * wanted - (needs[0] - 1), row)
            for row, (needs, wanted) in enumerate(left)
            if needs
        ]
        if not open_to_it:
            break
        best, row = max(open_to_it)
        worth.append(best)
        left[row][0].pop(0)
    return worth


def test_where_one_zone_will_do_everywhere_nodes_are_filled_as_ever():
    copies, flat = np.array([2, 5, 3]), np.zeros(3, dtype=int)
    within = np.array([[2, 3, 3], [3, 3, 3]])
    for strategy in FillStrategy:
        chunks = fill_by_numa_zones(3, copies, flat, flat, strategy, replicas_by_zones=within)
        assert chunks == fill(3, copies, flat, flat, strategy)


def test_nodes_that_hold_more_than_is_asked_are_told_apart_by_their_capacity():
    """Zones are counted up to what is asked, and spreading goes by all the capacity there is."""
    copies, flat = np.array([4, 9, 9]), np.zeros(3, dtype=int)
    within = np.array([[1, 1, 0], [1, 1, 1]])
    chunks = fill_by_numa_zones(
        1, copies, flat, flat, FillStrategy.SPREAD, replicas_by_zones=within
    )
    assert chunks == [(1, 1)]


def test_what_goes_first_on_a_node_comes_after_the_wish_for_few_zones():
    copies, first, flat = np.array([2, 2]), np.array([1, 2]), np.zeros(2)
    within = np.array([[2, 0], [2, 2]])
    chunks = fill_by_numa_zones(
        2,
        copies,
        zone_layers(within),
        flat,
        FillStrategy.BINPACK,
        replicas_by_zones=within,
        preferred_replicas=first,
    )
    assert sorted(chunks) == [(0, 1), (0, 1)]


def test_the_next_pod_goes_where_it_needs_the_fewest_zones():
    within = np.array([[1, 0, 0], [1, 1, 0], [1, 1, 1]])
    assert fewer_zones(within).tolist() == [0, -1, -2]
