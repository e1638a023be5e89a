"""Floors of trees, and whether members reach them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.grouping.gang import Subgroup, combined, is_satisfied

LEADER = Subgroup(name="leader", min_members=1)
WORKERS = Subgroup(name="workers", min_members=3)
BOTH = Subgroup(children=(LEADER, WORKERS))
EITHER = Subgroup(min_subgroups=1, children=(LEADER, WORKERS))


@pytest.mark.parametrize(
    ("tree", "members", "reached"),
    [
        (BOTH, {"leader": 1, "workers": 3}, True),
        (BOTH, {"leader": 1, "workers": 2}, False),
        (BOTH, {"leader": 4}, False),
        (EITHER, {"leader": 1}, True),
        (EITHER, {"workers": 2}, False),
        (Subgroup(), {}, True),
        (Subgroup(min_members=2), {"": 2}, True),
        (Subgroup(min_subgroups=0, children=(WORKERS,)), {}, True),
    ],
)
def test_a_tree_is_satisfied_when_enough_of_its_children_are(tree, members, reached):
    assert is_satisfied(tree, members) is reached


def test_the_floor_takes_the_cheapest_children_that_are_enough():
    assert BOTH.min_pods() == 4
    assert EITHER.min_pods() == 1
    assert Subgroup(children=(BOTH, EITHER), min_subgroups=1).min_pods() == 1


leaves = st.lists(st.integers(0, 3), min_size=1, max_size=4)


@given(leaves, st.integers(0, 4), st.data())
def test_nothing_below_the_floor_satisfies_and_more_members_never_hurt(floors, needed, data):
    children = tuple(Subgroup(name=str(i), min_members=n) for i, n in enumerate(floors))
    tree = Subgroup(min_subgroups=min(needed, len(children)), children=children)
    members = {str(i): data.draw(st.integers(0, 4)) for i in range(len(floors))}
    reached = is_satisfied(tree, members)
    if reached:
        assert sum(members.values()) >= tree.min_pods()
        assert is_satisfied(tree, {name: count + 1 for name, count in members.items()})


def tree_of(floors, needed):
    children = tuple(Subgroup(name=str(i), min_members=n) for i, n in enumerate(floors))
    return Subgroup(min_subgroups=needed, children=children)


def stages(number):
    """Floors of ``number`` stages: each requires some of the same leaves, and of these ``needed``.

    Leaves that a stage doesn't require have no minimum.
    """
    return st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=number)


@given(st.lists(st.integers(1, 3), min_size=4, max_size=4), stages(3))
def test_combined_trees_require_all_that_any_of_them_requires(floors, required):
    trees = [
        tree_of([n if used else 0 for n, used in zip(floors, each, strict=True)], None)
        for each in required
    ]
    together = [
        n if any(used) else 0 for n, used in zip(floors, zip(*required, strict=True), strict=True)
    ]
    assert combined(trees) == combined(trees[::-1]) == tree_of(together, None)


def test_where_some_subgroups_are_enough_those_without_a_minimum_are_none_of_them():
    two_of_three = [tree_of([1, 2, 0], 3), tree_of([1, 0, 3], 3)]
    assert combined(two_of_three) == tree_of([1, 2, 3], 2)


def test_of_trees_with_other_subgroups_the_largest_counts():
    assert combined([BOTH, Subgroup(min_members=2)]) is BOTH
    assert combined([LEADER]) is LEADER
