"""Plain first-in-first-out with backfill, the yardstick of goodput.

Gangs start in the order of their arrival, whole, as soon as they fit; a gang that does not fit lets
every later one pass (aggressive backfill). Each pod goes to the node with the fewest free GPUs on
which it fits (best fit). Nothing is ever evicted; queues, priorities and minAvailable count for
nothing.
"""

import heapq
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kai_py.api.records.node import HOSTNAME_LABEL
from kai_py.api.times import HOUR
from kai_py.policy.fair_share import fair_share
from kai_py.policy.fairness_rules import FairnessRules
from kai_py.simulate.scenarios.entitlement import (
    EntitledGpus,
    EntitlementSamples,
    entitled_gpus,
    gang_rest,
    queue_table,
)
from kai_py.simulate.scenarios.measurements import (
    GangWait,
    PodAttempt,
    QueueTotals,
    SimulationResult,
    UsageInterval,
    free_gpu_figures,
)
from kai_py.simulate.scenarios.scenario import Arrival, NodeGroup, Scenario, ScenarioJob, arrivals
from kai_py.simulate.scenarios.workloads import NAMESPACE
from kai_py.snapshot.resources import Bools, Floats

WHOLE = 1.0 - 1e-9
"""Free part of a GPU from which on it counts as free."""


class _Machines(Struct):
    """Free amounts: ``gpus`` (nodes, GPUs per node), 0 where a node has no such GPU."""

    gpus: Floats
    cpu: Floats
    memory_gib: Floats
    labels: list[Mapping[str, str]]

    def fits(self, job: ScenarioJob) -> Bools:
        """(nodes,) where a pod of the job fits now."""
        fits = (self.cpu >= job.cpu_per_pod) & (self.memory_gib >= job.memory_gib_per_pod)
        if job.gpus_per_pod >= 1:
            fits &= (self.gpus >= WHOLE).sum(axis=1) >= job.gpus_per_pod
        elif job.gpus_per_pod > 0:
            fits &= self.gpus.max(axis=1, initial=0.0) >= job.gpus_per_pod - 1e-9
        if job.node_selector:
            fits &= np.array([_selects(job.node_selector, labels) for labels in self.labels], bool)
        return fits


class _PlacedPod(Struct, frozen=True):
    """Where a pod is: its node, its GPUs there, and the part of each."""

    node: int
    gpus: tuple[int, ...]
    part: float


class _RunningGang(NamedTuple):
    """A gang that runs until ``end``, seconds; ``number`` orders those that end together."""

    end: float
    number: int
    arrival: Arrival
    pods: list[_PlacedPod]


class _Progress(Struct):
    """The gangs that wait and run, and what was measured so far; ``running`` is a heap."""

    waiting: list[Arrival]
    running: list[_RunningGang]
    waits: dict[str, GangWait]
    moments: list[UsageInterval]
    attempts: list[PodAttempt]
    queues: dict[str, QueueTotals]
    samples: EntitlementSamples
    started: int = 0


def simulate_fifo(scenario: Scenario, rules: FairnessRules) -> SimulationResult:
    """Simulate ``scenario``; ``rules``: by which the entitlement of queues is reported."""
    machines = _machines(scenario.nodes)
    total = float((machines.gpus >= WHOLE).sum())
    totals = {each.name: QueueTotals() for each in scenario.queues}
    progress = _Progress([], [], {}, [], [], totals, EntitlementSamples(scenario.hours * HOUR))
    shares = _Entitlements(scenario, total, rules)
    coming, end, now = arrivals(scenario)[::-1], scenario.hours * HOUR, 0.0
    while True:
        while coming and coming[-1].seconds <= now:
            _arrive(coming.pop(), progress)
        while progress.running and progress.running[0].end <= now:
            _release(machines, heapq.heappop(progress.running))
        _start_all(scenario, machines, progress, now)
        waiting = sum(_gpus(each.job) for each in progress.waiting)
        used = sum(_gpus(each.arrival.job) for each in progress.running)
        free, largest = free_gpu_figures(machines.gpus.sum(axis=1), _node_gpus(scenario.nodes))
        progress.moments.append(UsageInterval(now, used, waiting, free, largest))
        next_arrival = coming[-1].seconds if coming else end
        next_end = progress.running[0].end if progress.running else end
        following = min(next_arrival, next_end, end)
        shares.add(progress, now, (following - now) / HOUR)
        if following >= end:
            break
        now = following
    return SimulationResult(
        scenario=scenario,
        gpus=total,
        moments=tuple(progress.moments),
        waits=tuple(progress.waits.values()),
        queues=progress.queues,
        evictions={},
        cycles=len(progress.moments),
        attempts=tuple(_until(each, end) for each in progress.attempts),
        entitlement_samples=tuple(progress.samples.samples),
    )


def _machines(groups: Sequence[NodeGroup]) -> _Machines:
    nodes = [(group, f"{group.name}-{n}") for group in groups for n in range(group.count)]
    widest = max((group.gpus for group, _ in nodes), default=0)
    gpus = np.zeros((len(nodes), widest), np.float64)
    for row, (group, _) in enumerate(nodes):
        gpus[row, : group.gpus] = 1.0
    return _Machines(
        gpus=gpus,
        cpu=np.array([group.cpu for group, _ in nodes], np.float64),
        memory_gib=np.array([group.memory_gib for group, _ in nodes], np.float64),
        labels=[{HOSTNAME_LABEL: name, **group.labels} for group, name in nodes],
    )


