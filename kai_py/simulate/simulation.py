"""Simulation of a scenario: hours of a cluster in seconds, with measurements.

The scheduler runs one cycle whenever something relevant happened, at most once per
``cycle_seconds`` of simulated time. Between two cycles nothing changes, so amounts over time are
exact sums, not samples.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from kai_py.config import Configuration
from kai_py.embedded.clock import SIMULATION_START
from kai_py.embedded.kubelet import PodTiming
from kai_py.plan.plan import Action, Eviction, GangPlacement, Plan
from kai_py.simulate.cluster import SimulatedCluster
from kai_py.simulate.entitlement import (
    EntitlementSample,
    EntitlementSamples,
    entitled_gpus,
    gang_rest,
    queue_table,
)
from kai_py.simulate.interruptions import Interruptions
from kai_py.simulate.scenario import Arrival, Scenario, ScenarioJob, arrivals, queue_manifest
from kai_py.simulate.workloads import (
    GPU_RESOURCE,
    NAMESPACE,
    job_manifest,
    node_manifests,
    priority_class,
    set_run_seconds,
)
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.resources import Floats
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.queue_tree import QueueTable

HOUR = 3600.0
SAVED = "have saved their work"
"""In the reason of evictions after all pods of a gang have answered."""
TIMING = PodTiming(start=1.0, stop=1.0)


@dataclass(frozen=True, slots=True)
class UsageInterval:
    """GPUs of the cluster from ``seconds`` on, until the next interval."""

    seconds: float
    used: float
    waiting: float
    """Requested by pending gangs."""
    fragmented: float = 0.0
    """Free on partly used nodes."""
    largest_free: float = 0.0
    """Free on the node with the most free GPUs, the most that a pod can get."""


@dataclass(frozen=True, slots=True)
class GangWait:
    """Waiting time of a gang; ``seconds`` is None if it did not start.

    ``completion``: seconds from its creation to the end of its last pod, restarts included; None
    where not all of it was placed, or it lost pods and did not get them back.
    """

    gang: str
    queue: str
    gpus: float
    pods: int
    seconds: float | None
    completion: float | None = None
    arrived: float = 0.0
    """Seconds since the start of the simulation."""


@dataclass(frozen=True, slots=True)
class PodAttempt:
    """The time of one pod on its GPUs, from its placement to its end or its eviction.

    ``kept``: seconds of work that need not be repeated. ``seconds`` - ``kept`` is lost: the
    start-up, and after an eviction everything since the last checkpoint.
    """

    gang: str
    queue: str
    gpus: float
    seconds: float
    kept: float
    ended_at: float
    """Seconds since the start of the simulation."""
    evicted_by: Action | None = None


@dataclass
class QueueTotals:
    """GPU-hours of a queue: received, entitled (``entitlement``), and lost to evictions."""

    received: float = 0.0
    entitled: float = 0.0
    evicted_pods: int = 0
    lost_gpu_hours: float = 0.0
    """GPU-hours of work that evicted pods had done and have to repeat."""


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """Measurements of a simulation."""

    scenario: Scenario
    gpus: float
    moments: tuple[UsageInterval, ...]
    waits: tuple[GangWait, ...]
    queues: dict[str, QueueTotals]
    evictions: dict[Action, int]
    cycles: int
    attempts: tuple[PodAttempt, ...] = ()
    """Of all pods that were placed; those that still run end with the simulation."""
    entitlement_samples: tuple[EntitlementSample, ...] = ()
    away_hours: dict[str, float] = field(default_factory=dict)
    """By group, the hours in which nodes were interrupted."""


@dataclass(frozen=True, slots=True)
class _RunningPod:
    """A placed pod: since when, and the seconds that it would run undisturbed."""

    gang: str
    since: float
    seconds: float


@dataclass
class _Recorder:
    samples: EntitlementSamples
    queue_table: QueueTable
    start_up: float = 0.0
    jobs: dict[str, ScenarioJob] = field(default_factory=dict)
    """By gang."""
    missing: dict[str, int] = field(default_factory=dict)
    """By gang, the pods that neither run nor have ended, where there are any."""
    waits: dict[str, GangWait] = field(default_factory=dict)
    arrived: dict[str, float] = field(default_factory=dict)
    running: dict[str, _RunningPod] = field(default_factory=dict)
    """By pod uid, those that have ended as well."""
    members: dict[str, set[str]] = field(default_factory=dict)
    """Uids of the pods of a gang that run or have ended."""
    checkpoints: dict[str, list[float]] = field(default_factory=dict)
    """Seconds of work that evicted pods of a gang had saved, for the pods that replace them."""
    attempts: list[PodAttempt] = field(default_factory=list)
    moments: list[UsageInterval] = field(default_factory=list)
    queues: dict[str, QueueTotals] = field(default_factory=dict)
    evictions: dict[Action, int] = field(default_factory=dict)
    shares: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Allocated and entitled GPUs per queue since the last interval began."""


