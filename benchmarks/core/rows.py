"""The rows of the core part: every scenario at its plain and at double size, and idle cycles."""

from functools import partial

from benchmarks.core import beyond, explaining, real, steady
from benchmarks.core.cluster import counts
from benchmarks.core.grouping import grouping_benchmarks
from benchmarks.core.scenarios import SCENARIOS, Scenario
from benchmarks.row import Benchmark, Measured
from benchmarks.timing import median_seconds, peak_resident_mb

FACTORS = (1, 2)


def core_benchmarks() -> list[Benchmark]:
    """All of them, in the order of the table."""
    rows = [_benchmark(each, factor) for each in SCENARIOS for factor in FACTORS]
    return [
        *rows,
        *real.benchmarks(),
        *steady.benchmarks(),
        *beyond.benchmarks(),
        *explaining.benchmarks(),
        *grouping_benchmarks(),
    ]


def measure(scenario: Scenario, factor: int) -> Measured:
    """Time the cycle alone, with nothing remembered of cycles before."""
    cluster = scenario.build(factor)
    snapshot = cluster.snapshot()
    seconds, plan = median_seconds(lambda: cluster.decide(snapshot), prepare=cluster.forget)
    found, expected = counts(plan), scenario.outcome(factor)
    outcome = found if found == expected else f"WRONG: {found}; expected {expected}"
    return Measured(seconds=seconds, outcome=outcome, peak_mb=peak_resident_mb())


def _benchmark(scenario: Scenario, factor: int) -> Benchmark:
    plain = factor == 1
    return Benchmark(
        part="core",
        name=scenario.name if plain else f"{scenario.name}-x{factor}",
        title=scenario.title if plain else f"— {factor}× nodes and pods",
        run=partial(measure, scenario, factor),
        peer=scenario.peer if plain else "",
        aim=f"{scenario.aim_ms:g} ms" if plain and scenario.aim_ms is not None else "",
    )
