"""A cycle ends whatever is in the cluster, and no gang is set aside: a seed that fails is kept."""

import pytest

from kai_py.plan.plan import Stage
from tests.plan.mixed_worlds import mixed_world
from tests.support.cpu_limit import cpu_limit

SECONDS = 5.0
"""Of processor time for two cycles; an ordinary case takes a hundredth."""

SUITE, NIGHTLY, PART = 300, 10_000, 500
KEPT = (410, 726, 763, 1074, 1109)
"""Found a search for victims that did not end: of pods of two shapes, for a gang of their queue."""


def decide_twice(seed: int) -> None:
    """The second cycle knows what the first did, as in a cluster in which nothing changes."""
    cluster = mixed_world(seed)
    for now in (1000.0, 1001.0):
        with cpu_limit(SECONDS):
            plan = cluster.plan(now)
        assert not plan.set_aside, f"seed {seed}: {plan.set_aside[0].error}"
        assert all(each.message for each in plan.unplaced), seed
        assert all(each.stage in Stage for each in plan.unplaced)


@pytest.mark.parametrize("seed", KEPT)
def test_a_cycle_ends_where_one_did_not(seed):
    decide_twice(seed)


@pytest.mark.parametrize("first", range(0, SUITE, 100))
def test_a_cycle_ends(first):
    for seed in range(first, first + 100):
        decide_twice(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(SUITE, SUITE + NIGHTLY, PART))
def test_a_cycle_ends_in_ten_thousand_clusters(first):
    for seed in range(first, first + PART):
        decide_twice(seed)