def simulate(
    scenario: Scenario,
    configuration: Configuration,
    *,
    cycle_seconds: float = 1.0,
    on_progress: Callable[[float], None] = lambda _hours: None,
) -> SimulationResult:
    """Simulate ``scenario``; ``on_progress`` is called with the simulated hours now and then."""
    cluster = SimulatedCluster(configuration, start=SIMULATION_START, timing=TIMING)
    record = _Recorder(
        samples=EntitlementSamples(scenario.hours * HOUR),
        queue_table=queue_table(scenario),
        start_up=scenario.start_up_seconds,
        queues={queue.name: QueueTotals() for queue in scenario.queues},
    )
    _set_up(cluster, scenario, record)
    interruptions = Interruptions(cluster, scenario, partial(_record_loss, cluster, record))
    interruptions.schedule()
    clock, end, cycles = cluster.clock, SIMULATION_START + scenario.hours * HOUR, 0
    resync, next_resync, deadline = configuration.resync_period, 0.0, math.inf
    while clock.now() < end:
        clock.run_due()
        if clock.now() >= deadline:
            cluster.wake()
        if cluster.take_changed():
            plan = cluster.cycle()
            _record_cycle(cluster, record, plan)
            interruptions.answer(plan.checkpoints)
            cycles += 1
            on_progress((clock.now() - SIMULATION_START) / HOUR)
            deadline = cluster.next_deadline
            if record.moments[-1].waiting and clock.now() >= next_resync:
                next_resync = clock.now() + resync
                clock.call_later(resync, cluster.wake)
        due = clock.next_due()
        due = deadline if due is None else min(due, deadline)
        wait = cycle_seconds if cluster.changed else _seconds_until(due, clock.now(), cycle_seconds)
        clock.advance(min(wait, end - clock.now()))
    _accumulate(record, end - SIMULATION_START)
    for pod in record.running.values():
        record.attempts.append(_attempt(record, pod, end))
    gpus = float(sum(kind.count * kind.gpus for kind in scenario.nodes))
    return SimulationResult(
        scenario=scenario,
        gpus=gpus,
        moments=tuple(record.moments),
        waits=tuple(record.waits.values()),
        queues=record.queues,
        evictions=record.evictions,
        cycles=cycles,
        attempts=tuple(record.attempts),
        entitlement_samples=tuple(record.samples.samples),
        away_hours=interruptions.away_hours(end),
    )


def _seconds_until(due: float, now: float, minimum: float) -> float:
    """Seconds to the next event, at least ``minimum``."""
    return max(due - now, minimum)


def _set_up(cluster: SimulatedCluster, scenario: Scenario, record: _Recorder) -> None:
    embedded = cluster.embedded
    for kind in scenario.nodes:
        embedded.create_all(node_manifests(kind))
    embedded.create_all(queue_manifest(queue) for queue in scenario.queues)
    for priority in sorted({job.priority for job in scenario.jobs}):
        embedded.create(priority_class(priority))
    for arrival in arrivals(scenario):
        cluster.clock.call_later(arrival.seconds, partial(_submit_job, cluster, arrival, record))


def _submit_job(cluster: SimulatedCluster, arrival: Arrival, record: _Recorder) -> None:
    gang, job = f"{NAMESPACE}/Job/{arrival.name}", arrival.job
    record.arrived[gang], record.jobs[gang] = cluster.clock.now(), job
    record.missing[gang] = job.pods
    arrived = cluster.clock.now() - SIMULATION_START
    record.waits[gang] = GangWait(
        gang, job.queue, job.pods * job.gpus_per_pod, job.pods, None, arrived=arrived
    )
    cluster.embedded.create(job_manifest(arrival, record.start_up))


def _record_cycle(cluster: SimulatedCluster, record: _Recorder, plan: Plan) -> None:
    now = cluster.clock.now()
    _accumulate(record, now - SIMULATION_START)
    snapshot = cluster.planner.freeze(now)
    gangs = snapshot.gangs
    for placement in plan.placements:
        if placement.gang in record.jobs:
            _record_start(cluster, record, placement, now)
    for eviction in plan.evictions:
        _record_eviction(record, eviction, now)
    shares = {
        share.queue: (share.allocated.get(GPU, 0.0), share.fair_share.get(GPU, 0.0))
        for share in plan.queues
    }
    missing = (gang_rest(record.jobs[gang], pods) for gang, pods in record.missing.items())
    record.shares = entitled_gpus(record.queue_table, shares, missing)
    record.samples.add(now - SIMULATION_START, record.shares)
    waiting = sum(
        member.charged_gpus
        for unplaced in plan.unplaced
        if unplaced.gang in gangs
        for member in gangs[unplaced.gang].pending
    )
    used = sum(share.allocated.get(GPU, 0.0) for share in plan.queues if not share.parent)
    fragmented, largest = _free_gpus(snapshot)
    record.moments.append(UsageInterval(now - SIMULATION_START, used, waiting, fragmented, largest))


