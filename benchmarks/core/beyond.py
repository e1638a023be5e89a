"""Clusters beyond what a control plane is built for: 50,000 nodes, 500,000 pods, 2,000 queues.

Kubernetes promises 5,000 nodes and 150,000 pods. Every row has its double or its half, so that
growth shows: nothing but what a cycle has to look at may cost more on a larger cluster.
"""

from collections.abc import Callable
from functools import partial

from benchmarks.core.cluster import Cluster, counts
from benchmarks.core.objects import NODE_GPUS, Work, departments, grouped_queues, nodes, queue
from benchmarks.core.problems import objects_of, singles
from benchmarks.core.steady import foreign_pods, full_works, measure_events, measure_idle
from benchmarks.row import Benchmark, Measured
from benchmarks.timing import median_seconds, peak_resident_mb
from kai_py.watch.kinds import WatchedQueue

NODES = 50_000
IDLE_NODES = 1_000
GANG_PODS = 512
QUEUES = 2_000
LEVELS = 10
JOBS_PER_QUEUE = 2
DEPARTMENT = 50
"""Queues under one parent, where trees have two levels."""


def benchmarks() -> list[Benchmark]:
    """The rows."""
    size = f"{NODES:,} nodes, {10 * NODES:,} pods"
    return [
        *_with_half("beyond-gang", f"gang of {GANG_PODS} × 8: {size}", measure_gang, "50 ms"),
        *_with_half("beyond-idle", f"nothing changed: {size}", measure_idle, "2 ms; 2,500 MB"),
        *_with_half("beyond-events", f"after 100 pod events: {size}", measure_events, "25 ms"),
        *_with_double("beyond-queues", "2 levels", wide_tree),
        *_with_double("beyond-deep", f"{LEVELS} levels", deep_tree),
    ]


def measure_gang(node_count: int) -> Measured:
    """Time the cycle that places a gang of whole nodes where all others are taken."""
    gang = Work(name="gang", queue="queue-0", pods=GANG_PODS, gpus=NODE_GPUS)
    cluster = Cluster(
        departments(NODE_GPUS * node_count),
        nodes(node_count),
        objects_of(full_works(node_count - IDLE_NODES)),
        foreign_pods(node_count),
        gang.objects(),
    )
    snapshot = cluster.snapshot()
    seconds, plan = median_seconds(lambda: cluster.decide(snapshot), prepare=cluster.forget)
    found, expected = counts(plan), f"{GANG_PODS} bound"
    outcome = found if found == expected else f"WRONG: {found}; expected {expected}"
    return Measured(seconds=seconds, outcome=outcome, peak_mb=peak_resident_mb())


def measure_queues(queue_count: int, tree: Callable[[int, float], list[WatchedQueue]]) -> Measured:
    """Time a cycle in which every queue has jobs of one GPU, and all of them fit."""
    jobs = JOBS_PER_QUEUE * queue_count
    node_count = jobs // NODE_GPUS
    cluster = Cluster(
        tree(queue_count, float(jobs)),
        nodes(node_count),
        objects_of(singles(jobs, queues=queue_count)),
    )
    snapshot = cluster.snapshot()
    seconds, plan = median_seconds(lambda: cluster.decide(snapshot), prepare=cluster.forget)
    found, expected = counts(plan), f"{jobs} bound"
    outcome = found if found == expected else f"WRONG: {found}; expected {expected}"
    return Measured(seconds=seconds, outcome=outcome, peak_mb=peak_resident_mb())


def wide_tree(queue_count: int, gpus: float) -> list[WatchedQueue]:
    """Queues in departments."""
    return grouped_queues(queues=queue_count, departments=queue_count // DEPARTMENT, gpus=gpus)


def deep_tree(queue_count: int, gpus: float) -> list[WatchedQueue]:
    """Queues at the end of ``LEVELS`` levels, each wider than the one above by one factor."""
    widths = [round(queue_count ** (level / (LEVELS - 1))) for level in range(LEVELS)]
    queues: list[WatchedQueue] = []
    for level, width in enumerate(widths):
        for i in range(width):
            parent = _deep_name(level - 1, i * widths[level - 1] // width) if level else ""
            queues.append(queue(_deep_name(level, i), gpus / width, parent=parent))
    return queues


def _deep_name(level: int, i: int) -> str:
    return f"queue-{i}" if level == LEVELS - 1 else f"level-{level}-{i}"


def _with_half(
    name: str, title: str, measure: Callable[[int], Measured], aim: str
) -> list[Benchmark]:
    whole, half = partial(measure, NODES), partial(measure, NODES // 2)
    return [
        Benchmark(part="core", name=name, title=title, run=whole, aim=aim),
        Benchmark(part="core", name=f"{name}-half", title="— half of nodes and pods", run=half),
    ]


def _with_double(
    name: str, levels: str, tree: Callable[[int, float], list[WatchedQueue]]
) -> list[Benchmark]:
    title = f"{QUEUES:,} queues in trees of {levels}, {JOBS_PER_QUEUE} one-GPU jobs in each"
    once, twice = (partial(measure_queues, factor * QUEUES, tree) for factor in (1, 2))
    return [
        Benchmark(part="core", name=name, title=title, run=once, aim="linear growth"),
        Benchmark(part="core", name=f"{name}-x2", title="— 2× queues, jobs and nodes", run=twice),
    ]
