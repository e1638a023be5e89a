"""How many pods may be relocated for one gang, and what is said if more would have to move."""

from unittest.mock import patch

import pytest

from kai_py.plan.plan import Action, Stage
from kai_py.plan.victims.trials import TrialPlacements
from tests.support.worlds import gang, world

TOO_MANY = (
    "No pod is relocated for it, because more pods would have to move than "
    "eviction.consolidateAtMost, which is {}."
)
NODES = {f"n{i}": 4 for i in range(6)}
RUNNING = [
    gang(f"runs-{name}-{i}", pods=1, node=name, created=i) for name in NODES for i in range(2)
]


def whole_nodes(name, count):
    return gang(name, pods=count, gpus=4, created=90)


def decide(*waiting, at_most):
    """Two pods with one GPU each run on every node of four GPUs."""
    return world(NODES, *RUNNING, *waiting, max_relocated_pods=at_most).plan()


@pytest.mark.parametrize(("count", "at_most"), [(1, 2), (2, 4), (3, 6)])
def test_as_many_pods_are_relocated_as_the_limit_allows(count, at_most):
    plan = decide(whole_nodes("large", count), at_most=at_most)
    assert [each.action for each in plan.evictions] == [Action.CONSOLIDATE] * at_most
    plan = decide(whole_nodes("large", count), at_most=at_most - 1)
    assert not plan.evictions
    (unplaced,) = plan.unplaced
    assert unplaced.message.endswith(TOO_MANY.format(at_most - 1))


def test_few_sets_are_tried_if_all_of_them_are_too_large():
    with patch.object(
        TrialPlacements,
        "exceeds_max_pods",
        autospec=True,
        side_effect=TrialPlacements.exceeds_max_pods,
    ) as tried:
        decide(whole_nodes("large", 2), at_most=3)
    assert tried.call_count <= 9


def test_an_equal_gang_says_so_without_a_search():
    plan = decide(whole_nodes("first", 2), whole_nodes("second", 2), at_most=3)
    assert [each.message.endswith(TOO_MANY.format(3)) for each in plan.unplaced] == [True, True]


def test_nothing_of_the_kind_is_said_where_pods_fit_nowhere_else():
    full = [gang(f"runs-{name}", pods=1, gpus=3, node=name) for name in NODES]
    plan = world(NODES, *full, gang("large", pods=1, gpus=4, created=90)).plan()
    (unplaced,) = plan.unplaced
    assert "consolidateAtMost" not in unplaced.message


def test_a_gang_that_starts_by_preemption_instead_does_not_say_so():
    urgent = gang("urgent", pods=2, gpus=4, priority=100, created=90)
    plan = decide(urgent, at_most=3)
    assert {each.action for each in plan.evictions} == {Action.PREEMPT}
    (unplaced,) = plan.unplaced
    assert unplaced.stage is Stage.NOMINATED
    assert "consolidateAtMost" not in unplaced.message
