"""The simulated week is judged by what was held, entitled and finished."""

import math

from benchmarks.fairness.week import CONFIGURATION, fairness, week
from kai_py.api.settings import EvictionConfig
from kai_py.simulate.scenarios.scenario import NodeGroup, Scenario, ScenarioJob, ScenarioQueue
from kai_py.simulate.scenarios.simulation import simulate


def scenario(*jobs):
    return Scenario(
        hours=10,
        nodes=(NodeGroup(name="node", count=2, gpus=8),),
        queues=tuple(
            ScenarioQueue.model_validate({"name": name, "deservedGPUs": 8})
            for name in ("queue-0", "queue-1")
        ),
        jobs=jobs,
    )


def judged(*jobs):
    world = scenario(*jobs)
    return fairness(world, simulate(world, CONFIGURATION))


def eight(name, queue, at=0):
    return ScenarioJob(name=name, queue=queue, gpus_per_pod=8, minutes=60, at=at)


def test_borrowing_finishes_earlier_than_alone():
    found = judged(eight("a", "queue-0"), eight("b", "queue-0"))
    assert found.gangs == 2
    assert 0.7 < found.slowest_queue < 0.8  # an hour each instead of one and two
    assert found.jain == 1.0


def test_work_that_is_evicted_finishes_late():
    jobs = [eight("a", "queue-0"), eight("b", "queue-0"), eight("c", "queue-1", at=30)]
    found = judged(*jobs)
    assert found.gangs == 3
    assert 0.9 < found.slowest_gang < 1.1
    assert found.worst_part > 0.95


def test_a_gang_that_would_have_finished_alone_is_not_left_out():
    """The other queue holds both nodes to the end, and no pod may be evicted."""
    jobs = [eight("a", "queue-0"), eight("b", "queue-0", at=1), eight("c", "queue-1", at=2)]
    world = scenario(*jobs)
    patient = CONFIGURATION.model_copy(update={"eviction": EvictionConfig(reclaim=False)})
    short = world.model_copy(update={"hours": 0.9})
    assert fairness(short, simulate(short, patient)).slowest_gang == math.inf


def test_a_week_is_the_same_every_time():
    assert week(3, hours=48) == week(3, hours=48)
    assert week(3, hours=48) != week(3, hours=48, seed=2)
