"""Quota that terminating pods still have is kept for the gang that waits for it."""

import pytest

from kai_py.policy.fairness_rules import KAI
from tests.support.scenario import (
    Cluster,
    cluster,
    evicted,
    job_with_pods,
    node,
    nominated,
    placed,
    pod,
    queue,
)

SMALL = {"small": "n"}


def with_terminating(*others, maximum: int = 4, gpus: int = 8, **settings) -> Cluster:
    """Two pods of queue a terminate; ``high`` needs four GPUs, as many as the queue may have."""
    running = [pod(f"run-{index}", queue="a", node="n", leaving=True) for index in range(2)]
    world = cluster(node("n", gpus), queue("a", 3, maximum=maximum), running, **settings)
    world.add(job_with_pods("high", 4, queue="a", priority=10), *others)
    return world


def test_nothing_starts_that_would_be_evicted_once_terminating_pods_have_gone() -> None:
    world = with_terminating(pod("small", queue="a"))
    plan = world.plan(10)
    assert not placed(plan)
    assert not nominated(plan)
    reasons = {each.gang: each.message for each in plan.unplaced}
    assert reasons["default/Pod/small"] == (
        "the remaining quota of queue a is kept for default/Job/high, which waits until "
        "terminating pods have gone."
    )
    for index in range(2):
        world.remove(pod(f"run-{index}", queue="a", node="n", leaving=True))
    assert set(placed(world.plan(11))) == {f"high-{index}" for index in range(4)}


def test_many_that_start_together_do_not_take_the_quota_either() -> None:
    world = with_terminating(*(pod(f"small-{index}", queue="a") for index in range(20)))
    assert not placed(world.plan(10))


def test_what_fits_beside_the_gang_starts() -> None:
    assert placed(with_terminating(pod("small", queue="a"), maximum=5).plan(10)) == SMALL


def test_no_quota_is_kept_for_a_gang_that_fits_on_no_node() -> None:
    assert placed(with_terminating(pod("small", queue="a"), gpus=3).plan(10)) == SMALL


def test_a_gang_that_comes_first_starts() -> None:
    world = with_terminating(pod("small", queue="a", priority=20))
    assert placed(world.plan(10)) == SMALL


def test_no_quota_is_kept_for_a_second_gang_that_will_exceed_the_bound() -> None:
    """Of three GPUs that it may have beside the pods that stay, the first takes two."""
    world = with_terminating(maximum=3)
    world.add(job_with_pods("first", 2, queue="a", priority=9))
    world.add(job_with_pods("second", 2, queue="a", priority=8), pod("small", queue="a"))
    assert placed(world.plan(10)) == SMALL


def test_a_bound_of_a_parent_is_kept_from_the_queues_below_it() -> None:
    running = [pod(f"run-{index}", queue="a", node="n", leaving=True) for index in range(2)]
    queues = queue("top", 4, maximum=4), queue("a", 4, parent="top"), queue("b", 0, parent="top")
    world = cluster(node("n", 8), *queues, running)
    world.add(job_with_pods("high", 4, queue="a"), pod("small", queue="b", created=1.0))
    plan = world.plan(10)
    assert not placed(plan)
    assert not evicted(plan)


@pytest.mark.parametrize("kept", [True, False])
def test_kai_starts_what_fits_now(kept) -> None:
    world = with_terminating(pod("small", queue="a"), **({} if kept else {"rules": KAI}))
    assert placed(world.plan(10)) == ({} if kept else SMALL)


def test_quota_is_free_again_when_the_gang_that_waits_is_deleted() -> None:
    world = with_terminating(pod("small", queue="a"))
    high = job_with_pods("high", 4, queue="a", priority=10)
    assert not placed(world.plan(10))
    assert not placed(world.plan(11))
    world.remove(*high)
    assert placed(world.plan(12)) == SMALL


def test_terminating_pods_that_are_overdue_are_not_waited_for() -> None:
    assert placed(with_terminating(pod("small", queue="a")).plan(1100)) == SMALL
