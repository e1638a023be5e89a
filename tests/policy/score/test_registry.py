"""Scores by name: one alone is as it is, several are normalised and added by weight."""

import numpy as np
import pytest

from kai_py.api.choices import BuiltInScore
from kai_py.policy.score import registry
from kai_py.policy.score.best_fit import best_fit
from kai_py.policy.score.node_capacity import ANY_DEVICE, GpuRequest, NodeCapacity, NodeScores
from kai_py.policy.score.registry import (
    ScoreDefinition,
    UnknownScoreError,
    WeightedScore,
    combined_score,
    register_score,
    registered_scores,
    score_definition,
)

REQUEST = GpuRequest(1000.0, 0.0, 1, np.full(3, 500.0))
NODES = NodeCapacity(
    rows=np.arange(3),
    cpu=np.array([8000.0, 64000.0, 2000.0]),
    memory=np.zeros(3),
    free_milli=np.array([[500.0, 1000.0], [1000.0, 700.0], [1000.0, 1000.0]]),
    devices=np.full(3, 2),
)


def fixed(*scores, gpu=(ANY_DEVICE,) * 3):
    return lambda request, capacity: NodeScores(np.array(scores, float), np.array(gpu))


@pytest.fixture(autouse=True)
def only_built_in_afterwards(monkeypatch):
    monkeypatch.setattr(registry, "_DEFINITIONS", dict(registry._DEFINITIONS))


def combined(*weighted):
    chosen = tuple(WeightedScore(name, weight) for name, weight in weighted)
    return combined_score(chosen, None)(REQUEST, NODES)


def test_the_scores_that_come_with_the_scheduler_are_registered():
    assert set(BuiltInScore) <= set(registered_scores())


def test_one_score_counts_as_it_is_whatever_its_weight_and_range():
    register_score("odd", fixed(-3.5, 250.0, 0.1))
    assert combined(("odd", 7)).score.tolist() == [-3.5, 250.0, 0.1]
    alone = combined(("best-fit", 3))
    assert alone.score.tolist() == best_fit(REQUEST, NODES).score.tolist()
    assert alone.gpu.tolist() == best_fit(REQUEST, NODES).gpu.tolist() == [0, 1, 0]


def test_several_are_added_by_weight():
    register_score("one", fixed(10, 0, 100))
    register_score("other", fixed(50, 60, 0))
    assert combined(("one", 1), ("other", 2)).score.tolist() == [110, 120, 100]


def test_several_are_normalised_from_their_ranges_to_whole_numbers_up_to_100():
    register_score("bytes", ScoreDefinition(lambda _: fixed(-50, 0, 170), -100.0, 100.0))
    register_score("flat", fixed(0, 0, 0))
    assert combined(("bytes", 1), ("flat", 5)).score.tolist() == [25, 50, 100]
    register_score("exact", fixed(33.4, 33.6, 34))
    assert combined(("exact", 1), ("flat", 1)).score.tolist() == [33, 33, 34]


def test_the_gpu_is_chosen_by_the_heaviest_score_that_names_one():
    register_score("light", fixed(0, 0, 0, gpu=(1, 1, 1)))
    register_score("heavy", fixed(0, 0, 0, gpu=(0, ANY_DEVICE, 0)))
    assert combined(("light", 1), ("heavy", 2)).gpu.tolist() == [0, 1, 0]
    assert combined(("light", 1), ("heavy", 1)).gpu.tolist() == [1, 1, 1]


@pytest.mark.parametrize("gpu", [(ANY_DEVICE,) * 3, (0, 1, ANY_DEVICE)])
def test_an_installed_score_need_not_choose_gpus(gpu):
    failures = []
    register_score("sound", fixed(1, 2, 3, gpu=gpu))
    score = combined_score((WeightedScore("sound"),), None, lambda *failed: failures.append(failed))
    assert score(REQUEST, NODES).score.tolist() == [1, 2, 3]
    assert score(REQUEST, NODES).gpu.tolist() == list(gpu)
    assert failures == []


def test_a_score_may_depend_on_the_pods_to_come():
    register_score("common", ScoreDefinition(lambda workload: fixed(*workload)))
    score = combined_score((WeightedScore("common"),), (1, 2, 3))
    assert score(REQUEST, NODES).score.tolist() == [1, 2, 3]


def test_names_are_taken_once_and_unknown_ones_get_the_nearest():
    with pytest.raises(ValueError, match="a score frugal is registered already"):
        register_score("frugal", fixed(0, 0, 0))
    with pytest.raises(UnknownScoreError, match="no score frugl; did you mean frugal\\?"):
        score_definition("frugl")
