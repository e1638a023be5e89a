"""Nodes whose pods request more of something than there is: what is not requested does not count.

Static pods, and those of other schedulers, may be bound past what is allocatable.
"""

import pytest

from kai_py.plan.plan import Action
from tests.support.scenario import cluster, evicted, job, moves, node, placed, pod, queue


def too_much_memory(nodes):
    return [
        pod(f"hog-{n}", 0, node=n, scheduler_name="other", requests={"memory": "600Gi"})
        for n in nodes
    ]


@pytest.mark.parametrize("overcommitted", ["", "ab"])
def test_a_gang_of_several_sizes_is_placed_by_exact_search(overcommitted):
    owner = job("mixed", 6, "team")
    sizes = (4, 4, 3, 3, 3, 3)
    world = cluster(
        queue("team", 20),
        node("a", 10),
        node("b", 10),
        owner,
        [pod(f"mixed-{i}", gpus, owner=owner) for i, gpus in enumerate(sizes)],
        too_much_memory(overcommitted),
    )
    assert len(placed(world.plan())) == len(sizes)


@pytest.mark.parametrize("overcommitted", ["", "abc"])
def test_a_victim_whose_node_still_has_capacity_for_it_stays(overcommitted):
    owner = job("wide", 2, "guest")
    world = cluster(
        queue("owner", 4),
        queue("guest", 0),
        node("a", 1),
        node("b", 3),
        node("c", 2),
        owner,
        pod("wide-0", owner=owner, node="a"),
        pod("wide-1", owner=owner, node="b"),
        pod("new", queue="owner", node_selector={"kubernetes.io/hostname": "a"}),
        too_much_memory(overcommitted),
        actions=(Action.ALLOCATE, Action.RECLAIM),
    )
    assert evicted(world.plan()) == ["wide-0"]


@pytest.mark.parametrize("overcommitted", ["", "abc"])
def test_a_further_pod_is_relocated_so_that_another_fits(overcommitted):
    world = cluster(
        queue("team", 100),
        node("a", 4, labels={"disk": "fast"}),
        node("b", 2, labels={"disk": "fast"}),
        node("c", 1),
        pod("two", 2, queue="team", node="a", node_selector={"disk": "fast"}),
        pod("one", queue="team", node="b"),
        pod("large", 4, queue="team"),
        too_much_memory(overcommitted),
    )
    assert moves(world.plan()) == {"two": "b", "one": "c"}


@pytest.mark.parametrize("overcommitted", ["", "b"])
def test_the_node_that_is_cheapest_to_free_is_freed(overcommitted):
    world = cluster(
        queue("team", 100),
        node("a", 4),
        node("b", 4),
        node("c", 4),
        [pod(f"old-{i}", queue="team", node="a", created=i) for i in range(2)],
        pod("young", queue="team", node="b", created=9),
        pod("two", 2, queue="team", node="c"),
        pod("large", 4, queue="team"),
        too_much_memory(overcommitted),
    )
    assert moves(world.plan()) == {"young": "a"}
