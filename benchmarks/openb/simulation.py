"""The rows that play the openb list on the whole simulated cluster: API, controllers, scheduler.

The other rows drive the placement core alone; these have Jobs, pods, queues and cycles, as
`kai-py simulate --saturate` has them.
"""

import gzip
import time
from pathlib import Path

from benchmarks.row import Benchmark, Measured
from kai_py.api.settings import EvictionConfig
from kai_py.config import Configuration
from kai_py.simulate.scenarios.simulation import simulate
from kai_py.simulate.scenarios.traces import (
    SATURATION_HOURS,
    parse_jobs,
    parse_nodes,
    saturating_jobs,
    scenario_of,
)

SEED, CYCLE_SECONDS = 42, 30.0
NO_EVICTIONS = EvictionConfig(preempt=False, reclaim=False, consolidate=False)
MOVES_ONLY = EvictionConfig(preempt=False, reclaim=False)


def simulation_benchmarks(data: Path) -> list[Benchmark]:
    """The rows, without and with moves; ``data`` is the directory of the lists."""
    return [
        Benchmark(
            part="openb",
            name="simulate",
            title="simulating the openb default list to saturation, 1,213 nodes, every pod a Job",
            run=lambda: measure(data, NO_EVICTIONS),
            aim="60 s",
        ),
        Benchmark(
            part="openb",
            name="simulate-moves",
            title="— the same, and running pods are moved together",
            run=lambda: measure(data, MOVES_ONLY),
            aim="60 s",
        ),
    ]


def measure(data: Path, eviction: EvictionConfig) -> Measured:
    """Read the lists and play them."""
    if not data.is_dir():
        return Measured(seconds=None, outcome=f"no trace in {data.name}: set KAI_PY_DATA")
    began, worked = time.perf_counter(), time.process_time()
    nodes = parse_nodes((data / "nodes_gpu.csv").read_text(), name="nodes")
    jobs = gzip.decompress((data / "pods_default.csv.gz").read_bytes()).decode()
    drawn = saturating_jobs(parse_jobs(jobs, name="jobs"), nodes, seed=SEED)
    scenario = scenario_of(drawn, nodes, hours=SATURATION_HOURS)
    result = simulate(scenario, Configuration(eviction=eviction), cycle_seconds=CYCLE_SECONDS)
    seconds, worked = time.perf_counter() - began, time.process_time() - worked
    given = 100 * result.moments[-1].used / result.gpus
    outcome = (
        f"{given:.2f} % of GPUs given away; {len(drawn.jobs):,} Jobs, {result.cycles} cycles; "
        f"{worked:.0f} s of processor"
    )
    return Measured(seconds=seconds, outcome=outcome)