def _record_start(
    cluster: SimulatedCluster, record: _Recorder, placement: GangPlacement, now: float
) -> None:
    gang, job = placement.gang, record.jobs[placement.gang]
    saved, members = record.checkpoints.get(gang, []), record.members.setdefault(gang, set())
    for pod in placement.pods:
        seconds = record.start_up + job.minutes * 60
        if saved:
            seconds -= saved.pop()
            set_run_seconds(cluster.embedded, pod.pod, seconds)
        record.running[pod.pod.uid] = _RunningPod(gang, now, seconds)
        members.add(pod.pod.uid)
    wait = record.waits[gang]
    elapsed = now - record.arrived[gang]
    completion = None
    record.missing[gang] = wait.pods - len(members)
    if len(members) >= wait.pods:
        record.missing.pop(gang)
        ends = (record.running[uid].since + record.running[uid].seconds for uid in members)
        completion = max(ends) - record.arrived[gang]
    started = elapsed if wait.seconds is None else wait.seconds
    record.waits[gang] = replace(wait, seconds=started, completion=completion)


def _record_eviction(record: _Recorder, eviction: Eviction, now: float) -> None:
    pod = record.running.pop(eviction.pod.uid, None)
    record.queues[eviction.queue].evicted_pods += 1
    record.evictions[eviction.action] = record.evictions.get(eviction.action, 0) + 1
    if pod is not None:
        saved = eviction.action is Action.DEPARTURE and SAVED in eviction.reason
        _record_end(record, pod, eviction.pod.uid, now, eviction.action, saved=saved)


def _record_loss(cluster: SimulatedCluster, record: _Recorder, uids: Iterable[str]) -> None:
    """Pods that went with their node."""
    now = cluster.clock.now()
    for uid in uids:
        pod = record.running.pop(uid, None)
        if pod is not None:
            record.queues[record.jobs[pod.gang].queue].evicted_pods += 1
            _record_end(record, pod, uid, now, Action.DEPARTURE, saved=False)


def _record_end(
    record: _Recorder, pod: _RunningPod, uid: str, now: float, action: Action, *, saved: bool
) -> None:
    """A pod was ended before its time; ``saved``: after it had saved all its work."""
    queue = record.queues[record.jobs[pod.gang].queue]
    attempt = _attempt(record, pod, now, action, saved=saved)
    record.attempts.append(attempt)
    record.members[pod.gang].discard(uid)
    record.missing[pod.gang] = record.waits[pod.gang].pods - len(record.members[pod.gang])
    record.waits[pod.gang] = replace(record.waits[pod.gang], completion=None)
    queue.lost_gpu_hours += (attempt.seconds - attempt.kept) / HOUR * attempt.gpus
    work = record.jobs[pod.gang].minutes * 60
    done = work - (pod.seconds - record.start_up) + attempt.kept
    if done > 0:
        record.checkpoints.setdefault(pod.gang, []).append(done)


def _attempt(
    record: _Recorder,
    pod: _RunningPod,
    now: float,
    evicted_by: Action | None = None,
    *,
    saved: bool = False,
) -> PodAttempt:
    """The time of a pod until ``now``, or until its end if that was earlier."""
    job = record.jobs[pod.gang]
    seconds = min(now - pod.since, pod.seconds)
    kept = max(seconds - record.start_up, 0.0)
    if evicted_by is not None and not saved:
        interval = (job.checkpoint_minutes or math.inf) * 60
        work = job.minutes * 60
        before = work - (pod.seconds - record.start_up)
        # Checkpoints are taken at multiples of the interval of the whole work, saved work included.
        reached = 0.0 if math.isinf(interval) else (before + kept) // interval * interval
        kept = max(reached - before, 0.0)
    ended = pod.since + seconds - SIMULATION_START
    return PodAttempt(pod.gang, job.queue, job.gpus_per_pod, seconds, kept, ended, evicted_by)


def _free_gpus(snapshot: Snapshot) -> tuple[float, float]:
    """GPUs free on partly used nodes, and on the node with the most free."""
    row = snapshot.resources.positions.get(GPU_RESOURCE)
    if row is None:
        return 0.0, 0.0
    total = snapshot.nodes.allocatable[row]
    return free_gpu_figures(np.maximum(total - snapshot.used[row], 0.0), total)


def free_gpu_figures(free: Floats, total: Floats) -> tuple[float, float]:
    """Of (nodes,) GPUs: those free on partly used nodes, and on the node with the most free."""
    return float(free[free < total].sum()), float(free.max(initial=0.0))


def _accumulate(record: _Recorder, seconds: float) -> None:
    """Add what queues received and were entitled to from the last interval to ``seconds``."""
    since = record.moments[-1].seconds if record.moments else 0.0
    for name, (allocated, entitled) in record.shares.items():
        queue = record.queues[name]
        queue.received += allocated * (seconds - since) / HOUR
        queue.entitled += entitled * (seconds - since) / HOUR
