"""A cycle ends whatever is in the cluster, and no gang is set aside: a seed that fails is kept."""

import random

import pytest

from kai_py.grouping.gang import Subgroup, TopologyConstraint
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.cycle.run import run_cycle
from kai_py.plan.plan import Stage
from kai_py.plan.session.settings import CycleSettings
from tests.plan.mixed_worlds import mixed_world
from tests.support.cpu_limit import cpu_limit
from tests.support.patience import processor_seconds
from tests.support.records import replace
from tests.support.scenario import Cluster, job_with_pods, node, queue

SECONDS = 5.0
"""Of processor time for two cycles; an ordinary case takes a hundredth."""

SUITE, NIGHTLY, PART = 300, 10_000, 500
KEPT = (410, 726, 763, 1074, 1109)
"""Found a search for victims that did not end: of pods of two shapes, for a gang of their queue."""


def decide_twice(seed: int) -> None:
    """The second cycle knows what the first did, as in a cluster in which nothing changes."""
    cluster = mixed_world(seed)
    for now in (1000.0, 1001.0):
        with cpu_limit(processor_seconds(SECONDS)):
            plan = cluster.plan(now)
        assert not plan.set_aside, f"seed {seed}: {plan.set_aside[0].error}"
        assert all(each.message for each in plan.unplaced), seed
        assert all(each.stage in Stage for each in plan.unplaced)


@pytest.mark.parametrize("seed", KEPT)
def test_a_cycle_ends_where_one_did_not(seed):
    decide_twice(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SUITE, 100))
def test_a_cycle_ends(first):
    for seed in range(first, first + 100):
        decide_twice(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(SUITE, SUITE + NIGHTLY, PART))
def test_a_cycle_ends_in_ten_thousand_clusters(first):
    for seed in range(first, first + PART):
        decide_twice(seed)


def test_nested_topologies_end():
    """Four levels that have nothing to do with each other, nested."""
    chance, levels = random.Random(1), [f"example.com/l{i}" for i in range(4)]
    nodes = [
        node(f"n{i}", 1, labels={level: f"d{chance.randrange(16)}" for level in levels})
        for i in range(128)
    ]
    tree = Subgroup(name="leaf", min_members=3)
    for level in levels:
        topology = TopologyConstraint(required_level=level)
        tree = Subgroup(name=f"of-{level}", children=(tree,), topology=topology)
    cluster = Cluster().add(*nodes, queue("team", 99), *job_with_pods("deep", 3, queue="team"))
    found = cluster.snapshot(1000.0)
    [key] = found.pending
    pods = tuple(replace(each, subgroup="leaf") for each in found.gangs[key].members)
    deep = replace(found.gangs[key], tree=tree, members=pods)
    with cpu_limit(processor_seconds(60.0)):
        plan = run_cycle(
            replace(found, gangs={key: deep}), CycleSettings(), CycleMemory(cluster.devices)
        )
    [pending] = plan.unplaced
    assert pending.stage in {Stage.SEARCH_BUDGET, Stage.TOPOLOGY}, pending.message
