"""Simulation of a scenario: hours of a cluster in seconds, with measurements.

The scheduler runs one cycle whenever something relevant happened, at most once per
``cycle_seconds`` of simulated time. Between two cycles nothing changes, so amounts over time are
exact sums, not samples.

Interruptions of spot nodes are announced; then the node is removed with its pods, and replaced
later. Times between interruptions of a node, and until another comes in its place, are
exponentially distributed, and follow from the seed of the scenario. Pods that are asked to save
their work answer after ``ANSWER_SECONDS``.
"""

import math
import random
from collections.abc import Callable, Iterable
from functools import partial

from kai_py.api.queue import CHECKPOINT_BY_KEY, CHECKPOINTED_KEY
from kai_py.api.references import PodRef
from kai_py.api.times import HOUR
from kai_py.config import Configuration
from kai_py.embedded.clock import SIMULATION_START
from kai_py.embedded.deletion import DeleteOptions, delete
from kai_py.embedded.documents import Json, is_finished, name_of, namespace_of
from kai_py.embedded.kubelet import PodTiming
from kai_py.embedded.resources import NODES, PODS
from kai_py.plan.observations import CheckpointRequest
from kai_py.simulate.cluster import SimulatedCluster
from kai_py.simulate.scenarios.entitlement import EntitlementSamples, queue_table
from kai_py.simulate.scenarios.measurements import QueueTotals, Recorder, SimulationResult
from kai_py.simulate.scenarios.scenario import (
    Arrival,
    NodeGroup,
    Scenario,
    arrivals,
    queue_manifest,
)
from kai_py.simulate.scenarios.workloads import (
    Manifest,
    job_manifest,
    node_manifests,
    priority_class,
)

ANSWER_SECONDS = 20.0
NOTICE = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}


