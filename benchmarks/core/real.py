"""The scenarios once more on a cluster as real ones are, beside the plain cluster in one process.

Cycles on the plain cluster and on the one with its ``population`` alternate, so that the ratio
holds on a busy machine. The plan must be the same.
"""

import statistics
import time
from functools import partial

from benchmarks.core.cluster import Cluster, counts
from benchmarks.core.population import population
from benchmarks.core.scenarios import SCENARIOS, Scenario
from benchmarks.row import Benchmark, Measured
from benchmarks.timing import peak_resident_mb
from kai_py.watch.mirror import freeze_memory

MAX_RATIO = 1.3
RUNS, SECONDS = 5, 10.0
"""Pairs of cycles at most, and the time after which no further pair is begun."""


def benchmarks() -> list[Benchmark]:
    """A row for every scenario, plain and at double size."""
    return [_benchmark(scenario, factor) for scenario in SCENARIOS for factor in (1, 2)]


def measure(scenario: Scenario, factor: int) -> Measured:
    """The cycle on the populated cluster; ``peer``: its time as a multiple of the plain one's."""
    plain, real = scenario.build(factor), scenario.build(factor)
    real.tell(population(real.snapshot().nodes.names))
    freeze_memory()
    times: list[tuple[float, float]] = []
    began = time.perf_counter()
    while len(times) < RUNS and time.perf_counter() - began < SECONDS:
        (of_plain, expected), (of_real, found) = _cycle(plain), _cycle(real)
        times.append((of_plain, of_real))
    ratio = min(after for _, after in times) / min(before for before, _ in times)
    return Measured(
        seconds=statistics.median(after for _, after in times),
        outcome=found if found == expected else f"WRONG: {found}; expected {expected}",
        peak_mb=peak_resident_mb(),
        peer=f"{ratio:.2f} times the plain cluster",
    )


def _cycle(cluster: Cluster) -> tuple[float, str]:
    """Processor seconds of one cycle with nothing remembered, and what it decides."""
    snapshot = cluster.snapshot()
    cluster.forget()
    start = time.process_time()
    plan = cluster.decide(snapshot)
    return time.process_time() - start, counts(plan)


def _benchmark(scenario: Scenario, factor: int) -> Benchmark:
    size = "" if factor == 1 else f"-x{factor}"
    return Benchmark(
        part="core",
        name=f"real-{scenario.name}{size}",
        title=f"{scenario.title}, with what else runs on a real cluster"
        if factor == 1
        else f"— {factor}× nodes and pods",
        run=partial(measure, scenario, factor),
        aim=f"at most {MAX_RATIO} times the plain row",
    )
