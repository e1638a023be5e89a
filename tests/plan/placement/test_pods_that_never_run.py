"""Pods of a gang that no node can ever hold do not keep it from starting with the others."""

import pytest

from kai_py.plan.plan import Plan, Stage
from kai_py.policy.fairness_rules import KAI
from tests.support.records import replace
from tests.support.worlds import gang, member, subgroup, world

NODES = {"a": 2, "b": 2}
LARGER = 8
"""GPUs that no node has."""


def placed(plan: Plan) -> list[str]:
    return [each.pod.name for gang in plan.placements for each in gang.pods]


def mixed(sizes, floor, *, orders=(), tree=None, leaves=""):
    """A gang whose pods request ``sizes`` GPUs."""
    members = tuple(
        replace(
            member(f"g-{i}", gpus, "", leaves[i] if leaves else ""),
            order=orders[i] if orders else 0,
        )
        for i, gpus in enumerate(sizes)
    )
    return replace(gang("g", floor=floor, tree=tree), members=members)


@pytest.mark.parametrize(
    ("sizes", "floor", "expected"),
    [
        ((LARGER, 1, 1), 2, {"g-1", "g-2"}),
        ((1, LARGER, 1), 2, {"g-0", "g-2"}),
        ((LARGER, LARGER, 1), 1, {"g-2"}),
        ((1, LARGER, 1), 1, {"g-0", "g-2"}),
        ((LARGER, 1, 1), 3, set()),
        ((LARGER, LARGER), 1, set()),
    ],
)
def test_a_gang_starts_without_them_if_it_can(sizes, floor, expected):
    plan = world(NODES, mixed(sizes, floor)).plan()
    assert set(placed(plan)) == expected
    (unplaced,) = plan.unplaced
    assert unplaced.stage is Stage.RESOURCES
    assert "a pod requests nvidia.com/gpu 8" in unplaced.message
    assert {pod.name for pod in unplaced.pods} == {f"g-{i}" for i in range(len(sizes))} - expected


def test_an_optional_subgroup_that_never_runs_leaves_its_place_to_another():
    tree = subgroup("", needs=1, children=(subgroup("x", 1), subgroup("y", 1)))
    plan = world(NODES, mixed((LARGER, 1), 1, tree=tree, leaves="xy")).plan()
    assert placed(plan) == ["g-1"]


def test_one_that_starts_before_others_is_waited_for():
    plan = world(NODES, mixed((LARGER, 1, 1), 2, orders=(0, 1, 1))).plan()
    assert not placed(plan)


def test_one_that_only_lacks_capacity_now_is_waited_for():
    blocker = gang("blocker", node="a", pods=1)
    plan = world({"a": 2, "b": 1}, blocker, mixed((2, 1), 1)).plan()
    assert not placed(plan)


def test_pods_without_which_a_gang_can_start_include_them():
    blocker = gang("blocker", node="a", pods=2)
    plan = world({"a": 2}, blocker, mixed((LARGER, 1, 1), 2)).plan()
    (unplaced,) = plan.unplaced
    assert [pod.name for pod in unplaced.elastic] == ["g-0"]


def test_kai_rules_wait_for_them():
    plan = world(NODES, mixed((LARGER, 1, 1), 2), rules=KAI).plan()
    assert not placed(plan)
