"""Queues that bound their number of pods, as Kueue's and Volcano's do by the resource ``pods``."""

from msgspec.structs import replace

from kai_py.plan.plan import Stage
from tests.support.scenario import cluster, evicted, node, placed, pod, queue


def pods(names, of, **options):
    return [pod(name, 0, queue=of, created=i, **options) for i, name in enumerate(names)]


def test_a_queue_takes_no_more_pods_than_it_says():
    own = queue("q", 8, resources={"pods": {"max": 2}})
    found = cluster(node("n0"), own, pods("abc", "q")).plan()
    assert sorted(placed(found)) == ["a", "b"]
    (waits,) = found.unplaced
    assert waits.stage is Stage.QUEUE_MAX
    assert "Limit is 2 pods, currently 2 pods allocated" in waits.message
    (share,) = found.queues
    assert (share.allocated["pods"], share.maximum["pods"]) == (2, 2)


def test_a_parent_bounds_the_pods_of_all_its_queues():
    queues = [
        queue("top", 8, resources={"pods": {"max": 3}}),
        *(queue(name, 8, parent="top") for name in "xy"),
    ]
    found = cluster(node("n0"), queues, pods("ab", "x"), pods("cd", "y")).plan()
    assert len(placed(found)) == 3


def test_pods_of_a_queue_that_names_none_are_not_counted():
    found = cluster(node("n0"), queue("q", 8), pods("abc", "q")).plan()
    assert sorted(placed(found)) == ["a", "b", "c"]
    assert "pods" not in found.queues[0].allocated


def test_what_a_queue_deserves_of_pods_is_reclaimed():
    def fitting(deserved):
        shares = {name: {"pods": {"deserved": deserved}} for name in ("x", "y")}
        queues = [queue(name, 8, resources=shares[name]) for name in ("x", "y")]
        small = node("n0")
        small = replace(
            small,
            status=replace(small.status, allocatable={**small.status.allocatable, "pods": "4"}),
        )
        return cluster(small, queues, pods("abcd", "x", node="n0"), pods("e", "y")).plan()

    assert len(evicted(fitting(2))) == 1
    assert evicted(fitting(4)) == []
