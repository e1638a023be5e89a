"""Scores worked out by hand, as the formulas of the paper have them."""

import numpy as np
import pytest

from benchmarks.openb.scores.clustering import Clustering, gpu_class
from benchmarks.openb.scores.dot_product import dot_product
from benchmarks.openb.scores.packing import packing
from benchmarks.openb.scores.random_score import random_score
from kai_py.policy.score.node_capacity import GpuRequest, NodeCapacity

PART, ONE, TWO = 1, 4, 8


def rooms(*machines):
    """Each: free cores, free parts of its GPUs."""
    return NodeCapacity(
        rows=np.arange(len(machines)),
        cpu=np.array([1000.0 * cores for cores, _ in machines]),
        memory=np.zeros(len(machines)),
        free_milli=np.array([parts for _, parts in machines], dtype=float),
        devices=np.array([len(parts) for _, parts in machines]),
    )


def ask(cores, devices, milli=1000.0, nodes=1):
    return GpuRequest(1000.0 * cores, 0.0, devices, np.full(nodes, milli))


def clustering_with(*classes):
    """The score where pods of these classes are on the nodes."""
    score = Clustering(len(classes))
    score.classes[:] = classes
    return score


def test_dot_product():
    scores = dot_product(ask(64, 4), rooms((128, [1000] * 8)))
    assert scores.score.tolist() == [50]


@pytest.mark.parametrize(
    ("asked", "classes", "level"),
    [(1, ONE, 75), (1, ONE | PART, 50), (1, 0, 25), (1, PART, 0), (2, TWO, 75), (0, ONE, 0)],
)
def test_clustering_by_company(asked, classes, level):
    scores = clustering_with(classes)(ask(1, asked), rooms((64, [1000] * 8)))
    assert scores.score.tolist() == [level]


def test_clustering_prefers_the_fuller_of_equals():
    scores = clustering_with(ONE, ONE)(
        ask(1, 1, nodes=2), rooms((64, [1000] * 8), (64, [1000] * 4 + [0] * 4))
    )
    assert scores.score.tolist() == [75, 87]


def test_packing_uses_gpus_in_use_then_nodes_in_use_then_small_nodes():
    machines = rooms((8, [400, 1000]), (8, [0, 1000]), (8, [1000, 1000]))
    assert packing(ask(1, 1, 300.0, nodes=3), machines).score.tolist() == [96, 49, 31]
    assert packing(ask(1, 1, nodes=3), machines).score.tolist() == [49, 49, 31]


def test_lots_are_drawn_again_but_not_by_accident():
    first, again = random_score(), random_score()
    machines = rooms(*[(8, [500, 700])] * 50)
    drawn = [first(ask(1, 1, 500.0, nodes=50), machines) for _ in range(2)]
    assert drawn[0].score.tolist() == again(ask(1, 1, 500.0, nodes=50), machines).score.tolist()
    assert drawn[0].score.tolist() != drawn[1].score.tolist()
    assert len(set(drawn[0].score)) == 50
    assert set(drawn[0].gpu) == {0, 1}


def test_classes_tell_parts_and_counts_apart():
    asked = [ask(1, 0), ask(1, 1, 300.0), ask(1, 1), ask(1, 2), ask(1, 8)]
    bits = [gpu_class(each.devices, each.milli) for each in asked]
    assert bits[:4] == [0, PART, ONE, TWO]
    assert len(set(bits)) == 5


def test_classes_of_pods_placed_stay_on_their_nodes():
    score = Clustering(2)
    score.record(1, 1, 500.0)
    score.record(1, 2, 1000.0)
    assert score.classes.tolist() == [0, PART | TWO]
