"""What do spot nodes save, and what do interruptions cost? One simulated day, the same work each.

    python -m benchmarks.spot                    a table
    python -m benchmarks.spot --json             the same as JSON
    python -m benchmarks.spot --nodes CSV.gz     node models as in a recorded cluster (columns node,
                                                 model, gpus, cpus; only 8-GPU nodes count)

Sixteen nodes of eight GPUs: all on demand, or four on demand and twelve spot. A spot node is
interrupted every twenty hours on average, two minutes after it says so, and comes back within
twenty minutes on average. The rows differ in what the Jobs declare.
"""

import argparse
import csv
import gzip
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kai_py.config import Configuration
from kai_py.simulate.scenarios.goodput import policy_figures
from kai_py.simulate.scenarios.measurements import SimulationResult
from kai_py.simulate.scenarios.report import summarise
from kai_py.simulate.scenarios.scenario import Scenario
from kai_py.simulate.scenarios.simulation import simulate

HOURS, NODES, ON_DEMAND = 24.0, 16, 4
PRICES = {False: 88.0, True: 35.0}
"""Of one node and hour, by whether it is a spot node."""
INTERRUPTIONS = {"interruptionsPerHour": 0.05, "noticeSeconds": 120, "awayMinutes": 20}
QUEUES = [{"name": name, "deservedGPUs": 32} for name in ("a", "b", "c", "d")]
JOBS = (
    {"name": "single", "pods": 1, "gpusPerPod": 1, "minutes": 40, "every": 20},
    {"name": "node", "pods": 1, "gpusPerPod": 8, "minutes": 90, "every": 60},
    {"name": "train", "pods": 4, "gpusPerPod": 8, "minutes": 180, "every": 480},
    {
        "name": "elastic",
        "pods": 8,
        "gpusPerPod": 2,
        "minutes": 120,
        "every": 300,
        "minAvailable": 2,
    },
)
DECLARED: Mapping[str, Mapping[str, Any]] = {
    "on demand": {},
    "spot, nothing done before": {"onNodeDeparture": "go-down"},
    "spot, moved whole": {"onNodeDeparture": "move"},
    "spot, shrink or move": {"onNodeDeparture": "shrink"},
    "spot, checkpoint": {"onNodeDeparture": "checkpoint"},
}


@dataclass(frozen=True)
class DayFigures:
    """``price`` of the day's nodes; ``restarts``: moments at which gangs lost pods."""

    useful_gpu_hours: float
    lost_gpu_hours: float
    price: float
    price_per_useful_gpu_hour: float
    restarts: int
    mean_completion_hours: float


def scenario(declared: Mapping[str, Any], models: Mapping[str, int], *, spot: bool) -> Scenario:
    """The day of one row."""
    jobs = [
        {**job, **declared, "name": f"{queue['name']}-{job['name']}", "queue": queue["name"]}
        | {"random": True, "checkpointMinutes": 60}
        for queue in QUEUES
        for job in JOBS
    ]
    return Scenario.model_validate(
        {
            "hours": HOURS,
            "seed": 1,
            "startUpSeconds": 120,
            "nodes": [*_groups(models, spot=spot)],
            "queues": QUEUES,
            "jobs": jobs,
        },
        by_alias=True,
        by_name=False,
    )


def _groups(models: Mapping[str, int], *, spot: bool) -> list[dict[str, Any]]:
    """The nodes by model; the first of them are on demand."""
    groups, on_demand = [], ON_DEMAND if spot else NODES
    for model, count in models.items():
        fixed = min(count, on_demand)
        on_demand -= fixed
        for part, is_spot in ((fixed, False), (count - fixed, True)):
            if part:
                name = f"{model}-{'spot' if is_spot else 'fixed'}"
                group = {"name": name, "count": part, "gpus": 8, "spot": is_spot}
                more = INTERRUPTIONS if is_spot else {}
                groups.append({**group, **more, "pricePerHour": PRICES[is_spot]})
    return groups


def read_models(path: Path) -> dict[str, int]:
    """``NODES`` nodes of the models in a recorded cluster, in proportion."""
    with gzip.open(path, "rt", encoding="utf-8") as text:
        counts = Counter(row["model"] for row in csv.DictReader(text) if row["gpus"] == "8")
    total = counts.total()
    shares = {model: count * NODES / total for model, count in sorted(counts.items())}
    chosen = {model: int(share) for model, share in shares.items()}
    by_rest = sorted(shares, key=lambda model: (chosen[model] - shares[model], model))
    for model in by_rest[: NODES - sum(chosen.values())]:
        chosen[model] += 1
    return {model.lower().replace("_", "-"): count for model, count in chosen.items() if count}


def figures(result: SimulationResult) -> DayFigures:
    """The figures of one day."""
    work = policy_figures("", result)
    price = sum(summarise(result).cost.values())
    lost = {(e.gang, e.ended_at) for e in result.attempts if e.evicted_by is not None}
    return DayFigures(
        useful_gpu_hours=round(work.useful_gpu_hours, 1),
        lost_gpu_hours=round(work.lost_gpu_hours, 1),
        price=round(price),
        price_per_useful_gpu_hour=round(price / work.useful_gpu_hours, 2),
        restarts=len(lost),
        mean_completion_hours=round(work.mean_completion_seconds / 3600, 2),
    )


def day(models: Mapping[str, int]) -> Iterator[tuple[str, DayFigures]]:
    """The rows with their names."""
    for name, declared in DECLARED.items():
        chosen = scenario(declared, models, spot=name != "on demand")
        yield name, figures(simulate(chosen, Configuration()))


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.spot")
    parser.add_argument("--nodes", type=Path, help="nodes of a recorded cluster, gzipped CSV")
    parser.add_argument("--json", action="store_true", help="JSON in place of a table")
    chosen = parser.parse_args()
    rows = day(read_models(chosen.nodes) if chosen.nodes else {"h100": NODES})
    if chosen.json:
        print(json.dumps({name: asdict(row) for name, row in rows}, indent=2))
        return
    heads = ("useful GPU-h", "lost GPU-h", "price", "per useful GPU-h", "restarts", "completion h")
    print("| nodes | " + " | ".join(heads) + " |")
    print("| --- |" + " --- |" * len(heads))
    for name, row in rows:
        cells = " | ".join(f"{each:g}" for each in asdict(row).values())
        print(f"| {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
