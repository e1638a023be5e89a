"""Simulation of a scenario: hours of a cluster in seconds, with measurements.

The scheduler runs one cycle whenever something relevant happened, at most once per
``cycle_seconds`` of simulated time. Between two cycles nothing changes, so amounts over time are
exact sums, not samples.
"""

import math
from collections.abc import Callable
from functools import partial

from kai_py.api.times import HOUR
from kai_py.config import Configuration
from kai_py.embedded.clock import SIMULATION_START
from kai_py.embedded.kubelet import PodTiming
from kai_py.simulate.cluster import SimulatedCluster
from kai_py.simulate.entitlement import EntitlementSamples, queue_table
from kai_py.simulate.interruptions import Interruptions
from kai_py.simulate.measurements import QueueTotals, Recorder, SimulationResult
from kai_py.simulate.scenario import Arrival, Scenario, arrivals, queue_manifest
from kai_py.simulate.workloads import job_manifest, node_manifests, priority_class

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
