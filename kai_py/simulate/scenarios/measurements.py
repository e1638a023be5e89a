"""Measurements of a simulation: usage over time, waits of gangs, attempts of pods, sums of queues.

``Recorder`` takes them while the simulation runs. A pod that was evicted begins again with what it
had saved. Times are seconds since the epoch of the simulated clock, unless they say otherwise.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.api.times import HOUR
from kai_py.embedded.clock import SIMULATION_START
from kai_py.plan.plan import Action, Eviction, GangPlacement, Plan, Unplaced
from kai_py.simulate.cluster import SimulatedCluster
from kai_py.simulate.scenarios.entitlement import (
    EntitledGpus,
    EntitlementSample,
    EntitlementSamples,
    entitled_gpus,
    gang_rest,
)
from kai_py.simulate.scenarios.scenario import Arrival, Scenario, ScenarioJob
from kai_py.simulate.scenarios.workloads import NAMESPACE, set_run_seconds
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.resources import Floats
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.queue_tree import QueueTable

SAVED = "have saved their work"
"""In the reason of evictions after all pods of a gang have answered."""


class UsageInterval(Struct, frozen=True):
    """GPUs of the cluster from ``seconds`` on, until the next interval."""

    seconds: float
    used: float
    waiting: float
    """Requested by pending gangs."""
    fragmented: float = 0.0
    """Free on partly used nodes."""
    largest_free: float = 0.0
    """Free on the node with the most free GPUs, the most that a pod can get."""


class GangWait(Struct, frozen=True):
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


class PodAttempt(Struct, frozen=True):
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


class SimulationResult(Struct, frozen=True):
    """Measurements of a simulation."""

    scenario: Scenario
    gpus: float
    moments: tuple[UsageInterval, ...]
    waits: tuple[GangWait, ...]
    queues: dict[str, QueueTotals]
    evictions: dict[Action, int]
    cycles: int
    attempts: tuple[PodAttempt, ...] = ()
    """The attempts of all pods that were placed; those that still run end with the simulation."""
    entitlement_samples: tuple[EntitlementSample, ...] = ()
    away_hours: dict[str, float] = msgspec.field(default_factory=dict)
    """By group, the hours in which nodes were interrupted."""
    unplaced: tuple[Unplaced, ...] = ()
    """The gangs that were pending at the end."""


class _RunningPod(Struct, frozen=True):
    """A placed pod: since when, and the seconds that it would run undisturbed."""

    gang: str
    since: float
    seconds: float


@dataclass
class Recorder:
    """Measures ``cluster``; ``start_up``: seconds that every pod takes before it works."""

    cluster: SimulatedCluster
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
    shares: dict[str, EntitledGpus] = field(default_factory=dict)
    """By queue, since the last interval began."""
    unplaced: tuple[Unplaced, ...] = ()
    """The gangs that are pending since the last cycle."""

    def record_arrival(self, arrival: Arrival) -> None:
        """A Job was created."""
        gang, job = f"{NAMESPACE}/Job/{arrival.name}", arrival.job
        self.jobs[gang], self.missing[gang] = job, job.pods
        self.arrived[gang] = now = self.cluster.clock.now()
        self.waits[gang] = GangWait(
            gang,
            job.queue,
            job.pods * job.gpus_per_pod,
            job.pods,
            None,
            arrived=now - SIMULATION_START,
        )

    def record_cycle(self, plan: Plan) -> None:
        """A cycle ended with ``plan``, which was executed."""
        now = self.cluster.clock.now()
        self._accumulate(now - SIMULATION_START)
        snapshot = self.cluster.planner.freeze(now)
        gangs = snapshot.gangs
        for placement in plan.placements:
            if placement.gang in self.jobs:
                self._record_start(placement, now)
        for eviction in plan.evictions:
            self._record_eviction(eviction, now)
        shares = {
            share.queue: EntitledGpus(share.allocated.get(GPU, 0.0), share.fair_share.get(GPU, 0.0))
            for share in plan.queues
        }
        missing = (gang_rest(self.jobs[gang], pods) for gang, pods in self.missing.items())
        self.shares = entitled_gpus(self.queue_table, shares, missing)
        self.samples.add(now - SIMULATION_START, self.shares)
        self.unplaced = tuple(plan.unplaced)
        waiting = sum(
            member.charged_gpus
            for unplaced in plan.unplaced
            if unplaced.gang in gangs
            for member in gangs[unplaced.gang].pending
        )
        used = sum(share.allocated.get(GPU, 0.0) for share in plan.queues if not share.parent)
        fragmented, largest = _free_gpus(snapshot)
        self.moments.append(
            UsageInterval(now - SIMULATION_START, used, waiting, fragmented, largest)
        )

    def _record_start(self, placement: GangPlacement, now: float) -> None:
        gang, job = placement.gang, self.jobs[placement.gang]
        saved, members = self.checkpoints.get(gang, []), self.members.setdefault(gang, set())
        for pod in placement.pods:
            seconds = self.start_up + job.minutes * 60
            if saved:
                seconds -= saved.pop()
                set_run_seconds(self.cluster.embedded, pod.pod, seconds)
            self.running[pod.pod.uid] = _RunningPod(gang, now, seconds)
            members.add(pod.pod.uid)
        wait = self.waits[gang]
        elapsed = now - self.arrived[gang]
        completion = None
        self.missing[gang] = wait.pods - len(members)
        if len(members) >= wait.pods:
            self.missing.pop(gang)
            ends = (self.running[uid].since + self.running[uid].seconds for uid in members)
            completion = max(ends) - self.arrived[gang]
        started = elapsed if wait.seconds is None else wait.seconds
        self.waits[gang] = replace(wait, seconds=started, completion=completion)

    def _record_eviction(self, eviction: Eviction, now: float) -> None:
        pod = self.running.pop(eviction.pod.uid, None)
        self.queues[eviction.queue].evicted_pods += 1
        self.evictions[eviction.action] = self.evictions.get(eviction.action, 0) + 1
        if pod is not None:
            saved = eviction.action is Action.DEPARTURE and SAVED in eviction.reason
            self._record_end(pod, eviction.pod.uid, now, eviction.action, saved=saved)

    def record_loss(self, uids: Iterable[str]) -> None:
        """Pods were lost with their node."""
        now = self.cluster.clock.now()
        for uid in uids:
            pod = self.running.pop(uid, None)
            if pod is not None:
                self.queues[self.jobs[pod.gang].queue].evicted_pods += 1
                self._record_end(pod, uid, now, Action.DEPARTURE, saved=False)

    def _record_end(
        self, pod: _RunningPod, uid: str, now: float, action: Action, *, saved: bool
    ) -> None:
        """A pod was ended before its time; ``saved``: after it had saved all its work."""
        queue = self.queues[self.jobs[pod.gang].queue]
        attempt = self._attempt(pod, now, action, saved=saved)
        self.attempts.append(attempt)
        self.members[pod.gang].discard(uid)
        self.missing[pod.gang] = self.waits[pod.gang].pods - len(self.members[pod.gang])
        self.waits[pod.gang] = replace(self.waits[pod.gang], completion=None)
        queue.lost_gpu_hours += (attempt.seconds - attempt.kept) / HOUR * attempt.gpus
        work = self.jobs[pod.gang].minutes * 60
        done = work - (pod.seconds - self.start_up) + attempt.kept
        if done > 0:
            self.checkpoints.setdefault(pod.gang, []).append(done)

    def _attempt(
        self,
        pod: _RunningPod,
        now: float,
        evicted_by: Action | None = None,
        *,
        saved: bool = False,
    ) -> PodAttempt:
        """The time of a pod until ``now``, or until its end if that was earlier."""
        job = self.jobs[pod.gang]
        seconds = min(now - pod.since, pod.seconds)
        kept = max(seconds - self.start_up, 0.0)
        if evicted_by is not None and not saved:
            interval = (job.checkpoint_minutes or math.inf) * 60
            work = job.minutes * 60
            before = work - (pod.seconds - self.start_up)
            # Checkpoints are taken at multiples of the interval of the whole work, with what was
            # saved before.
            reached = 0.0 if math.isinf(interval) else (before + kept) // interval * interval
            kept = max(reached - before, 0.0)
        ended = pod.since + seconds - SIMULATION_START
        return PodAttempt(pod.gang, job.queue, job.gpus_per_pod, seconds, kept, ended, evicted_by)

    def finish(self, end: float) -> None:
        """The simulation ended at ``end``: pods that still run end with it."""
        self._accumulate(end - SIMULATION_START)
        for pod in self.running.values():
            self.attempts.append(self._attempt(pod, end))

    def _accumulate(self, seconds: float) -> None:
        """Add what queues received and were entitled to from the last interval to ``seconds``."""
        since = self.moments[-1].seconds if self.moments else 0.0
        for name, (allocated, entitled) in self.shares.items():
            queue = self.queues[name]
            queue.received += allocated * (seconds - since) / HOUR
            queue.entitled += entitled * (seconds - since) / HOUR


def _free_gpus(snapshot: Snapshot) -> tuple[float, float]:
    """GPUs free on partly used nodes, and on the node with the most free."""
    row = snapshot.resources.positions.get(GPU_RESOURCE)
    if row is None:
        return 0.0, 0.0
    total = snapshot.nodes.allocatable[row]
    return free_gpu_figures(np.maximum(total - snapshot.used[row], 0.0), total)


def free_gpu_figures(free: Floats, total: Floats) -> tuple[float, float]:
    """GPUs free on partly used nodes, and on the node with the most free; arrays are (nodes,)."""
    return float(free[free < total].sum()), float(free.max(initial=0.0))
