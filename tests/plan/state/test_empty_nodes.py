"""What empty nodes hold is counted once for a shape, and cordons count only where they should."""

from unittest.mock import patch

import pytest

from kai_py.plan.plan import Stage
from kai_py.plan.state import empty_nodes
from tests.support.scenario import cluster, node, pod, queue


@pytest.fixture
def counted():
    """The shapes whose pods were counted on empty nodes, by number."""
    numbers, count = [], empty_nodes.replicas_that_fit

    def counting(shape, *rest):
        numbers.append(shape.number)
        return count(shape, *rest)

    with patch.object(empty_nodes, "replicas_that_fit", counting):
        yield numbers


def full_world(**large):
    """Two full nodes, one of them large; large pods of another queue wait."""
    return cluster(
        queue("has", 4),
        queue("waits", 0),
        node("n0", 2, cpu="4"),
        node("n1", 2, cpu="64", **large),
        [pod(f"runs{i}", queue="has", node=f"n{i % 2}") for i in range(4)],
        [pod(f"p{i}", queue="waits", requests={"cpu": str(8 + i)}) for i in range(3)],
    )


def test_each_shape_is_counted_once_for_demand_and_explanations(counted):
    world = full_world()
    first = world.plan(100.0)
    assert [each.stage for each in first.unplaced] == [Stage.FAIR_SHARE] * 3
    assert len(counted) == len(set(counted)) == 3
    counted.clear()
    world.add(pod("later", queue="has"), pod("p9", queue="waits", requests={"cpu": "8"}))
    assert len(world.plan(101.0).unplaced) == 5
    assert len(counted) == 1


def test_evictions_do_not_help_where_only_a_cordoned_node_is_large_enough():
    """Later it may take the pods, so they are not infeasible."""
    plan = full_world(unschedulable=True).plan(100.0)
    assert [each.stage for each in plan.unplaced] == [Stage.RESOURCES] * 3
    assert not any(each.is_infeasible or each.protections for each in plan.unplaced)
    assert not any("No preemption victims" in each.message for each in plan.unplaced)
