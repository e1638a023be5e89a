"""A simulated week of queues whose work comes in bursts, and how fairly it was served.

received / entitled   GPU-hours a queue held over those of its fair share, which never is more
                      than it asked for
finish-time fairness  time from coming to finish, over the same for the same work of the same
                      queue on a partition of its own, as large as what it deserves; above 1
                      sharing did harm (Mahajan et al., Themis, NSDI 2020)
"""

import math
import random
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from kai_py.config import Configuration
from kai_py.simulate.scenarios.measurements import SimulationResult
from kai_py.simulate.scenarios.report import summarise
from kai_py.simulate.scenarios.scenario import NodeGroup, Scenario, ScenarioJob, ScenarioQueue
from kai_py.simulate.scenarios.simulation import simulate

NODE_GPUS = 8
HOURS = 168.0
LAST_BURST = 0.9 * HOURS
"""What comes later would not end within the week."""
BURST_HOURS, BURST_JOBS = 9.0, (4, 12)
CONFIGURATION = Configuration(resync_period=24 * 3600.0)
"""The defaults; nothing is missed that would have to be looked for again."""
SIZES, MINUTES = (1, 1, 2, 4, 8), (30.0, 60.0, 120.0, 240.0)


@dataclass(frozen=True, slots=True)
class Fairness:
    """``jain`` and ``worst_part`` of received over entitled; ``slowest_*``: finish-time fairness.

    ``slowest_gang`` over all gangs, ``slowest_queue`` of the means of queues; infinite for a gang
    that would have finished alone and did not.
    """

    jain: float
    worst_part: float
    slowest_gang: float
    slowest_queue: float
    gangs: int
    used: float


def week(queues: int, *, hours: float = HOURS, seed: int = 1) -> Scenario:
    """As many nodes as queues, each of which deserves one node."""
    jobs = tuple(job for q in range(queues) for job in _bursts(q, hours, seed))
    return _scenario(range(queues), jobs, hours)


def fairness(scenario: Scenario, result: SimulationResult) -> Fairness:
    """Judge a simulated ``scenario`` of ``week``; plays each queue alone to compare."""
    alone = _finishes_alone(scenario)
    found = {wait.gang: wait for wait in result.waits}
    slowed: dict[str, list[float]] = {}
    for gang, finish in alone.items():
        shared = found[gang].completion
        slow = math.inf if shared is None else shared / finish
        slowed.setdefault(found[gang].queue, []).append(slow)
    summary = summarise(result)
    parts = [queue.received / queue.entitled for queue in summary.queues if queue.entitled > 0]
    return Fairness(
        jain=summary.jain_index,
        worst_part=min(parts),
        slowest_gang=max(max(each) for each in slowed.values()),
        slowest_queue=max(statistics.fmean(each) for each in slowed.values()),
        gangs=sum(map(len, slowed.values())),
        used=summary.allocated,
    )


def _finishes_alone(scenario: Scenario) -> dict[str, float]:
    finishes: dict[str, float] = {}
    for line in scenario.queues:
        jobs = tuple(job for job in scenario.jobs if job.queue == line.name)
        result = simulate(
            Scenario(
                hours=scenario.hours,
                nodes=(NodeGroup(name="alone", count=1, gpus=NODE_GPUS),),
                queues=(line,),
                jobs=jobs,
            ),
            CONFIGURATION,
        )
        finishes |= {w.gang: w.completion for w in result.waits if w.completion is not None}
    return finishes


def _scenario(queues: range, jobs: tuple[ScenarioJob, ...], hours: float) -> Scenario:
    return Scenario(
        hours=hours,
        nodes=(NodeGroup(name="node", count=len(queues), gpus=NODE_GPUS),),
        queues=tuple(
            ScenarioQueue.model_validate({"name": f"queue-{q}", "deservedGPUs": NODE_GPUS})
            for q in queues
        ),
        jobs=jobs,
    )


def _bursts(queue: int, hours: float, seed: int) -> Iterator[ScenarioJob]:
    chance, at, number = random.Random(f"{seed}/{queue}"), 0.0, 0
    while (at := at + chance.expovariate(1 / BURST_HOURS)) < hours * LAST_BURST / HOURS:
        for _ in range(chance.randint(*BURST_JOBS)):
            yield ScenarioJob(
                name=f"q{queue}-{number}",
                queue=f"queue-{queue}",
                gpus_per_pod=chance.choice(SIZES),
                minutes=chance.choice(MINUTES),
                at=at * 60,
            )
            number += 1
