"""Report of a simulation: usage, waiting times, fairness, evictions and costs.

Jain's index of received over entitled GPU-hours is 1 when every queue that was entitled to
something received the same fraction of it, and 1/n when one of n received everything.

Source: Jain, Chiu, Hawe, "A Quantitative Measure of Fairness" (1984).
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct

from kai_py.api.groups import grouped
from kai_py.api.times import HOUR
from kai_py.plan.plan import Stage
from kai_py.simulate.scenarios.goodput import PolicyFigures, policy_figures
from kai_py.simulate.scenarios.measurements import GangWait, SimulationResult, UsageInterval

MAX_SAMPLES = 241
OUR_POLICY = "kai-py"


class WaitingTimes(Struct, frozen=True):
    """Waiting times in seconds, of the gangs that started."""

    gangs: int
    never_started: int
    mean: float
    median: float
    p95: float
    longest: float


class QueueReport(Struct, frozen=True):
    """One queue; GPU-hours."""

    queue: str
    received: float
    entitled: float
    evicted_pods: int
    lost_gpu_hours: float
    waiting_times: WaitingTimes


class NeverStarted(Struct, frozen=True):
    """Gangs of a queue that never started, for one reason; ``message`` is that of one of them."""

    queue: str
    gangs: int
    stage: Stage
    message: str


class UsageSample(Struct, frozen=True):
    """GPUs at one time: used, requested by pending gangs, free on partly used nodes, most free.

    ``largest_free`` is the number free on the node with the most free GPUs.
    """

    hours: float
    allocated: float
    requested: float
    fragmented: float
    largest_free: float


class SimulationReport(Struct, frozen=True):
    """A simulation in numbers.

    ``allocated``, ``idle_while_waiting`` and ``fragmented`` are fractions of all GPU-hours.
    """

    hours: float
    gpus: float
    allocated: float
    idle_while_waiting: float
    """Those that were free while gangs waited for at least as many.

    This is the cost of fragmentation, gang sizes and bounds.
    """
    fragmented: float
    """The part that was free on partly used nodes: fragmentation."""
    jain_index: float
    waiting_times: WaitingTimes
    by_size: dict[str, WaitingTimes]
    queues: tuple[QueueReport, ...]
    evictions: dict[str, int]
    lost_gpu_hours: float
    cost: dict[str, float]
    cycles: int
    never_started: tuple[NeverStarted, ...]
    """Of the first policy, by queue and stage."""
    policies: tuple[PolicyFigures, ...]
    """Goodput: of kai-py first, then of the policies that it is compared with."""
    samples: tuple[UsageSample, ...]
    """Over time, at most ``MAX_SAMPLES`` at equal distances."""


def summarise(
    result: SimulationResult, others: Mapping[str, SimulationResult] = MappingProxyType({})
) -> SimulationReport:
    """The report of a simulation's result, compared with ``others`` by name of the policy."""
    parts = _gpu_parts(result)
    queues = tuple(
        QueueReport(
            queue=name,
            received=course.received,
            entitled=course.entitled,
            evicted_pods=course.evicted_pods,
            lost_gpu_hours=course.lost_gpu_hours,
            waiting_times=waiting_times([wait for wait in result.waits if wait.queue == name]),
        )
        for name, course in result.queues.items()
    )
    return SimulationReport(
        hours=result.scenario.hours,
        gpus=result.gpus,
        allocated=parts.allocated,
        idle_while_waiting=parts.idle_while_waiting,
        fragmented=parts.fragmented,
        jain_index=jain_index(
            queue.received / queue.entitled for queue in queues if queue.entitled > 0
        ),
        waiting_times=waiting_times(result.waits),
        by_size=_by_size(result.waits),
        queues=queues,
        evictions={action.value: count for action, count in sorted(result.evictions.items())},
        lost_gpu_hours=sum(queue.lost_gpu_hours for queue in queues),
        cost=_cost(result),
        cycles=result.cycles,
        never_started=_never_started(result),
        policies=tuple(
            policy_figures(name, each) for name, each in ({OUR_POLICY: result} | {**others}).items()
        ),
        samples=usage_samples(result),
    )


def _never_started(result: SimulationResult) -> tuple[NeverStarted, ...]:
    """Why gangs never started, as the last cycle found it."""
    started = {wait.gang for wait in result.waits if wait.seconds is not None}
    queues = {wait.gang: wait.queue for wait in result.waits}
    messages: dict[tuple[str, Stage], list[str]] = {}
    for each in sorted(result.unplaced, key=lambda unplaced: unplaced.gang):
        if each.gang in queues and each.gang not in started:
            messages.setdefault((queues[each.gang], each.stage), []).append(each.message)
    return tuple(
        NeverStarted(queue, len(found), stage, found[0])
        for (queue, stage), found in sorted(messages.items())
    )


