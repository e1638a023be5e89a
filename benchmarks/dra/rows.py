"""The rows of the dra part: questions that are slow elsewhere, and claims of big clusters.

Peer figures are those of the reference allocator of Kubernetes 1.37, per node, on one core of a
machine with two. The cluster's slices are parsed and lined up before the clock starts, which
happens once per slice and not per question; "cold" means that no selector was evaluated and no
claim was asked before.
"""

from functools import partial
from itertools import groupby
from random import Random

import numpy as np

from benchmarks.core.cluster import Cluster, counts
from benchmarks.core.objects import queue
from benchmarks.dra.gang import claiming_gang
from benchmarks.dra.masks import measure_masks
from benchmarks.dra.objects import (
    ATTRIBUTES,
    DRIVER,
    PRODUCTS,
    claim,
    gpu_class,
    gpu_slice,
    mig_slices,
    nodes,
    share,
    shared_slice,
)
from benchmarks.dra.reclaiming import measure_reclaiming
from benchmarks.dra.waiting import measure_waiting
from benchmarks.row import Benchmark, Measured
from benchmarks.timing import median_seconds, peak_resident_mb
from kai_py.api.records.node import Node
from kai_py.api.records.resource import ResourceClaim
from kai_py.dra.allocator import Allocation, allocate
from kai_py.dra.cluster_allocator import ClusterAllocator
from kai_py.dra.device_state import DeviceState
from kai_py.dra.inventory import Inventory

NODES, GPUS = 10_000, 8
GANG = 512
WAITING_NODES, WAITING, RECLAIMING = 500, 1_000, 256
MIG_NODES, MIG_PODS, MIG_GANG = 1_000, 20_000, 8
SHARE_NODES, SHARES = 125, 10_000
MIG_MIX = {"1g.10gb": 5, "2g.20gb": 3, "3g.40gb": 2, "1g.20gb": 1, "4g.40gb": 1}
THREE_SELECTORS = (
    f'{ATTRIBUTES}.productName.startsWith("NVIDIA H")',
    f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0',
    f'has({ATTRIBUTES}.uuid) && {ATTRIBUTES}.type in ["gpu", "mig"]',
)


def dra_benchmarks() -> list[Benchmark]:
    """The rows."""
    row = partial(Benchmark, part="dra")
    size = f"{NODES:,} nodes × {GPUS} GPUs"
    return [
        row(
            name="one-too-many",
            title="One claim for 21 of 20 equal GPUs of a node",
            run=partial(_refuse, 20, [21]),
            peer="3,800 ms",
            aim="1 ms",
        ),
        row(
            name="many-requests",
            title="10 claims for one GPU each, 9 GPUs",
            run=partial(_refuse, 9, [1] * 10),
            peer="over 10 s",
            aim="1 ms",
        ),
        row(
            name="filter-cold",
            title=f"Which of {size} fit a claim with 3 selectors, cold",
            run=partial(_filter, warm=False),
            aim="200 ms",
        ),
        row(name="filter-warm", title="— warm", run=partial(_filter, warm=True), aim="5 ms"),
        row(
            name="gang",
            title=f"{GANG} pods with template claims for 8 GPUs each on {size}: a whole cycle",
            run=_gang,
            aim="150 ms",
        ),
        row(
            name="waiting",
            title=f"{WAITING:,} pods with claims wait: {WAITING_NODES:,} full nodes × {GPUS} GPUs",
            run=partial(measure_waiting, WAITING_NODES, GPUS, WAITING),
        ),
        row(
            name="reclaim",
            title=f"Reclaim for {RECLAIMING} claims, {WAITING_NODES} full nodes × {GPUS} GPUs",
            run=partial(measure_reclaiming, WAITING_NODES, GPUS, RECLAIMING),
        ),
        row(
            name="mig",
            title=f"{MIG_NODES:,} nodes × {GPUS} GPUs × 19 partitions: fill in {MIG_PODS:,} claims",
            run=_mig,
            aim="3 s",
        ),
        row(
            name="shares",
            title=f"{SHARES:,} shares of two sizes on {SHARE_NODES * GPUS:,} GPUs",
            run=_shares,
            aim="4 s",
        ),
        row(
            name="masks",
            title=f"10 selectors × {NODES * GPUS:,} devices through masks",
            run=partial(measure_masks, NODES * GPUS),
            aim="100 × faster than cel-python",
        ),
    ]


