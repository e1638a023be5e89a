"""Hours of a cluster in seconds: a scenario played on a simulated cluster, and what it measured.

The scheduler runs one cycle whenever something relevant happened, at most once per
``cycle_seconds`` of simulated time. Between two cycles nothing changes, so amounts over time are
exact sums, not samples.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from kai_py.config import Configuration
from kai_py.embedded.clock import SIMULATION_START
from kai_py.embedded.kubelet import Pace
from kai_py.plan.plan import Action, Plan
from kai_py.simulate.cluster import SimulatedCluster
from kai_py.simulate.scenario import Arrival, Scenario, arrivals, queue_manifest
from kai_py.simulate.workloads import (
    GPU_RESOURCE,
    NAMESPACE,
    job_manifest,
    node_manifests,
    priority_class,
)
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.snapshot import Snapshot

HOUR = 3600.0
PACE = Pace(start=1.0, stop=1.0)


@dataclass(frozen=True, slots=True)
class Moment:
    """The cluster from ``seconds`` on, until the next moment; GPUs."""

    seconds: float
    used: float
    waiting: float
    """Asked for by gangs that wait."""
    broken: float = 0.0
    """Free on nodes of which a part is taken."""
    largest: float = 0.0
    """Free on the node that has most free: what a pod can get at most."""


@dataclass(frozen=True, slots=True)
class Wait:
    """How long a gang waited for its start; ``seconds`` is None if it did not start.

    ``finish``: seconds from its coming to the end of its last pod, restarts included; None where it
    was not all placed, or lost pods and did not get them back.
    """

    gang: str
    queue: str
    gpus: float
    pods: int
    seconds: float | None
    finish: float | None = None


@dataclass
class QueueCourse:
    """GPU-hours of a queue: received, and entitled by its fair share; what evictions cost."""

    received: float = 0.0
    entitled: float = 0.0
    evicted_pods: int = 0
    lost: float = 0.0
    """GPU-hours of work that evicted pods had done and begin again."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a simulation measured."""

    scenario: Scenario
    gpus: float
    moments: tuple[Moment, ...]
    waits: tuple[Wait, ...]
    queues: dict[str, QueueCourse]
    evictions: dict[Action, int]
    cycles: int


