"""Preference tiers: the first that differs decides, whatever the tiers after it say."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.plan.placement.preferences import (
    DOMAIN,
    GPU_NODES,
    IDLE,
    MAX_SPAN,
    NEAR_GANG,
    STATED,
    TIERS,
    idle_of,
    inside_domain,
    rank_nodes,
    with_idle,
)

WIDE = st.sampled_from([-(2**40), -3, -1, 0, 1, 2, 7, 2**40])


@st.composite
def tier_values(draw):
    nodes = draw(st.integers(0, 6))
    tiers = draw(st.sets(st.sampled_from(TIERS)))
    values = st.lists(WIDE, min_size=nodes, max_size=nodes).map(np.array)
    return nodes, {tier: draw(values).astype(np.int64) for tier in tiers}


@given(tier_values())
def test_ranks_order_nodes_as_tuples_of_their_tiers(drawn):
    nodes, preferences = drawn
    ranks = rank_nodes(preferences, nodes)
    keys = [
        tuple(int(preferences[tier][node]) for tier in TIERS if tier in preferences)
        for node in range(nodes)
    ]
    for one in range(nodes):
        for other in range(nodes):
            assert (ranks[one] < ranks[other]) == (keys[one] < keys[other])
    assert (ranks >= 0).all()
    assert (ranks < MAX_SPAN).all()


@pytest.mark.parametrize(("higher", "lower"), list(pairwise(TIERS)), ids=lambda tier: tier.name)
def test_no_amount_of_a_lower_tier_outweighs_a_higher_one(higher, lower):
    ranks = rank_nodes({higher: np.array([1, 0]), lower: np.array([0, 10**9])}, 2)
    assert ranks[0] > ranks[1]


def test_a_tier_that_is_missing_or_equal_everywhere_decides_nothing():
    flat = np.full(3, 5)
    assert rank_nodes({}, 3).tolist() == [0, 0, 0]
    assert rank_nodes({STATED: flat, GPU_NODES: flat > 0}, 3).tolist() == [0, 0, 0]


def test_layers_of_a_tier_are_ranked_with_the_tiers_around_it():
    by_layer = rank_nodes(
        {
            STATED: np.array([0, 1]),
            NEAR_GANG: np.array([[0], [-1]]),
            IDLE: np.array([True, False]),
        },
        2,
    )
    assert by_layer.shape == (2, 2)
    assert np.argsort(-by_layer.reshape(-1)).tolist() == [1, 3, 0, 2]


def test_idle_capacity_is_the_last_tier_of_ranks_that_are_kept():
    idle = np.array([True, False, True])
    kept = with_idle(rank_nodes({STATED: np.array([0, 1, 1])}, 3), idle=idle)
    asked = rank_nodes({STATED: np.array([0, 1, 1]), IDLE: idle}, 3)
    assert np.argsort(kept).tolist() == np.argsort(asked).tolist() == [0, 1, 2]
    assert idle_of(kept).tolist() == [1, 0, 1]


def test_the_domains_of_an_outer_subgroup_come_before_those_of_one_inside():
    outer = inside_domain({}, np.array([2, 2, 1, 1]))
    both = inside_domain(outer, np.array([1, 2, 9, 8]))
    assert np.argsort(-rank_nodes(both, 4)).tolist() == [1, 0, 2, 3]
    assert inside_domain(outer, None)[DOMAIN] is outer[DOMAIN]
