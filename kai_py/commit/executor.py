"""Execution of plans while this process leads: bindings, evictions, statuses, recovery.

``execute`` takes a plan and returns at once. ``running`` keeps the writers of statuses and events
and the search for leftover claims going; leaving it finishes what is under way, then the pending
statuses and events.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

from msgspec.structs import replace

from kai_py.commit.committer import Committer
from kai_py.commit.dependencies import ExecutorDependencies, Lookups
from kai_py.commit.eviction import ForcedEvictions
from kai_py.commit.gpu_reservations import GpuReservations
from kai_py.commit.maintenance import Maintenance
from kai_py.commit.reports import NamedTask, PlanReports
from kai_py.commit.upkeep.device_conflicts import DeviceConflictResolver
from kai_py.plan.plan import Plan
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.snapshot import Snapshot
from kai_py.watch.kinds import PODS

log = logging.getLogger(__name__)

DRAIN_SECONDS = 20.0
STALE_SECONDS = 5.0
"""Seconds between two plans on a stale view, of which nothing, or only a part, is carried out."""


class Executor:
    """Created when a process becomes the leader; the mirror must be synced."""

    def __init__(self, dependencies: ExecutorDependencies) -> None:
        self._dependencies = dependencies
        self._gangs = tuple[Gang, ...]()
        self._stale: tuple[str, ...] = ()
        lookups, settings = Lookups(dependencies.mirror), dependencies.settings
        gpu_reservations = _gpu_reservations(dependencies, lookups)
        access = dependencies.access(settings.concurrency)
        self._reports = PlanReports(dependencies, lookups, access.limiter.locked)
        self.committer = Committer(
            access=access,
            assume_cache=dependencies.assume_cache,
            find_claim=lookups.claim,
            holders=dependencies.holders,
            event_writer=self._reports.events,
            metrics=dependencies.metrics,
            settings=settings,
            wake=dependencies.wake,
            freshness=dependencies.freshness,
            find_node=lookups.node,
            find_pod=lookups.pod,
            gpu_reservations=gpu_reservations,
        )
        evictions = ForcedEvictions(
            access=dependencies.access(settings.status_concurrency),
            scheduler_name=settings.scheduler_name,
            gangs=lambda: self._gangs,
            max_grace=dependencies.settings.max_grace,
        )
        self._device_conflicts = DeviceConflictResolver(
            access=dependencies.access(settings.status_concurrency),
            holders=dependencies.holders,
            pods=lambda: dependencies.mirror.objects(PODS),
            scheduler_names=settings.scheduler_names,
            is_committing=self.committer.is_committing,
            releasing=self.committer.releasing,
            catch_up=dependencies.freshness.catch_up,
            event_writer=self._reports.events,
            evictions=evictions,
            count=dependencies.metrics.double_allocations.inc,
            policy=settings.double_allocation,
        )
        self._maintenance = Maintenance(
            dependencies, self.committer, self._reports.events, evictions, gpu_reservations
        )

    def execute(self, plan: Plan, snapshot: Snapshot, now: float) -> None:
        """Carry out a plan made of ``snapshot``; ``now`` is its time, seconds since the epoch."""
        contained, gangs = self._dependencies.failures.contained, tuple(snapshot.gangs.values())
        with contained("completing the plan"):
            plan = self._reports.complete(plan, snapshot, now)
        self._maintenance.plan, self._gangs = plan, gangs
        supported = self._supported(plan)
        self.committer.commit(supported, now)
        with contained("reports"):
            # While evictions are held back, no object may say that it is being evicted.
            self._reports.update(replace(plan, evictions=supported.evictions), gangs)

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

    def _background(self) -> Iterator[NamedTask]:
        yield from self._reports.background()
        yield from self._maintenance.background()
        yield "device conflicts", self._device_conflicts.run

    async def _drain(self) -> None:
        if not await self.committer.drain(DRAIN_SECONDS):
            log.warning("stopped with unfinished writes; the next leader completes them")
        await self._reports.drain()


def _gpu_reservations(
    dependencies: ExecutorDependencies, lookups: Lookups
) -> GpuReservations | None:
    """The pods that reserve shared GPUs; None where no GPUs are shared."""
    delivery = dependencies.settings.gpus
    if delivery is None:
        return None
    return GpuReservations(
        access=dependencies.access(dependencies.settings.concurrency),
        groups=dependencies.gpu_groups,
        find_pod=lookups.pod,
        delivery=delivery,
    )
