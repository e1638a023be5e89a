"""Observes the demo's cluster and publishes its changes as events.

The observer knows what the scheduler reads of the API, which pods form a gang, and the plans, for
queue shares (no object carries them) and for the gangs in favour of which pods are evicted.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from kai_py.api.records.core import Pod
from kai_py.api.records.job import Job
from kai_py.api.records.resource import ResourceClaim
from kai_py.demo.events import (
    AnyDemoEvent,
    ClaimChange,
    ClaimChanged,
    EventSeen,
    EvictionDecided,
    JobCompleted,
    PodChange,
    PodChanged,
    QueueGpus,
    QueuesChanged,
)
from kai_py.observe.event_history import EVENTS, ClusterEvent
from kai_py.plan.observations import QueueShare
from kai_py.plan.plan import Plan
from kai_py.scheduler import Scheduler
from kai_py.snapshot.accounting import GPU
from kai_py.watch.client import Client
from kai_py.watch.kinds import JOBS, PODS, RESOURCE_CLAIMS
from kai_py.watch.mirror import Mirror
from kai_py.watch.resource import Kind

PHASES = {
    "Running": PodChange.RUNNING,
    "Succeeded": PodChange.SUCCEEDED,
    "Failed": PodChange.FAILED,
}
Publish = Callable[[AnyDemoEvent], None]


class Observer:
    """Publishes events; ``clock`` returns their time in seconds.

    ``mirror`` is the scheduler's; ``events`` mirrors what the scheduler has no use for.
    """

    def __init__(
        self, client: Client, scheduler: Scheduler, publish: Publish, clock: Callable[[], float]
    ) -> None:
        """The scheduler does not run yet, so nothing is missed."""
        self.mirror = scheduler.mirror
        self.events = Mirror(client, (EVENTS,))
        self.plan = Plan()
        self.gang_of = scheduler.gang_of
        self._publish = publish
        self._clock = clock
        self._queues: tuple[QueueGpus, ...] = ()
        self._evicted: set[str] = set()
        self.mirror.subscribe(self._pod, PODS)
        self.mirror.subscribe(self._claim, RESOURCE_CLAIMS)
        self.mirror.subscribe(self._job, JOBS)
        self.events.subscribe(self._event, EVENTS)

    def note_plan(self, plan: Plan) -> None:
        """Take over the scheduler's last plan."""
        self.plan = plan
        for eviction in plan.evictions:
            # A plan repeats an eviction until the pod is gone.
            if eviction.pod.uid in self._evicted:
                continue
            self._evicted.add(eviction.pod.uid)
            self._publish(
                EvictionDecided(
                    time=self._clock(),
                    action=eviction.action.value,
                    pod=str(eviction.pod),
                    gang=eviction.gang,
                    preemptor=eviction.preemptor,
                    reason=eviction.reason,
                )
            )
        queues = tuple(map(queue_gpus, plan.queues))
        if queues != self._queues:
            self._queues = queues
            self._publish(QueuesChanged(time=self._clock(), queues=queues))

    def _pod(self, _kind: Kind[Any], old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        for change in pod_changes(old, new):
            spec = self.gang_of(pod)
            self._publish(
                PodChanged(
                    time=self._clock(),
                    change=change,
                    pod=f"{pod.metadata.namespace}/{pod.metadata.name}",
                    gang=self._gang_key(pod),
                    queue="" if spec is None else spec.queue,
                    node=pod.spec.node_name,
                )
            )

    def _gang_key(self, pod: Pod) -> str:
        gang = self.gang_of(pod)
        return owner_key(pod) if gang is None else gang.key

    def _claim(
        self, _kind: Kind[Any], old: ResourceClaim | None, new: ResourceClaim | None
    ) -> None:
        before, after = devices_of(old), devices_of(new)
        if before == after:
            return
        claim = new or old
        assert claim is not None
        name = f"{claim.metadata.namespace}/{claim.metadata.name}"
        for change, devices in ((ClaimChange.RELEASED, before), (ClaimChange.ALLOCATED, after)):
            if devices:
                self._publish(
                    ClaimChanged(time=self._clock(), change=change, claim=name, devices=devices)
                )

    def _job(self, _kind: Kind[Any], old: Job | None, new: Job | None) -> None:
        if new is not None and is_complete(new) and not (old and is_complete(old)):
            gang = f"{new.metadata.namespace}/Job/{new.metadata.name}"
            self._publish(JobCompleted(time=self._clock(), gang=gang))

    def _event(self, _kind: Kind[Any], _old: object, new: ClusterEvent | None) -> None:
        if new is None:
            return
        involved = new.involved_object
        pod = None
        gang = f"{involved.namespace}/{involved.kind}/{involved.name}"
        if involved.kind == "Pod":
            pod = self.mirror.objects(PODS).get((involved.namespace, involved.name))
            gang = self._gang_key(pod) if pod is not None else ""
        self._publish(
            EventSeen(
                time=self._clock(),
                level=new.type,
                reason=new.reason,
                kind=involved.kind,
                name=involved.name,
                note=new.message,
                gang=gang,
                node=pod.spec.node_name if pod is not None else "",
            )
        )


def owner_key(pod: Pod) -> str:
    """What stands for the gang of a pod of another scheduler: its controller, or itself."""
    meta = pod.metadata
    owners = (f"{each.kind}/{each.name}" for each in meta.owner_references if each.controller)
    return f"{meta.namespace}/{next(owners, f'Pod/{meta.name}')}"


def pod_changes(old: Pod | None, new: Pod | None) -> tuple[PodChange, ...]:
    """The changes of a pod between two states, in order."""
    if new is None:
        return (PodChange.DELETED,)
    changes = [] if old is not None else [PodChange.CREATED]
    if new.spec.node_name and not (old and old.spec.node_name):
        changes.append(PodChange.BOUND)
    if new.metadata.deletion_timestamp and not (old and old.metadata.deletion_timestamp):
        changes.append(PodChange.TERMINATING)
    phase = new.status.phase
    if phase in PHASES and phase != (old.status.phase if old is not None else ""):
        changes.append(PHASES[phase])
    return tuple(changes)


def devices_of(claim: ResourceClaim | None) -> tuple[str, ...]:
    """The devices allocated to a claim, each ``pool/device``."""
    if claim is None or claim.status.allocation is None:
        return ()
    results = claim.status.allocation.devices.results
    return tuple(f"{result.pool}/{result.device}" for result in results)


def is_complete(job: Job) -> bool:
    """Whether all pods of the Job succeeded."""
    completions = job.spec.completions if job.spec.completions is not None else 1
    return completions > 0 and job.status.succeeded >= completions


def queue_gpus(share: QueueShare) -> QueueGpus:
    """The GPUs of a queue."""
    maximum = share.maximum.get(GPU, math.inf)
    return QueueGpus(
        queue=share.queue,
        deserved=share.deserved.get(GPU, 0.0),
        fair_share=share.fair_share.get(GPU, 0.0),
        allocated=share.allocated.get(GPU, 0.0),
        maximum=None if math.isinf(maximum) else maximum,
        pending_gangs=share.pending_gangs,
    )


@asynccontextmanager
async def observed(scheduler: Scheduler, observer: Observer) -> AsyncIterator[None]:
    """Run the scheduler during the block, and observe it; its failure ends the block."""
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(observer.events.run())
        running = group.create_task(scheduler.run())
        try:
            yield
        finally:
            scheduler.stop()
            await asyncio.wait((running,))
            watching.cancel()
