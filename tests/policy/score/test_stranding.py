"""When a score is needed: as soon as pods could leave GPUs free that no pod can use."""

import pytest

from kai_py.policy.fit import StaticFits
from kai_py.policy.score.fragmentation import Stranding, could_strand
from tests.support.scenario import claim, claiming, cluster, node, pod, queue, shared


def strands(pods, *objects):
    snapshot = cluster(queue("q", 64), *objects, pods).snapshot()
    waiting = (snapshot.gangs[key] for key in snapshot.pending)
    shapes = [member.shape for gang in waiting for member in gang.pending]
    return could_strand(shapes, snapshot, StaticFits())


def asks(name, gpus, cpu="1", memory="1Gi", **spec):
    return pod(name, gpus, queue="q", requests={"cpu": cpu, "memory": memory}, **spec)


GPU_NODE = node("g", 8, cpu="64")


def test_pods_that_leave_enough_for_every_gpu_strand_none():
    assert not strands([asks("a", 1, "8"), asks("b", 4, "32", "256Gi")], GPU_NODE)


@pytest.mark.parametrize(("cpu", "memory"), [("9", "1Gi"), ("1", "65Gi")])
def test_pods_that_ask_for_more_than_a_node_has_per_gpu_do(cpu, memory):
    assert strands([asks("a", 1, cpu, memory)], GPU_NODE)


def test_what_is_free_counts_not_what_the_node_has():
    world = GPU_NODE, pod("old", 4, queue="q", node="g", requests={"cpu": "40"})
    assert strands([asks("a", 1, "8")], *world)
    assert not strands([asks("a", 1, "6")], *world)


def test_pods_without_gpus_do_where_a_node_with_gpus_takes_them():
    plain, labelled = asks("a", 0), asks("b", 0, node_selector={"kubernetes.io/hostname": "n"})
    nodes = GPU_NODE, node("n", 0)
    assert strands([plain], *nodes)
    assert not strands([labelled], *nodes)
    assert not strands([plain], node("n", 0))


def test_pods_that_accept_other_nodes_than_others_do():
    chosen = asks("b", 1, node_selector={"kubernetes.io/hostname": "h"})
    nodes = GPU_NODE, node("h", 8), node("n", 0)
    assert not strands([asks("a", 1)], *nodes)
    assert strands([asks("a", 1), chosen], *nodes)


def test_parts_do_those_that_wait_and_those_that_run():
    half = shared(pod("half", 0, queue="q"), "0.5")
    running = shared(pod("old", 0, queue="q", node="g"), "0.5", group="x")
    assert strands([half], GPU_NODE)
    assert strands([asks("a", 1), running], GPU_NODE)


def test_claims_are_not_asked():
    assert not strands([claiming(asks("a", 0), "c")], GPU_NODE, claim("c", owner="a"))


def test_what_was_found_is_asked_again_once_pods_or_nodes_differ():
    kept, fits = Stranding(), StaticFits()
    for objects in ((GPU_NODE, asks("a", 1)), (GPU_NODE, asks("b", 1, "9"))):
        built = cluster(queue("q", 64), *objects)
        snapshot = built.snapshot()
        shapes = {
            member.shape.number: member.shape
            for key in snapshot.pending
            for member in snapshot.gangs[key].pending
        }
        expected = could_strand(shapes.values(), snapshot, StaticFits())
        assert kept.is_possible(shapes, snapshot, fits) == expected
        assert kept.is_possible(shapes, snapshot, fits) == expected
