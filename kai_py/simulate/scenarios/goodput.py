"""Goodput of a policy: GPU-hours of work that was not lost, and the losses by queue and rule.

Lost are the GPU-hours of evicted pods since their last checkpoint, which have to be repeated, and
the start-ups of all pods. A gang that did not start counts as waiting until the end of the
simulation, and one that did not complete as completing then, so that no policy gains by starving
gangs.
"""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from kai_py.api.times import HOUR
from kai_py.policy.lost_work import EARLY_SECONDS
from kai_py.simulate.scenarios.measurements import GangWait, PodAttempt, SimulationResult


class WaitFigures(Struct, frozen=True):
    """Waiting times in seconds; ``p99`` by nearest rank."""

    mean: float
    p99: float
    max: float


class QueueHours(Struct, frozen=True):
    """GPU-hours of a queue: received, and entitled (``entitlement`` says by what)."""

    received: float
    entitled: float


class PolicyFigures(
    Struct,
    frozen=True,
    rename={
        "useful_gpu_hours": "usefulGPUHours",
        "lost_gpu_hours": "lostGPUHours",
        "used_gpu_hours": "usedGPUHours",
        "evicted_pods": "evictedPods",
        "evicted_within_two_minutes": "evictedWithinTwoMinutes",
        "most_evictions_of_a_gang": "mostEvictionsOfAGang",
        "mean_completion_seconds": "meanCompletionSeconds",
        "waits_by_gpus": "waitsByGPUs",
        "lost_by_rule": "lostGPUHoursByRule",
        "lost_by_queue": "lostGPUHoursByQueue",
        "gangs_by_evictions": "gangsByEvictions",
    },
):
    """The results of one policy in a scenario.

    ``used_gpu_hours`` are the useful and the lost ones. ``most_evictions_of_a_gang`` counts the
    moments at which the gang lost pods. ``waits_by_gpus`` has the GPUs of a gang, as text, as keys.
    ``lost_by_rule`` and ``lost_by_queue`` are lost to evictions, not to start-ups.
    ``gangs_by_evictions``: by the number of such moments, as text, how many gangs had so many;
    those that had none are left out.
    """

    name: str
    useful_gpu_hours: float
    lost_gpu_hours: float
    used_gpu_hours: float
    evicted_pods: int
    evicted_within_two_minutes: int
    most_evictions_of_a_gang: int
    mean_completion_seconds: float
    waits: WaitFigures
    queues: dict[str, QueueHours]
    waits_by_gpus: dict[str, WaitFigures]
    lost_by_rule: dict[str, float]
    lost_by_queue: dict[str, float]
    gangs_by_evictions: dict[str, int]


def policy_figures(name: str, result: SimulationResult) -> PolicyFigures:
    """The figures of a simulated policy."""
    used = _gpu_hours((each, each.seconds) for each in result.attempts)
    useful = _gpu_hours((each, each.kept) for each in result.attempts)
    evicted = [each for each in result.attempts if each.evicted_by is not None]
    rules = sorted({each.evicted_by.value for each in evicted if each.evicted_by is not None})
    end = result.scenario.hours * HOUR
    by_evictions = Counter(_evictions_by_gang(evicted).values())
    return PolicyFigures(
        name=name,
        useful_gpu_hours=useful,
        lost_gpu_hours=used - useful,
        used_gpu_hours=used,
        evicted_pods=len(evicted),
        evicted_within_two_minutes=sum(each.seconds < EARLY_SECONDS for each in evicted),
        most_evictions_of_a_gang=max(by_evictions, default=0),
        mean_completion_seconds=statistics.fmean(
            [_completion(wait, end) for wait in result.waits] or [0.0]
        ),
        waits=_waits(result.waits, end),
        queues={
            queue: QueueHours(totals.received, totals.entitled)
            for queue, totals in result.queues.items()
        },
        waits_by_gpus={
            f"{gpus:g}": _waits([wait for wait in result.waits if wait.gpus == gpus], end)
            for gpus in sorted({wait.gpus for wait in result.waits})
        },
        lost_by_rule={
            rule: _lost_hours(each for each in evicted if each.evicted_by == rule) for rule in rules
        },
        lost_by_queue={
            queue: _lost_hours(each for each in evicted if each.queue == queue)
            for queue in result.queues
        },
        gangs_by_evictions={f"{times}": gangs for times, gangs in sorted(by_evictions.items())},
    )


def _gpu_hours(attempts: Iterable[tuple[PodAttempt, float]]) -> float:
    return sum(attempt.gpus * seconds for attempt, seconds in attempts) / HOUR


def _lost_hours(evicted: Iterable[PodAttempt]) -> float:
    return _gpu_hours((each, each.seconds - each.kept) for each in evicted)


def _evictions_by_gang(evicted: Iterable[PodAttempt]) -> Counter[str]:
    """The moments at which each gang lost pods."""
    moments = {(each.gang, each.ended_at) for each in evicted}
    return Counter(gang for gang, _ in moments)


def _completion(wait: GangWait, end: float) -> float:
    """Seconds to the completion of a gang, at the latest to the ``end`` of the simulation."""
    until_end = end - wait.arrived
    return until_end if wait.completion is None else min(wait.completion, until_end)


def _waits(waits: Sequence[GangWait], end: float) -> WaitFigures:
    times = sorted(end - each.arrived if each.seconds is None else each.seconds for each in waits)
    if not times:
        return WaitFigures(0.0, 0.0, 0.0)
    # Nearest rank: the smallest time that 99 % of the gangs do not exceed.
    return WaitFigures(statistics.fmean(times), times[-(-99 * len(times) // 100) - 1], times[-1])
