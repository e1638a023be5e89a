"""Levels worked out by hand, as the formulas of the paper have them."""

import numpy as np
import pytest

from kai_py.policy.score.best_fit import best_fit
from kai_py.policy.score.clustering import clustering
from kai_py.policy.score.dot_product import dot_product
from kai_py.policy.score.node_capacity import GpuRequest, NodeCapacity, gpu_class
from kai_py.policy.score.packing import packing
from kai_py.policy.score.random_score import random_score

PART, ONE, TWO = 1, 4, 8


def rooms(*machines):
    """Each: free cores, free parts of its GPUs, bits of classes there."""
    return NodeCapacity(
        rows=np.arange(len(machines)),
        cpu=np.array([1000.0 * cores for cores, _, _ in machines]),
        memory=np.zeros(len(machines)),
        free_milli=np.array([parts for _, parts, _ in machines], dtype=float),
        devices=np.array([len(parts) for _, parts, _ in machines]),
        gpu_classes=np.array([classes for _, _, classes in machines]),
    )


def ask(cores, devices, milli=1000.0, nodes=1):
    return GpuRequest(1000.0 * cores, 0.0, devices, np.full(nodes, milli))


def test_best_fit():
    scores = best_fit(ask(32, 1, 500.0), rooms((64, [500, 1000], 0)))
    assert scores.score.tolist() == [100 - 12.5 - 7 + 0.5]
    assert scores.gpu.tolist() == [0]


def test_dot_product():
    scores = dot_product(ask(64, 4), rooms((128, [1000] * 8, 0)))
    assert scores.score.tolist() == [50]


@pytest.mark.parametrize(
    ("asked", "classes", "level"),
    [(1, ONE, 75), (1, ONE | PART, 50), (1, 0, 25), (1, PART, 0), (2, TWO, 75), (0, ONE, 0)],
)
def test_clustering_by_company(asked, classes, level):
    scores = clustering(ask(1, asked), rooms((64, [1000] * 8, classes)))
    assert scores.score.tolist() == [level]


def test_clustering_prefers_the_fuller_of_equals():
    scores = clustering(
        ask(1, 1, nodes=2), rooms((64, [1000] * 8, ONE), (64, [1000] * 4 + [0] * 4, ONE))
    )
    assert scores.score.tolist() == [75, 87]


def test_packing_uses_gpus_in_use_then_nodes_in_use_then_small_nodes():
    machines = rooms((8, [400, 1000], 0), (8, [0, 1000], 0), (8, [1000, 1000], 0))
    assert packing(ask(1, 1, 300.0, nodes=3), machines).score.tolist() == [96, 49, 31]
    assert packing(ask(1, 1, nodes=3), machines).score.tolist() == [49, 49, 31]


def test_lots_are_drawn_anew_but_not_by_accident():
    first, again = random_score(), random_score()
    machines = rooms(*[(8, [500, 700], 0)] * 50)
    drawn = [first(ask(1, 1, 500.0, nodes=50), machines) for _ in range(2)]
    assert drawn[0].score.tolist() == again(ask(1, 1, 500.0, nodes=50), machines).score.tolist()
    assert drawn[0].score.tolist() != drawn[1].score.tolist()
    assert len(set(drawn[0].score)) == 50
    assert set(drawn[0].gpu) == {0, 1}


def test_classes_tell_parts_and_counts_apart():
    asked = [ask(1, 0), ask(1, 1, 300.0), ask(1, 1), ask(1, 2), ask(1, 8)]
    bits = [gpu_class(each) for each in asked]
    assert bits[:4] == [0, PART, ONE, TWO]
    assert len(set(bits)) == 5
