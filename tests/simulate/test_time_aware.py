"""A queue that used the cluster lately gets less of the remainder, for a while."""

import pytest

from kai_py.config import Configuration, FairShareConfig
from kai_py.simulate.cluster import SimulatedCluster
from tests.simulate.clusters import NOW, job, queue, simulated

HOUR = 3600.0


def contest(half_life, wait=0.0):
    """GPUs that a and b are entitled to after two hours of a alone, and a while without pods."""
    template = simulated(queue("a"), queue("b"), nodes=1, gpus=8)
    configuration = Configuration(fair_share=FairShareConfig(half_life=half_life))
    cluster = SimulatedCluster(configuration, start=NOW, seed=1)
    cluster.load(template.documents())
    cluster.embedded.create(job("alone", 8, "a", seconds=2 * HOUR))
    cluster.settle(2 * HOUR + 10)
    cluster.clock.advance(wait)
    for team in ("a", "b"):
        cluster.embedded.create_all(job(f"{team}-{i}", 1, team) for i in range(8))
    course = cluster.settle(60)
    shares = {share.queue: share.fair_share["gpu"] for share in course.last_plan.queues}
    return shares["a"], shares["b"]


def test_without_a_half_life_only_the_present_counts():
    assert contest(None) == (4, 4)


def test_past_use_lowers_the_claim():
    used_lately, rested = contest(HOUR)
    assert used_lately + rested == pytest.approx(8)
    assert used_lately < 2 < 6 < rested


@pytest.mark.slow
def test_and_is_forgotten():
    soon, later, much_later = (contest(HOUR, wait)[0] for wait in (0, 3 * HOUR, 240 * HOUR))
    assert soon <= later < much_later <= 4
    assert contest(HOUR, 240 * HOUR)[0] == pytest.approx(4, abs=0.1)