class Interruptions:
    """Interrupts nodes; ``on_lost`` is called with the uids of the pods that are lost with one."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        scenario: Scenario,
        on_lost: Callable[[Iterable[str]], None],
    ) -> None:
        """Nothing is scheduled yet."""
        self._cluster, self._scenario, self._on_lost = cluster, scenario, on_lost
        self._away_since: dict[str, tuple[str, float]] = {}
        self._away: dict[str, float] = {}

    def schedule(self) -> None:
        """Schedule the first interruption of each node."""
        for kind in self._scenario.nodes:
            for manifest in node_manifests(kind) if kind.interruptions_per_hour else ():
                name = manifest["metadata"]["name"]
                chance = random.Random(f"{self._scenario.seed}/interruptions/{name}")
                self._schedule_next(kind, manifest, chance)

    def answer(self, requests: Iterable[CheckpointRequest]) -> None:
        """Let pods that were asked save their work."""
        for request in requests:
            for pod in request.pods:
                self._cluster.clock.call_later(ANSWER_SECONDS, partial(self._answer, pod))

    def away_hours(self, end: float) -> dict[str, float]:
        """By group, the hours in which nodes were away until ``end``, seconds since the epoch."""
        total = dict(self._away)
        for kind, since in self._away_since.values():
            total[kind] = total.get(kind, 0.0) + max(end - since, 0.0)
        return {kind: seconds / HOUR for kind, seconds in total.items()}

    def _schedule_next(self, kind: NodeGroup, manifest: Manifest, chance: random.Random) -> None:
        seconds = chance.expovariate(kind.interruptions_per_hour) * HOUR
        if self._elapsed() + seconds < self._scenario.hours * HOUR:
            self._cluster.clock.call_later(seconds, partial(self._announce, kind, manifest, chance))

    def _announce(self, kind: NodeGroup, manifest: Manifest, chance: random.Random) -> None:
        def tainted(node: Json) -> Json:
            return {**node, "spec": {**node.get("spec", {}), "taints": [NOTICE]}}

        self._cluster.embedded.api.edit(NODES, manifest["metadata"]["name"], "", tainted)
        take = partial(self._take, kind, manifest, chance)
        self._cluster.clock.call_later(kind.notice_seconds, take)

    def _take(self, kind: NodeGroup, manifest: Manifest, chance: random.Random) -> None:
        api, name = self._cluster.embedded.api, manifest["metadata"]["name"]
        lost = [
            pod
            for pod in api.list(PODS)
            if pod["spec"].get("nodeName") == name and not is_finished(pod)
        ]
        self._on_lost([pod["metadata"]["uid"] for pod in lost])
        for pod in lost:
            marked = api.patch_status(PODS, pod, {"conditions": [DISRUPTED]})
            options = DeleteOptions(grace_seconds=0)
            delete(api, PODS, name_of(marked), namespace_of(marked), options)
        delete(api, NODES, name, "", DeleteOptions())
        self._away_since[name] = kind.name, self._cluster.clock.now()
        away = chance.expovariate(1 / (kind.away_minutes * 60)) if kind.away_minutes else 0.0
        bring = partial(self._bring, kind, manifest, chance)
        self._cluster.clock.call_later(away, bring)

    def _bring(self, kind: NodeGroup, manifest: Manifest, chance: random.Random) -> None:
        name = manifest["metadata"]["name"]
        _, since = self._away_since.pop(name)
        away = self._cluster.clock.now() - since
        self._away[kind.name] = self._away.get(kind.name, 0.0) + away
        self._cluster.embedded.create(manifest)
        self._schedule_next(kind, manifest, chance)

    def _answer(self, pod: PodRef) -> None:
        api = self._cluster.embedded.api
        known = api.find(PODS, pod.name, pod.namespace)
        by = known and (known["metadata"].get("annotations") or {}).get(CHECKPOINT_BY_KEY)
        if not known or not by or known["metadata"]["uid"] != pod.uid:
            return

        def answered(present: Json) -> Json:
            meta = present["metadata"]
            annotations = {**meta["annotations"], CHECKPOINTED_KEY: by}
            return {**present, "metadata": {**meta, "annotations": annotations}}

        api.edit(PODS, pod.name, pod.namespace, answered)

    def _elapsed(self) -> float:
        return self._cluster.clock.now() - SIMULATION_START


TIMING = PodTiming(start=1.0, stop=1.0)


def simulate(
    scenario: Scenario,
    configuration: Configuration,
    *,
    cycle_seconds: float = 1.0,
    on_progress: Callable[[float], None] = lambda _hours: None,
) -> SimulationResult:
    """Simulate ``scenario``; ``on_progress`` is called with the simulated hours now and then."""
    cluster = SimulatedCluster(configuration, start=SIMULATION_START, timing=TIMING)
    record = Recorder(
        cluster,
        samples=EntitlementSamples(scenario.hours * HOUR),
        queue_table=queue_table(scenario),
        start_up=scenario.start_up_seconds,
        queues={queue.name: QueueTotals() for queue in scenario.queues},
    )
    _set_up(cluster, scenario, record)
    interruptions = Interruptions(cluster, scenario, record.record_loss)
    interruptions.schedule()
    clock, end, cycles = cluster.clock, SIMULATION_START + scenario.hours * HOUR, 0
    resync, next_resync, deadline = configuration.resync_period, 0.0, math.inf
    while clock.now() < end:
        clock.run_due()
        if clock.now() >= deadline:
            cluster.wake()
        if cluster.take_changed():
            plan = cluster.cycle()
            record.record_cycle(plan)
            interruptions.answer(plan.checkpoints)
            cycles += 1
            on_progress((clock.now() - SIMULATION_START) / HOUR)
            deadline = cluster.next_deadline
            if record.moments[-1].waiting and clock.now() >= next_resync:
                next_resync = clock.now() + resync
                clock.call_later(resync, cluster.wake)
        due = clock.next_due()
        due = deadline if due is None else min(due, deadline)
        wait = cycle_seconds if cluster.changed else max(due - clock.now(), cycle_seconds)
        clock.advance(min(wait, end - clock.now()))
    record.finish(end)
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
        unplaced=record.unplaced,
    )


def _set_up(cluster: SimulatedCluster, scenario: Scenario, record: Recorder) -> None:
    embedded = cluster.embedded
    for kind in scenario.nodes:
        embedded.create_all(node_manifests(kind))
    embedded.create_all(queue_manifest(queue) for queue in scenario.queues)
    for priority in sorted({job.priority for job in scenario.jobs}):
        embedded.create(priority_class(priority))
    for arrival in arrivals(scenario):
        cluster.clock.call_later(arrival.seconds, partial(_submit_job, cluster, arrival, record))


def _submit_job(cluster: SimulatedCluster, arrival: Arrival, record: Recorder) -> None:
    record.record_arrival(arrival)
    cluster.embedded.create(job_manifest(arrival, record.start_up))
