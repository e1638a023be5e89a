"""The openb rows: every strategy on the default list, beside the published figure."""

import os
import statistics
import time
from functools import partial
from pathlib import Path

from benchmarks.machine import ROOT
from benchmarks.openb.curve import allocation_curve
from benchmarks.openb.replay import replay
from benchmarks.openb.simulation import simulation_benchmark
from benchmarks.openb.trace import read_trace
from benchmarks.row import Benchmark, Measured
from kai_py.policy.score.strategies import PlacementStrategy

DATA = Path(os.environ.get("KAI_PY_DATA") or ROOT.parent / "shared" / "data") / "openb"
LIST, SEEDS, ASKED = "default", (42, 43, 44), 130
PUBLISHED = {
    PlacementStrategy.RANDOM: "87.47 %",
    PlacementStrategy.DOT_PRODUCT: "90.85 %",
    PlacementStrategy.CLUSTERING: "91.88 %",
    PlacementStrategy.PACKING: "92.00 %",
    PlacementStrategy.BEST_FIT: "93.08 %",
    PlacementStrategy.FGD: "95.39 %",
}
"""Means of all published seeds."""


def openb_benchmarks() -> list[Benchmark]:
    """A row for each strategy, and one for the whole simulated cluster."""
    strategies = [
        Benchmark(
            part="openb",
            name=strategy.value,
            title=f"openb trace, 1,213 nodes, 10,800 pods, {ASKED} % asked: {strategy.value}",
            run=partial(measure, strategy),
            peer=PUBLISHED.get(strategy, ""),
            aim="5 s" if strategy is PlacementStrategy.FGD else "",
        )
        for strategy in PlacementStrategy
    ]
    return [*strategies, simulation_benchmark(DATA)]


def measure(strategy: PlacementStrategy) -> Measured:
    """Replay every seed; the time is that of one replay."""
    if not DATA.is_dir():
        return Measured(seconds=None, outcome=f"no trace in {DATA.name}: set KAI_PY_DATA")
    times, given = [], []
    for seed in SEEDS:
        trace = read_trace(DATA, LIST, seed)
        began = time.perf_counter()
        placed = replay(trace, strategy)
        times.append(time.perf_counter() - began)
        given.append(allocation_curve(placed, trace.capacity)[ASKED])
    outcome = f"{statistics.fmean(given):.2f} % of GPUs given away (seeds 42 to 44)"
    return Measured(seconds=statistics.median(times), outcome=outcome)
