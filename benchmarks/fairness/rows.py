"""The fairness row; no other scheduler publishes one."""

import time

from benchmarks.fairness.week import CONFIGURATION, fairness, week
from benchmarks.row import Benchmark, Measured
from kai_py.simulate.scenarios.simulation import simulate

QUEUES = 20


def fairness_benchmarks() -> list[Benchmark]:
    """The row."""
    title = f"a simulated week of {QUEUES} queues with bursts, {QUEUES} nodes of 8 GPUs, defaults"
    return [Benchmark(part="fairness", name="week", title=title, run=measure)]


def measure() -> Measured:
    """Play the week; the time is that of the simulation."""
    scenario = week(QUEUES)
    began = time.perf_counter()
    result = simulate(scenario, CONFIGURATION)
    seconds = time.perf_counter() - began
    found = fairness(scenario, result)
    outcome = (
        f"Jain {found.jain:.3f}; worst received/entitled {found.worst_part:.3f}; finish-time "
        f"fairness: worst gang {found.slowest_gang:.2f}, worst queue {found.slowest_queue:.2f} "
        f"({found.gangs} gangs, {found.used:.0%} of GPU-hours used)"
    )
    return Measured(seconds=seconds, outcome=outcome)
