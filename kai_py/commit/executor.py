"""Everything that acts on plans while a process leads: bindings, evictions, statuses, recovery.

``carry_out`` takes a plan and returns at once. ``running`` keeps the writers of statuses and events
and the search for left-over claims going; leaving it finishes what is under way, then what is left
to tell.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kai_py.api.records.core import Pod
from kai_py.api.records.resource import ResourceClaim
from kai_py.api.references import ClaimRef, PodRef
from kai_py.commit.api_access import Access
from kai_py.commit.claims.device_conflicts import Clashes
from kai_py.commit.claims.device_holders import DeviceHolders
from kai_py.commit.claims.recovery import (
    ClaimingGroups,
    GroupOrigins,
    LeftoverGrace,
    find_leftovers,
    wanted_pods,
)
from kai_py.commit.committer import Committer, Room
from kai_py.commit.event_writer import Narrator
from kai_py.commit.events import EventRecorder, TokenBucket, queue_object
from kai_py.commit.provisioner import Provisioner
from kai_py.commit.retry import ObjectBackoff
from kai_py.commit.scale_ups import ScaleUps
from kai_py.commit.scheduling_gates import GateLifter
from kai_py.commit.settings import CommitSettings
from kai_py.commit.statuses.grove_pod_gang import PodGangStatuses
from kai_py.commit.statuses.kai import KaiStatuses
from kai_py.commit.statuses.kai_messages import in_kai_words
from kai_py.commit.statuses.native_pod_group import NativeGroupStatuses
from kai_py.commit.statuses.pod import StatusWriter, pending_statuses
from kai_py.commit.statuses.queue import QueueStatusWriter
from kai_py.grouping.gang import Owner
from kai_py.observe.metrics import Metrics
from kai_py.plan.plan import ObjectProblem, Plan
from kai_py.snapshot.claims import pod_claims
from kai_py.snapshot.gangs import Gang
from kai_py.watch.client import Client
from kai_py.watch.kinds import NODES, PODS, QUEUES, RESOURCE_CLAIMS, WatchedQueue
from kai_py.watch.mirror import Mirror

log = logging.getLogger(__name__)

FINISH_SECONDS = 20.0
TELL_SECONDS = 2.0
GATE_LANES = 4


@dataclass(frozen=True)
class Surroundings:
    """What an executor works with.

    ``wake`` asks for a cycle after so many seconds; ``identity`` names this process in events.
    """

    client: Client
    mirror: Mirror
    room: Room
    groups: ClaimingGroups
    holders: DeviceHolders
    metrics: Metrics
    settings: CommitSettings
    identity: str
    wake: Callable[[float], None]


class Executor:
    """Made when a process begins to lead; the mirror must be synced."""

    def __init__(self, given: Surroundings) -> None:
        self._given = given
        self._plan = Plan()
        self._problems: tuple[ObjectProblem, ...] = ()
        self._grace = LeftoverGrace(given.settings.claim_grace)
        self._recorder = EventRecorder(
            given.client,
            TokenBucket(given.settings.events_per_second, given.settings.events_burst),
            reporter=given.settings.scheduler_name,
            instance=given.identity,
            on_dropped=given.metrics.events_dropped.inc,
        )
        self._narrator = Narrator(self._recorder, self._queue_object, self._waiting_claims)
        self._statuses = StatusWriter(
            self._access(given.settings.status_concurrency),
            self._find_pod,
            message_interval=given.settings.message_interval,
            on_transition=self._narrator.tell_transition,
            wake=given.wake,
        )
        self._queues = QueueStatusWriter(
            given.client,
            given.mirror.served(QUEUES) or QUEUES.at(),
            self._find_queue,
            interval=given.settings.queue_status_interval,
            backoff=ObjectBackoff(given.settings.backoff),
            on_transition=self._narrator.tell_queue,
        )
        self._origins = GroupOrigins(
            self._access(given.settings.status_concurrency),
            given.groups,
            ObjectBackoff(given.settings.backoff),
        )
        self._gates = GateLifter(self._access(GATE_LANES), self._find_pod)
        self._native_groups = NativeGroupStatuses(given.client, given.mirror, given.settings)
        self._pod_gangs = PodGangStatuses(given.client, given.mirror, given.settings)
        self._provisioner = Provisioner(given.client, given.mirror, given.settings)
        self._scale_ups = ScaleUps(
            settled_after=given.settings.autoscaling.settled_after,
            most=given.settings.autoscaling.futile_scale_ups,
            wake=given.wake,
        )
        self._kai = KaiStatuses(given.client, given.mirror, given.settings)
        self.committer = Committer(
            access=self._access(given.settings.concurrency),
            room=given.room,
            known_claim=self._find_claim,
            holders=given.holders,
            narrator=self._narrator,
            metrics=given.metrics,
            settings=given.settings,
            wake=given.wake,
        )
        self._clashes = Clashes(
            access=self._access(given.settings.status_concurrency),
            holders=given.holders,
            pods=lambda: given.mirror.objects(PODS),
            schedulers=given.settings.scheduler_names,
            carries=self.committer.carries,
            narrator=self._narrator,
            count=given.metrics.double_allocations.inc,
            rule=given.settings.double_allocation,
        )

    def carry_out(self, plan: Plan, gangs: Collection[Gang], now: float) -> None:
        """Act on a plan made of ``gangs``; ``now`` is its time, seconds since the epoch."""
        plan = self._calling(in_kai_words(plan, gangs, now), gangs, now)
        self._plan = plan
        self.committer.carry_out(plan, now)
        statuses = pending_statuses(plan, surplus_calls=self._given.settings.autoscaling.surplus)
        self._statuses.update(statuses, asyncio.get_running_loop().time())
        for unplaced in plan.unplaced:
            self._narrator.tell_pending(unplaced)
        for problem in plan.problems:
            if problem.object.kind == "Pod":  # it may be bound before the next look
                self._narrator.tell_problem(problem)
        self._queues.update(plan)
        self._gates.update(plan.admissions)
        self._native_groups.update(plan, gangs)
        self._pod_gangs.update(plan, gangs)
        if self._given.settings.kai_statuses:
            self._kai.update(plan, gangs)

    def _calling(self, plan: Plan, gangs: Collection[Gang], now: float) -> Plan:
        """``plan``, with what becomes of calls for nodes."""
        nodes = self._given.mirror.objects(NODES)
        names = [name for _, name in nodes]
        return self._provisioner.told(self._scale_ups.heeded(plan, names, now), gangs)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep writing and recovering; leaving finishes what is under way, a cancel drops it."""
        async with asyncio.TaskGroup() as group:
            writers = [self._statuses.run() for _ in range(self._given.settings.status_concurrency)]
            writers += [self._queues.run(), self._kai.run()]
            writers += [self._gates.run() for _ in range(GATE_LANES)]
            writers += [self._native_groups.run(), self._pod_gangs.run(), self._provisioner.run()]
            works = (self._recorder.run(), self._recover(), self._clashes.run(), *writers)
            tasks = [group.create_task(work) for work in works]
            self._given.holders.listen(self._clashes.note)
            try:
                yield
                await self._finish()
            finally:
                self._given.holders.listen(None)
                for task in (*tasks, *self.committer.tasks):
                    task.cancel()

    async def _finish(self) -> None:
        if not await self.committer.drain(FINISH_SECONDS):
            log.warning("not everything under way was finished; the next scheduler completes it")
        await self._statuses.drain(TELL_SECONDS)
        await self._recorder.drain(TELL_SECONDS)

    async def _recover(self) -> None:
        settings = self._given.settings
        names = settings.scheduler_names
        while True:
            await asyncio.sleep(settings.claim_grace / 3)
            await self._origins.look()
            claims = self._given.mirror.objects(RESOURCE_CLAIMS).values()
            wanted = wanted_pods(self._plan) | self.committer.pods_in_flight
            pods = self._given.mirror.objects(PODS).values()
            groups = self._given.groups.own_groups()
            found = find_leftovers(claims, pods, names, wanted, groups)
            due = self._grace.due(found, asyncio.get_running_loop().time())
            self.committer.give_back(due)
            self._tell_lasting_problems()

    def _tell_lasting_problems(self) -> None:
        """Tell of what was wrong at the last look already: pools are incomplete while written."""
        before, self._problems = self._problems, self._plan.problems
        for problem in self._problems:
            if problem in before:
                self._narrator.tell_problem(problem)

    def _access(self, concurrency: int) -> Access:
        mirror = self._given.mirror
        return Access(
            client=self._given.client,
            pods=PODS.at(),
            claims=mirror.served(RESOURCE_CLAIMS) or RESOURCE_CLAIMS.at(),
            lane=asyncio.Semaphore(concurrency),
            retry=self._given.settings.retry,
        )

    def _find_pod(self, ref: PodRef) -> Pod | None:
        pod = self._given.mirror.objects(PODS).get((ref.namespace, ref.name))
        return pod if pod is not None and pod.metadata.uid == ref.uid else None

    def _waiting_claims(self, ref: PodRef) -> tuple[ClaimRef, ...]:
        pod, claims = self._find_pod(ref), self._given.mirror.objects(RESOURCE_CLAIMS)
        if pod is None:
            return ()
        used = pod_claims(pod, lambda namespace, name: claims.get((namespace, name))).references
        known = ((claim, self._find_claim(claim)) for claim in used)
        return tuple(ref for ref, claim in known if claim and claim.status.allocation is None)

    def _find_claim(self, ref: ClaimRef) -> ResourceClaim | None:
        claim = self._given.mirror.objects(RESOURCE_CLAIMS).get((ref.namespace, ref.name))
        return claim if claim is not None and claim.metadata.uid == ref.uid else None

    def _find_queue(self, name: str) -> WatchedQueue | None:
        return self._given.mirror.objects(QUEUES).get(("", name))

    def _queue_object(self, name: str) -> Owner | None:
        queue = self._find_queue(name)
        return queue_object(queue.metadata) if queue is not None else None
