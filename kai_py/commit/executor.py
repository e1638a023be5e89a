"""Execution of plans while this process leads: bindings, evictions, statuses, recovery.

``execute`` takes a plan and returns at once. ``running`` keeps the writers of statuses and events
and the search for leftover claims going; leaving it finishes what is under way, then the pending
statuses and events.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from kai_py.commit.api_access import ApiAccess
from kai_py.commit.checkpoints import CheckpointRequester
from kai_py.commit.claims.device_conflicts import DeviceConflictResolver
from kai_py.commit.claims.device_holders import DeviceHolders
from kai_py.commit.claims.recovery import (
    ClaimingGroups,
    GroupOwnership,
    LeftoverTracker,
    find_leftover_claims,
    planned_pods,
)
from kai_py.commit.claims.repair import DamagedPod, PodRepair, RepairPasses, find_damaged_pods
from kai_py.commit.cluster_view import AssumeCache
from kai_py.commit.committer import Committer
from kai_py.commit.event_writer import EventWriter
from kai_py.commit.events import EventRecorder, TokenBucket
from kai_py.commit.forced_evictions import ForcedEvictions
from kai_py.commit.gpus.groups import SharedGpuGroups
from kai_py.commit.gpus.reservations import GpuReservations
from kai_py.commit.gpus.upkeep import GpuUpkeep
from kai_py.commit.lookups import Lookups
from kai_py.commit.promised_nodes import NodeProtector
from kai_py.commit.provisioner import Provisioner
from kai_py.commit.retry import ObjectBackoff
from kai_py.commit.scale_ups import ScaleUpTracker
from kai_py.commit.scheduling_gates import GateRemover
from kai_py.commit.settings import CommitSettings
from kai_py.commit.statuses.grove_pod_gang import PodGangStatusWriter
from kai_py.commit.statuses.kai import KaiStatusWriter
from kai_py.commit.statuses.kai_messages import with_kai_messages
from kai_py.commit.statuses.native_pod_group import NativeGroupStatusWriter
from kai_py.commit.statuses.pod import PodStatusWriter, pending_statuses
from kai_py.commit.statuses.queue import QueueStatusWriter
from kai_py.grouping.gang import Owner
from kai_py.observe.failures import Failures
from kai_py.observe.metrics import Metrics
from kai_py.plan.observations import ObjectProblem
from kai_py.plan.plan import Plan
from kai_py.plan.startups import GANGS_NOT_READY
from kai_py.snapshot.gangs import Gang
from kai_py.watch.client import Client
from kai_py.watch.freshness import Freshness
from kai_py.watch.kinds import NODES, PODS, QUEUES, RESOURCE_CLAIMS, WatchedQueue
from kai_py.watch.mirror import Mirror

log = logging.getLogger(__name__)

DRAIN_SECONDS = 20.0
STATUS_DRAIN_SECONDS = 2.0
GATE_CONCURRENCY = 4
STALE_SECONDS = 5.0
"""Seconds between two plans on a stale view, of which nothing or not all is carried out."""


@dataclass(frozen=True)
class ExecutorDependencies:
    """Inputs of an executor.

    ``wake`` requests a cycle after so many seconds; ``identity`` names this process in events;
    ``failures`` contains exceptions about single objects.
    """

    client: Client
    mirror: Mirror
    freshness: Freshness
    assume_cache: AssumeCache
    claiming_groups: ClaimingGroups
    holders: DeviceHolders
    gpu_groups: SharedGpuGroups
    metrics: Metrics
    settings: CommitSettings
    identity: str
    wake: Callable[[float], None]
    failures: Failures


class Executor:
    """Created when a process becomes the leader; the mirror must be synced."""

    def __init__(self, dependencies: ExecutorDependencies) -> None:
        self._dependencies = dependencies
        self._lookups = Lookups(dependencies.mirror)
        self._plan = Plan()
        self._gangs: Collection[Gang] = ()
        self._stale: tuple[str, ...] = ()
        self._last_problems: tuple[ObjectProblem, ...] = ()
        self._grace = LeftoverTracker(dependencies.settings.claim_grace)
        self._recorder = EventRecorder(
            dependencies.client,
            TokenBucket(
                dependencies.settings.events_per_second, dependencies.settings.events_burst
            ),
            reporter=dependencies.settings.scheduler_name,
            instance=dependencies.identity,
            on_dropped=dependencies.metrics.events_dropped.inc,
        )
        self._event_writer = EventWriter(
            self._recorder, self._lookups.queue_reference, self._lookups.unallocated_claims
        )
        self._pod_statuses = PodStatusWriter(
            self._access(dependencies.settings.status_concurrency),
            self._lookups.pod,
            message_interval=dependencies.settings.message_interval,
            on_transition=self._event_writer.report_transition,
            wake=dependencies.wake,
        )
        self._queue_statuses = QueueStatusWriter(
            dependencies.client,
            dependencies.mirror.served(QUEUES) or QUEUES.at(),
            self._reported_queue,
            interval=dependencies.settings.queue_status_interval,
            backoff=ObjectBackoff(dependencies.settings.backoff),
            on_transition=self._event_writer.report_queue,
        )
        self._group_ownership = GroupOwnership(
            self._access(dependencies.settings.status_concurrency),
            dependencies.claiming_groups,
            ObjectBackoff(dependencies.settings.backoff),
        )
        self._gates = GateRemover(self._access(GATE_CONCURRENCY), self._lookups.pod)
        self._checkpoints = CheckpointRequester(
            self._access(GATE_CONCURRENCY), self._lookups.pod, self._event_writer.report_checkpoint
        )
        self._node_protector = (
            NodeProtector(dependencies.client, lambda: dependencies.mirror.objects(NODES))
            if dependencies.settings.autoscaling.protect_promised
            else None
        )
        self._native_statuses = NativeGroupStatusWriter(
            dependencies.client, dependencies.mirror, dependencies.settings
        )
        self._grove_statuses = PodGangStatusWriter(
            dependencies.client, dependencies.mirror, dependencies.settings
        )
        self._provisioner = Provisioner(
            dependencies.client, dependencies.mirror, dependencies.settings
        )
        self._scale_ups = ScaleUpTracker(
            settled_after=dependencies.settings.autoscaling.settled_after,
            max_ineffective=dependencies.settings.autoscaling.futile_scale_ups,
            wake=dependencies.wake,
        )
        self._kai_statuses = KaiStatusWriter(
            dependencies.client, dependencies.mirror, dependencies.settings
        )
        self._gpu_reservations = self._reservations()
        self.committer = Committer(
            access=self._access(dependencies.settings.concurrency),
            assume_cache=dependencies.assume_cache,
            find_claim=self._lookups.claim,
            holders=dependencies.holders,
            event_writer=self._event_writer,
            metrics=dependencies.metrics,
            settings=dependencies.settings,
            wake=dependencies.wake,
            freshness=dependencies.freshness,
            find_node=self._lookups.node,
            find_pod=self._lookups.pod,
            gpu_reservations=self._gpu_reservations,
        )
        self._evictions = ForcedEvictions(
            access=self._access(dependencies.settings.status_concurrency),
            scheduler_name=dependencies.settings.scheduler_name,
            gangs=lambda: self._gangs,
        )
        self._device_conflicts = DeviceConflictResolver(
            access=self._access(dependencies.settings.status_concurrency),
            holders=dependencies.holders,
            pods=lambda: dependencies.mirror.objects(PODS),
            scheduler_names=dependencies.settings.scheduler_names,
            is_committing=self.committer.is_committing,
            releasing=self.committer.releasing,
            catch_up=dependencies.freshness.catch_up,
            event_writer=self._event_writer,
            evictions=self._evictions,
            count=dependencies.metrics.double_allocations.inc,
            policy=dependencies.settings.double_allocation,
        )

    def execute(self, plan: Plan, gangs: Collection[Gang], now: float) -> None:
        """Carry out a plan made of ``gangs``; ``now`` is its time, seconds since the epoch."""
        plan = self._with_autoscaling(with_kai_messages(plan, gangs, now), gangs, now)
        self._plan, self._gangs = plan, gangs
        self.committer.commit(self._supported(plan), now)
        contained = self._dependencies.failures.contained
        with contained("statuses of pods"):
            statuses = pending_statuses(
                plan, elastic_calls_for_nodes=self._dependencies.settings.autoscaling.surplus
            )
            self._pod_statuses.update(statuses, asyncio.get_running_loop().time())
        for unplaced in plan.unplaced:
            with contained("events", unplaced.gang):
                self._event_writer.report_pending(unplaced)
        for hold in plan.holds:
            with contained("events", hold.gang):
                self._event_writer.report_hold(hold)
        for problem in plan.problems:
            if problem.object.kind == "Pod":  # it may be bound before the next look
                self._event_writer.report_problem(problem)
        with contained("statuses of queues"):
            self._queue_statuses.update(plan)
        self._gates.update(plan.admissions)
        self._checkpoints.update(plan.checkpoints)
        if self._node_protector is not None:
            self._node_protector.update(plan.promised_nodes)
        with contained("events"):
            self._event_writer.report_running(plan)
        for each in plan.avoided_devices:
            self._dependencies.assume_cache.avoid_device(each.key, GANGS_NOT_READY, each.seconds)
        with contained("statuses of groups"):
            self._native_statuses.update(plan, gangs)
            self._grove_statuses.update(plan, gangs)
            if self._dependencies.settings.write_kai_statuses:
                self._kai_statuses.update(plan, gangs)

    def _reported_queue(self, name: str) -> WatchedQueue | None:
        """The queue, if this node pool writes its status."""
        found = self._lookups.queue(name)
        reports = found is not None and self._dependencies.settings.reports_on(found.metadata)
        return found if reports else None

    def _supported(self, plan: Plan) -> Plan:
        """What of ``plan`` may be carried out on a view as fresh as the present one."""
        freshness = self._dependencies.freshness
        silent, behind = freshness.silent(), freshness.behind()
        self._log_stale(tuple(each.split(":")[0] for each in (*silent, *behind)), silent + behind)
        if silent:
            return Plan()
        return replace(plan, evictions=(), nominations=()) if behind else plan

    def _log_stale(self, kinds: tuple[str, ...], reasons: Sequence[str]) -> None:
        """Log when views become stale and when they are fresh again, and plan again meanwhile."""
        if kinds != self._stale:
            self._stale = kinds
            log.warning("stale: %s", "; ".join(reasons) or "no longer, all watches are fresh")
        if kinds:
            self._dependencies.wake(STALE_SECONDS)

    def _with_autoscaling(self, plan: Plan, gangs: Collection[Gang], now: float) -> Plan:
        """``plan`` with the state of scale-up requests and ProvisioningRequests."""
        nodes = self._dependencies.mirror.objects(NODES)
        names = [name for _, name in nodes]
        return self._provisioner.update(
            self._scale_ups.suppress_ineffective(plan, names, now), gangs
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the writers and recovery; leaving finishes what is under way, cancelling drops it."""
        async with asyncio.TaskGroup() as group:
            supervise = self._dependencies.failures.supervise
            tasks = [group.create_task(supervise(part, run)) for part, run in self._background()]
            self._dependencies.holders.subscribe(self._device_conflicts.add)
            try:
                yield
                await self._drain()
            finally:
                self._dependencies.holders.subscribe(None)
                for task in (*tasks, *self.committer.tasks):
                    task.cancel()

    def _background(self) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        """What runs beside the cycles, with its name."""
        for _ in range(self._dependencies.settings.status_concurrency):
            yield "statuses of pods", self._pod_statuses.run
        for _ in range(GATE_CONCURRENCY):
            yield "scheduling gates", self._gates.run
            yield "requests for checkpoints", self._checkpoints.run
        yield "statuses of queues", self._queue_statuses.run
        yield "statuses of KAI's objects", self._kai_statuses.run
        yield "statuses of PodGroups", self._native_statuses.run
        yield "statuses of PodGangs", self._grove_statuses.run
        yield "ProvisioningRequests", self._provisioner.run
        yield "events", self._recorder.run
        yield "recovery", self._recover
        yield "repair", self._repair
        yield "device conflicts", self._device_conflicts.run
        if self._node_protector is not None:
            yield "annotations of nodes", self._node_protector.run
        if self._gpu_reservations is not None:
            yield "shared GPUs", self._keep_gpus

    async def _drain(self) -> None:
        if not await self.committer.drain(DRAIN_SECONDS):
            log.warning("stopped with unfinished writes; the next leader completes them")
        await self._pod_statuses.drain(STATUS_DRAIN_SECONDS)
        await self._recorder.drain(STATUS_DRAIN_SECONDS)

    async def _recover(self) -> None:
        settings = self._dependencies.settings
        names = settings.scheduler_names
        while True:
            await asyncio.sleep(settings.claim_grace / 3)
            await self._group_ownership.refresh()
            claims = self._dependencies.mirror.objects(RESOURCE_CLAIMS).values()
            in_use = planned_pods(self._plan) | self.committer.pods_in_flight
            in_use |= self._dependencies.assume_cache.assumed_pods()
            pods = self._dependencies.mirror.objects(PODS).values()
            groups = self._dependencies.claiming_groups.our_groups()
            found = find_leftover_claims(claims, pods, names, in_use, groups)
            due = self._grace.due(found, asyncio.get_running_loop().time())
            freshness = self._dependencies.freshness
            if not freshness.silent() and not freshness.behind():
                self.committer.release_leftovers(due)
            self._report_lasting_problems()

    async def _repair(self) -> None:
        mirror = self._dependencies.mirror
        passes = RepairPasses(
            repair=PodRepair(
                access=self._access(self._dependencies.settings.status_concurrency),
                holders=self._dependencies.holders,
                event_writer=self._event_writer,
                evictions=self._evictions,
                count=lambda outcome: self._dependencies.metrics.repairs.labels(outcome).inc(),
            ),
            find=lambda: find_damaged_pods(
                mirror.objects(PODS).values(),
                mirror.objects(RESOURCE_CLAIMS),
                self._dependencies.settings.scheduler_names,
            ),
            is_written=self._is_written,
            catch_up=self._dependencies.freshness.catch_up,
        )
        while True:
            await asyncio.sleep(self._dependencies.settings.repair_interval)
            if not self._dependencies.freshness.behind():
                await passes.run_once()

    async def _keep_gpus(self) -> None:
        """Delete reservation pods that are not needed; nothing is decided on a stale view."""
        if self._gpu_reservations is None:
            return
        dependencies, loop = self._dependencies, asyncio.get_running_loop()
        upkeep = GpuUpkeep(
            groups=dependencies.gpu_groups,
            reservations=self._gpu_reservations,
            in_use=self.committer.gpus_in_flight,
            releasing=self.committer.releasing_gpus,
            catch_up=dependencies.freshness.catch_up,
            event_writer=self._event_writer,
            evictions=self._evictions,
            count=lambda outcome: dependencies.metrics.repairs.labels(outcome).inc(),
            scheduler_names=dependencies.settings.scheduler_names,
        )
        while True:
            await asyncio.sleep(dependencies.settings.gpu_interval)
            if not dependencies.freshness.silent() and not dependencies.freshness.behind():
                await upkeep.run_once(loop.time())

    def _is_written(self, damaged: DamagedPod) -> bool:
        """Whether a transaction or release is at work on the pod or its claim."""
        claim, committer = damaged.claim.uid, self.committer
        return claim in committer.releasing or any(
            map(committer.is_committing, (claim, damaged.pod.uid))
        )

    def _report_lasting_problems(self) -> None:
        """Report problems of two passes in a row: pools are incomplete while they are written."""
        problems = (*self._plan.problems, *self._unreadable_objects())
        previous, self._last_problems = self._last_problems, problems
        for problem in self._last_problems:
            if problem in previous:
                self._event_writer.report_problem(problem)

    def _unreadable_objects(self) -> Iterator[ObjectProblem]:
        for status in self._dependencies.mirror.status():
            for each in status.rejected:
                namespace, name = each.key
                unreadable = Owner(status.api_version, each.kind, namespace, name, each.uid)
                reason = f"it cannot be read and is ignored: {each.reason}"
                yield ObjectProblem(unreadable, reason)

    def _access(self, concurrency: int) -> ApiAccess:
        mirror = self._dependencies.mirror
        return ApiAccess(
            client=self._dependencies.client,
            pods=PODS.at(),
            claims=mirror.served(RESOURCE_CLAIMS) or RESOURCE_CLAIMS.at(),
            limiter=asyncio.Semaphore(concurrency),
            retry=self._dependencies.settings.retry,
            settle_pause=self._dependencies.settings.settle_pause,
        )

    def _reservations(self) -> GpuReservations | None:
        delivery = self._dependencies.settings.gpus
        if delivery is None:
            return None
        return GpuReservations(
            access=self._access(self._dependencies.settings.concurrency),
            groups=self._dependencies.gpu_groups,
            find_pod=self._lookups.pod,
            delivery=delivery,
        )