def _refuse(gpus: int, counts_wanted: list[int]) -> Measured:
    [node] = nodes(1)
    inventory = Inventory.of([gpu_slice(node.metadata.name, gpus)])
    state = DeviceState(inventory.device)
    claims = [claim(f"c{i}", count) for i, count in enumerate(counts_wanted)]
    classes = {DRIVER: gpu_class()}
    seconds, answer = median_seconds(lambda: allocate(claims, node, inventory, state, classes))
    return Measured(seconds=seconds, outcome=type(answer).__name__)


def _filter(*, warm: bool) -> Measured:
    machines = nodes(NODES)
    slices = [
        gpu_slice(node.metadata.name, GPUS, PRODUCTS[i % len(PRODUCTS)])
        for i, node in enumerate(machines)
    ]
    inventory = Inventory.of(slices)
    state = DeviceState(inventory.device)
    fleets: list[ClusterAllocator] = []

    def prepare() -> None:
        fleet = ClusterAllocator(inventory, {DRIVER: gpu_class()})
        fleet.query([claim("other", 1)], machines, state)
        fleets[:] = [fleet]

    wanted = [claim("c", 2, *THREE_SELECTORS)]

    def ask() -> int:
        found = fleets[0].count_fits(wanted, machines, state, limit=1)
        return int(np.count_nonzero(found))

    prepare()
    if warm:
        ask()
    seconds, fitting = median_seconds(ask, prepare=(lambda: None) if warm else prepare)
    return Measured(seconds=seconds, outcome=f"{fitting:,} nodes fit", peak_mb=peak_resident_mb())


def _gang() -> Measured:
    machines = nodes(NODES)
    cluster = Cluster(
        machines,
        [gpu_class(), *(gpu_slice(node.metadata.name, GPUS) for node in machines)],
        [queue("team")],
    )
    cluster.decide(cluster.snapshot())
    cluster.tell(claiming_gang(1, 1, "first", "team"))
    cluster.decide(cluster.snapshot())
    cluster.tell(claiming_gang(GANG, GPUS, "gang", "team"))
    snapshot = cluster.snapshot()
    seconds, plan = median_seconds(lambda: cluster.decide(snapshot))
    return Measured(seconds=seconds, outcome=counts(plan), peak_mb=peak_resident_mb())


def _mig() -> Measured:
    machines = nodes(MIG_NODES)
    slices = [piece for node in machines for piece in mig_slices(node.metadata.name, GPUS)]
    fleet = ClusterAllocator(Inventory.of(slices), {DRIVER: gpu_class("mig")})
    claims = {p: [claim(p, 1, f'{ATTRIBUTES}.profile == "{p}"')] for p in MIG_MIX}
    empty = DeviceState(fleet.inventory.device)
    for wanted in claims.values():
        fleet.query(wanted, machines, empty)
    order = Random(1).choices(list(MIG_MIX), list(MIG_MIX.values()), k=MIG_PODS)
    gangs = [sorted(order[i : i + MIG_GANG]) for i in range(0, MIG_PODS, MIG_GANG)]
    seconds, placed = median_seconds(lambda: _fill(fleet, machines, claims, gangs), most=1)
    outcome = f"{placed:,} placed"
    return Measured(seconds=seconds, outcome=outcome, peak_mb=peak_resident_mb())


def _shares() -> Measured:
    machines = nodes(SHARE_NODES)
    slices = [shared_slice(node.metadata.name, GPUS) for node in machines]
    fleet = ClusterAllocator(Inventory.of(slices), {DRIVER: gpu_class()})
    claims = {memory: [share(memory, memory)] for memory in ("5Gi", "10Gi")}
    gangs = [["10Gi"] * 4 + ["5Gi"] * 4] * (SHARES // 8)
    seconds, placed = median_seconds(lambda: _fill(fleet, machines, claims, gangs), most=1)
    outcome = f"{placed:,} placed"
    return Measured(seconds=seconds, outcome=outcome, peak_mb=peak_resident_mb())


def _fill(
    fleet: ClusterAllocator,
    machines: tuple[Node, ...],
    claims: dict[str, list[ResourceClaim]],
    gangs: list[list[str]],
) -> int:
    """Place gang after gang on the first nodes with capacity; the number of pods placed."""
    state = DeviceState(fleet.inventory.device)
    placed = 0
    for gang in gangs:
        for profile, pods in groupby(gang):
            wanted = len(list(pods))
            fits = fleet.count_fits(claims[profile], machines, state, limit=wanted)
            for row in np.repeat(np.flatnonzero(fits), fits[fits > 0])[:wanted].tolist():
                answer = fleet.allocate(claims[profile], machines, row, state)
                if isinstance(answer, Allocation):
                    state.mark_allocated(answer.allocations[0])
                    placed += 1
    return placed
