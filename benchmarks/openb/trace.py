"""The trace: nodes, lists of pods, and the order in which they arrive.

``orders_LIST.csv.gz`` holds the arrivals of the published runs and the ranking of nodes that breaks
their ties. For seeds it doesn't have, an order is drawn in the same way: the list shuffled, then
pods drawn with replacement, until the next one would ask for more than 130 % of the GPUs.
"""

import csv
import gzip
import sys
from collections import Counter
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path

import numpy as np

ASKED_AT_MOST = 1.3
TARGET_SHARE = 0.95


@dataclass(frozen=True)
class TraceNode:
    """A machine; ``rank`` is its place among equals, lowest first."""

    name: str
    cpu_milli: int
    mem_mib: int
    gpus: int
    model: str
    rank: int


@dataclass(frozen=True)
class TracePod:
    """A pod; ``gpu_milli`` of each of ``gpus``; ``models`` it accepts, all if empty."""

    name: str
    cpu_milli: int
    mem_mib: int
    gpus: int
    gpu_milli: int
    models: tuple[str, ...]

    @property
    def milli(self) -> int:
        return self.gpus * self.gpu_milli

    @property
    def shares(self) -> bool:
        return self.gpus > 0 and self.gpu_milli < 1000


@dataclass(frozen=True)
class Trace:
    """``listed``: the pods of the list; ``arrivals``: those that come, in order."""

    nodes: tuple[TraceNode, ...]
    listed: tuple[TracePod, ...]
    arrivals: tuple[TracePod, ...]

    @property
    def capacity(self) -> int:
        """Milli-GPUs of all nodes."""
        return 1000 * sum(node.gpus for node in self.nodes)


def read_trace(data: Path, name: str, seed: int) -> Trace:
    """The list ``name`` in the order of ``seed``."""
    machines = list(csv.DictReader((data / "nodes_gpu.csv").read_text().splitlines()))
    pods = (_pod(row) for row in _rows(data / f"pods_{name}.csv.gz"))
    listed = sorted(pods, key=lambda pod: pod.name)
    capacity = 1000 * sum(int(row["gpus"]) for row in machines)
    order = _published_order(data / f"orders_{name}.csv.gz", seed)
    order = order or _drawn_order(listed, len(machines), capacity, seed)
    nodes = tuple(_node(row, rank) for row, rank in zip(machines, order[1], strict=True))
    return Trace(nodes, tuple(listed), tuple(listed[position] for position in order[0]))


def whole_gpus(trace: Trace) -> Trace:
    """The trace without pods that share GPUs; the others come again until 130 % is asked for."""
    listed, arrivals = (
        tuple(pod for pod in pods if not pod.shares) for pods in (trace.listed, trace.arrivals)
    )
    again, asked = [], 0
    for pod in cycle(arrivals):
        asked += pod.milli
        if asked > ASKED_AT_MOST * trace.capacity:
            break
        again.append(pod)
    return replace(trace, listed=listed, arrivals=tuple(again))


def target_shapes(
    listed: tuple[TracePod, ...], *, memory: bool = False
) -> list[tuple[TracePod, int]]:
    """One pod of each of the most frequent shapes that make up 95 % of the list, and how many.

    ``memory``: whether pods that differ in it have different shapes; the paper leaves it out.
    """
    counts: Counter[tuple] = Counter()
    example: dict[tuple, TracePod] = {}
    for pod in listed:
        milli, mem = pod.gpu_milli if pod.gpus else 0, pod.mem_mib if memory else 0
        key = (pod.cpu_milli, mem, pod.gpus, milli, pod.models)
        counts[key] += 1
        example.setdefault(key, pod)
    taken, covered = [], 0
    for key, count in counts.most_common():
        taken.append((example[key], count))
        covered += count
        if covered >= TARGET_SHARE * len(listed):
            break
    return taken


def _rows(path: Path):
    csv.field_size_limit(sys.maxsize)
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from csv.DictReader(lines)


def _node(row, rank: int) -> TraceNode:
    sizes = (int(row[key]) for key in ("cpu_milli", "mem_mib", "gpus"))
    return TraceNode(row["node"], *sizes, row["model"], rank)


def _pod(row) -> TracePod:
    sizes = (int(row[key]) for key in ("cpu_milli", "mem_mib", "gpus", "gpu_milli"))
    models = tuple(model for model in row["gpu_spec"].split("|") if model)
    return TracePod(row["pod"], *sizes, models)


def _published_order(path: Path, seed: int) -> tuple[list[int], list[int]] | None:
    if not path.exists():
        return None
    for row in _rows(path):
        if int(row["seed"]) == seed:
            return [int(p) for p in row["pods"].split()], [int(r) for r in row["node_rank"].split()]
    return None


def _drawn_order(
    listed: list[TracePod], nodes: int, capacity: int, seed: int
) -> tuple[list[int], list[int]]:
    dice = np.random.default_rng(seed)
    asked, order, limit = 0, [], ASKED_AT_MOST * capacity
    shuffled = [int(position) for position in dice.permutation(len(listed))]
    while True:
        position = shuffled.pop(0) if shuffled else int(dice.integers(len(listed)))
        if asked + listed[position].gpu_milli > limit:
            break
        asked += listed[position].milli
        order.append(position)
    return order, [int(rank) for rank in dice.permutation(nodes)]