def _node_gpus(groups: Sequence[NodeGroup]) -> Floats:
    return np.array([group.gpus for group in groups for _ in range(group.count)], np.float64)


def _selects(selector: Mapping[str, tuple[str, ...]], labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) in values for key, values in selector.items())


def _arrive(arrival: Arrival, progress: _Progress) -> None:
    job, gang = arrival.job, _gang(arrival)
    progress.waits[gang] = GangWait(
        gang, job.queue, _gpus(job), job.pods, None, arrived=arrival.seconds
    )
    progress.waiting.append(arrival)


def _gpus(job: ScenarioJob) -> float:
    return job.pods * job.gpus_per_pod


def _gang(arrival: Arrival) -> str:
    return f"{NAMESPACE}/Job/{arrival.name}"


def _start_all(scenario: Scenario, machines: _Machines, progress: _Progress, now: float) -> None:
    """Start every waiting gang that fits, the first that came first."""
    remaining: list[Arrival] = []
    # A job that does not fit cannot fit for a later arrival of the same kind either.
    unplaceable: set[int] = set()
    for arrival in progress.waiting:
        job = arrival.job
        pods = None if id(job) in unplaceable else _place(machines, job)
        if pods is None:
            unplaceable.add(id(job))
            remaining.append(arrival)
            continue
        work = job.minutes * 60
        seconds = scenario.start_up_seconds + work
        progress.started += 1
        running = _RunningGang(now + seconds, progress.started, arrival, pods)
        heapq.heappush(progress.running, running)
        gang = _gang(arrival)
        elapsed = now - arrival.seconds
        progress.waits[gang] = replace(
            progress.waits[gang], seconds=elapsed, completion=elapsed + seconds
        )
        attempt = PodAttempt(gang, job.queue, job.gpus_per_pod, seconds, work, now + seconds)
        progress.attempts += [attempt] * job.pods
    progress.waiting = remaining


def _place(machines: _Machines, job: ScenarioJob) -> list[_PlacedPod] | None:
    """Place all pods of a job, or none."""
    placed: list[_PlacedPod] = []
    for _ in range(job.pods):
        rows = np.flatnonzero(machines.fits(job))
        if not len(rows):
            for pod in placed:
                _give_back(machines, job, pod)
            return None
        free = machines.gpus[rows].sum(axis=1)
        placed.append(_take(machines, job, int(rows[np.argmin(free)])))
    return placed


def _take(machines: _Machines, job: ScenarioJob, node: int) -> _PlacedPod:
    cards = machines.gpus[node]
    if job.gpus_per_pod >= 1:
        chosen, part = np.flatnonzero(cards >= WHOLE)[: int(job.gpus_per_pod)], 1.0
    elif job.gpus_per_pod > 0:
        fitting = np.flatnonzero(cards >= job.gpus_per_pod - 1e-9)
        chosen, part = fitting[[int(np.argmin(cards[fitting]))]], job.gpus_per_pod
    else:
        chosen, part = np.zeros(0, np.int64), 0.0
    cards[chosen] -= part
    machines.cpu[node] -= job.cpu_per_pod
    machines.memory_gib[node] -= job.memory_gib_per_pod
    return _PlacedPod(node, tuple(int(each) for each in chosen), part)


def _give_back(machines: _Machines, job: ScenarioJob, pod: _PlacedPod) -> None:
    machines.gpus[pod.node, list(pod.gpus)] += pod.part
    machines.cpu[pod.node] += job.cpu_per_pod
    machines.memory_gib[pod.node] += job.memory_gib_per_pod


def _release(machines: _Machines, ended: _RunningGang) -> None:
    for pod in ended.pods:
        _give_back(machines, ended.arrival.job, pod)


def _until(attempt: PodAttempt, end: float) -> PodAttempt:
    """The part of an attempt that lies within the simulation."""
    beyond = max(attempt.ended_at - end, 0.0)
    seconds, kept = attempt.seconds - beyond, max(attempt.kept - beyond, 0.0)
    return replace(attempt, seconds=seconds, kept=kept, ended_at=attempt.ended_at - beyond)


class _Entitlements:
    """The fair shares of the queues under this policy's demand."""

    def __init__(self, scenario: Scenario, gpus: float, rules: FairnessRules) -> None:
        self._table = queue_table(scenario)
        self._total = np.array([gpus], np.float64)
        self._rules = rules

    def add(self, progress: _Progress, now: float, hours: float) -> None:
        """Add ``hours``, from ``now`` on, of what queues use and of what they are entitled to."""
        used = np.zeros((1, len(self._table)), np.float64)
        demand = np.zeros_like(used)
        rows = self._table.positions
        for arrival in progress.waiting:
            demand[0, rows[arrival.job.queue]] += _gpus(arrival.job)
        for each in progress.running:
            used[0, rows[each.arrival.job.queue]] += _gpus(each.arrival.job)
        used, demand = self._table.subtree_sums(used), self._table.subtree_sums(demand + used)
        fair = fair_share(self._table, self._total, demand, self._rules).fair
        waiting = (gang_rest(each.job, each.job.pods) for each in progress.waiting)
        fair_shares = {
            name: EntitledGpus(float(used[0, row]), float(fair[0, row]))
            for name, row in rows.items()
        }
        shares = entitled_gpus(self._table, fair_shares, waiting)
        for name, (received, entitled) in shares.items():
            progress.queues[name].received += received * hours
            progress.queues[name].entitled += entitled * hours
        progress.samples.add(now, shares)