@dataclass
class _Record:
    waits: dict[str, Wait] = field(default_factory=dict)
    came: dict[str, float] = field(default_factory=dict)
    runs: dict[str, float] = field(default_factory=dict)
    """Seconds that every pod of a gang runs."""
    began: dict[str, float] = field(default_factory=dict)
    """When pods (by uid) were placed."""
    moments: list[Moment] = field(default_factory=list)
    queues: dict[str, QueueCourse] = field(default_factory=dict)
    evictions: dict[Action, int] = field(default_factory=dict)
    shares: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Per queue what it holds and is entitled to since the last moment."""


def simulate(
    scenario: Scenario,
    configuration: Configuration,
    *,
    cycle_seconds: float = 1.0,
    on_progress: Callable[[float], None] = lambda _hours: None,
) -> Result:
    """Play ``scenario``; ``on_progress`` is told the simulated hours now and then."""
    cluster = SimulatedCluster(configuration, start=SIMULATION_START, pace=PACE)
    record = _Record(queues={queue.name: QueueCourse() for queue in scenario.queues})
    _set_up(cluster, scenario, record)
    clock, end, cycles = cluster.clock, SIMULATION_START + scenario.hours * HOUR, 0
    resync, asked_again = configuration.resync_period, 0.0
    while clock.now() < end:
        clock.run_due()
        if cluster.take_changed():
            _note(cluster, record, cluster.cycle())
            cycles += 1
            on_progress((clock.now() - SIMULATION_START) / HOUR)
            if record.moments[-1].waiting and clock.now() >= asked_again:
                asked_again = clock.now() + resync
                clock.call_later(resync, cluster.wake)
        due = clock.next_due()
        wait = cycle_seconds if cluster.changed else _until(due, clock.now(), cycle_seconds)
        clock.advance(min(wait, end - clock.now()))
    _pass_time(record, end - SIMULATION_START)
    gpus = float(sum(kind.count * kind.gpus for kind in scenario.nodes))
    return Result(
        scenario=scenario,
        gpus=gpus,
        moments=tuple(record.moments),
        waits=tuple(record.waits.values()),
        queues=record.queues,
        evictions=record.evictions,
        cycles=cycles,
    )


def _until(due: float | None, now: float, least: float) -> float:
    """Seconds to the next event, but not less than ``least``."""
    return math.inf if due is None else max(due - now, least)


def _set_up(cluster: SimulatedCluster, scenario: Scenario, record: _Record) -> None:
    embedded = cluster.embedded
    for kind in scenario.nodes:
        embedded.create_all(node_manifests(kind))
    embedded.create_all(queue_manifest(queue) for queue in scenario.queues)
    for priority in sorted({job.priority for job in scenario.jobs}):
        embedded.create(priority_class(priority))
    for arrival in arrivals(scenario):
        cluster.clock.call_later(arrival.seconds, partial(_arrive, cluster, arrival, record))


def _arrive(cluster: SimulatedCluster, arrival: Arrival, record: _Record) -> None:
    gang, job = f"{NAMESPACE}/Job/{arrival.name}", arrival.job
    record.came[gang], record.runs[gang] = cluster.clock.now(), job.minutes * 60
    record.waits[gang] = Wait(gang, job.queue, job.pods * job.gpus_per_pod, job.pods, None)
    cluster.embedded.create(job_manifest(arrival))


def _note(cluster: SimulatedCluster, record: _Record, plan: Plan) -> None:
    now = cluster.clock.now()
    _pass_time(record, now - SIMULATION_START)
    snapshot = cluster.planner.freeze(now)
    gangs = snapshot.gangs
    for placement in plan.placements:
        for pod in placement.pods:
            record.began[pod.pod.uid] = now
        wait = record.waits.get(placement.gang)
        if wait is not None:
            passed = now - record.came[placement.gang]
            seconds = passed if wait.seconds is None else wait.seconds
            finish = passed + record.runs[placement.gang]
            record.waits[placement.gang] = replace(wait, seconds=seconds, finish=finish)
    for eviction in plan.evictions:
        wait, queue = record.waits[eviction.gang], record.queues[eviction.queue]
        record.waits[eviction.gang] = replace(wait, finish=None)
        ran = now - record.began.pop(eviction.pod.uid, now)
        queue.evicted_pods += 1
        queue.lost += ran / HOUR * wait.gpus / wait.pods
        record.evictions[eviction.action] = record.evictions.get(eviction.action, 0) + 1
    record.shares = {
        share.queue: (share.allocated.get(GPU, 0.0), share.fair_share.get(GPU, 0.0))
        for share in plan.queues
    }
    waiting = sum(
        member.charge.get(GPU, 0.0)
        for unplaced in plan.unplaced
        if unplaced.gang in gangs
        for member in gangs[unplaced.gang].pending
    )
    used = sum(share.allocated.get(GPU, 0.0) for share in plan.queues if not share.parent)
    broken, largest = _free_gpus(snapshot)
    record.moments.append(Moment(now - SIMULATION_START, used, waiting, broken, largest))


def _free_gpus(snapshot: Snapshot) -> tuple[float, float]:
    """GPUs free on nodes in part use, and on the node with most of them."""
    row = snapshot.resources.positions.get(GPU_RESOURCE)
    if row is None:
        return 0.0, 0.0
    used, every = snapshot.used[row], snapshot.nodes.allocatable[row]
    free = np.maximum(every - used, 0.0)
    return float(free[used > 0].sum()), float(free.max(initial=0.0))


def _pass_time(record: _Record, seconds: float) -> None:
    """Add what queues held and were entitled to since the last moment, up to ``seconds``."""
    since = record.moments[-1].seconds if record.moments else 0.0
    for name, (held, entitled) in record.shares.items():
        queue = record.queues[name]
        queue.received += held * (seconds - since) / HOUR
        queue.entitled += entitled * (seconds - since) / HOUR