def usage_samples(result: SimulationResult) -> tuple[UsageSample, ...]:
    """The state at equal distances of time."""
    end, found, index, now = result.scenario.hours * HOUR, [], 0, UsageInterval(0.0, 0.0, 0.0)
    for point in range(MAX_SAMPLES):
        seconds = end * point / (MAX_SAMPLES - 1)
        while index < len(result.moments) and result.moments[index].seconds <= seconds:
            now = result.moments[index]
            index += 1
        found.append(
            UsageSample(seconds / HOUR, now.used, now.waiting, now.fragmented, now.largest_free)
        )
    return tuple(found)


def jain_index(parts: Iterable[float]) -> float:
    """Fairness of ``parts``; 1 for none or all zero."""
    values = list(parts)
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def waiting_times(waits: Sequence[GangWait]) -> WaitingTimes:
    """Statistics of waiting times."""
    times = sorted(wait.seconds for wait in waits if wait.seconds is not None)
    return WaitingTimes(
        gangs=len(waits),
        never_started=len(waits) - len(times),
        mean=statistics.fmean(times) if times else 0.0,
        median=statistics.median(times) if times else 0.0,
        # Nearest rank: the smallest time that 95 % of the gangs do not exceed.
        p95=times[-(-95 * len(times) // 100) - 1] if times else 0.0,
        longest=times[-1] if times else 0.0,
    )


class _GpuParts(NamedTuple):
    """Parts of all GPU-hours, as of ``SimulationReport``."""

    allocated: float = 0.0
    idle_while_waiting: float = 0.0
    fragmented: float = 0.0


def duration(seconds: float) -> str:
    """A time for people: 45 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / HOUR:.1f} h"


def waiting_cells(waiting: WaitingTimes) -> tuple[str, ...]:
    """The cells of a row: gangs, those that never started, median, 95th percentile, longest."""
    times = (waiting.median, waiting.p95, waiting.longest)
    return (str(waiting.gangs), str(waiting.never_started), *map(duration, times))


def queue_rows(report: SimulationReport) -> list[tuple[str, ...]]:
    """Of each queue: received, entitled, evicted pods, lost GPU-hours, and ``waiting_cells``."""
    return [
        (
            queue.queue,
            f"{queue.received:.1f}",
            f"{queue.entitled:.1f}",
            str(queue.evicted_pods),
            f"{queue.lost_gpu_hours:.1f}",
            *waiting_cells(queue.waiting_times),
        )
        for queue in report.queues
    ]


def size_rows(report: SimulationReport) -> list[tuple[str, ...]]:
    """Of each size of a gang: its name and ``waiting_cells``."""
    return [(name, *waiting_cells(waiting)) for name, waiting in report.by_size.items()]


def never_started_rows(report: SimulationReport) -> list[tuple[str, ...]]:
    """Of each reason why gangs never started: queue, gangs, stage, message of one of them."""
    found = report.never_started
    return [(each.queue, str(each.gangs), each.stage, each.message) for each in found]


def _gpu_parts(result: SimulationResult) -> _GpuParts:
    total = result.gpus * result.scenario.hours
    if not total:
        return _GpuParts()
    used = idle = fragmented = 0.0
    ends = [moment.seconds for moment in result.moments[1:]] + [result.scenario.hours * HOUR]
    for moment, end in zip(result.moments, ends, strict=False):
        hours = (end - moment.seconds) / HOUR
        used += moment.used * hours
        idle += min(result.gpus - moment.used, moment.waiting) * hours
        fragmented += moment.fragmented * hours
    return _GpuParts(used / total, idle / total, fragmented / total)


def _by_size(waits: Sequence[GangWait]) -> dict[str, WaitingTimes]:
    """Waiting times by GPUs of the gang, in powers of two."""
    return {name: waiting_times(group) for name, group in size_groups(waits).items()}


def size_groups(waits: Iterable[GangWait]) -> dict[str, list[GangWait]]:
    """Gangs by their GPUs, in powers of two, smallest first."""
    groups = grouped(waits, lambda wait: _size(wait.gpus))
    return {_size_name(size): group for size, group in sorted(groups.items())}


def _size(gpus: float) -> int:
    if gpus <= 0:
        return 0
    # The next power of two that is not smaller.
    return 1 if gpus <= 1 else 2 ** (int(-(-gpus // 1)) - 1).bit_length()


def _size_name(size: int) -> str:
    if size <= 1:
        return ("no GPU", "up to 1")[size]
    return f"{size // 2 + 1} to {size}" if size > 2 else "2"


def _cost(result: SimulationResult) -> dict[str, float]:
    costs: dict[str, float] = {}
    for kind in result.scenario.nodes:
        category = "spot" if kind.spot else "on demand"
        hours = kind.count * result.scenario.hours - result.away_hours.get(kind.name, 0.0)
        price = hours * kind.price_per_hour
        costs[category] = costs.get(category, 0.0) + price
    return {category: price for category, price in costs.items() if price}
