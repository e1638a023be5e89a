"""The scheduler process: mirror, builder, cycle, commit and observability, wired together.

    mirror ──changes──► builder ──freeze──► cycle (in a thread) ──plan──► commit
                          ▲                                               │
                          └────────────── assume, forget ◄────────────────┘

One event loop does all input and output; only ``decide`` runs in a thread, so watches keep flowing
while a plan is made. A cycle starts when something relevant changed, at most once per
``cyclePeriod``, at least once per ``resyncPeriod``, and at the times on which a decision depends
(``plan.cycle.deadlines``). Bindings that show as assumed are awaited for a second. A cycle that
fails is logged and counted, and the next one rebuilds the planner's state. A process that lost its
lease ends at once (exit code 1); ``stop`` finishes what is under way and releases the lease.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kai_py.api.records.core import Pod
from kai_py.cel.parse import load_grammar
from kai_py.commit.claims.device_holders import DeviceHolders
from kai_py.commit.dependencies import ExecutorDependencies
from kai_py.commit.executor import Executor
from kai_py.commit.gpu_reservations import SharedGpuGroups
from kai_py.config import Configuration
from kai_py.grouping.gang import GangSpec
from kai_py.grouping.owner_chain import GroupKind
from kai_py.observe import health
from kai_py.observe.activity_log import log_decisions, log_queue_change
from kai_py.observe.auditor import Auditor, AuditSource
from kai_py.observe.cluster_view import ClusterView
from kai_py.observe.failures import Failures
from kai_py.observe.http import Probes
from kai_py.observe.http_api import ApiSource
from kai_py.observe.http_forward import Replica
from kai_py.observe.kept_history import KeptShares, KeptStartups, kept_history
from kai_py.observe.metrics import Metrics, measure_process
from kai_py.observe.plan_observer import PlanListener, PlanObserver
from kai_py.plan.plan import Plan
from kai_py.planner import Planner, spec_of_queue
from kai_py.process_settings import commit_settings, election_of, elector_for
from kai_py.relevance import CycleWake
from kai_py.snapshot.resources import Floats
from kai_py.snapshot.snapshot import Snapshot
from kai_py.watch.client import Client
from kai_py.watch.elector import Leader
from kai_py.watch.freshness import Freshness
from kai_py.watch.kinds import KAI_QUEUES, PODS, QUEUES, RESOURCE_CLAIMS
from kai_py.watch.mirror import Mirror
from kai_py.watch.owner_kinds import OwnerKindWatcher
from kai_py.watch.prometheus_usage import follow_usage
from kai_py.watch.resource import Kind, key_of
from kai_py.watchdog import CycleTimer

if TYPE_CHECKING:
    from kai_py.watch.elector import Elector
    from kai_py.watch.elector_thread import ElectorThread

log = logging.getLogger(__name__)

LISTED_BEFORE_GRACE = 5 / 6
"""The part of the watch grace after which a kind whose watch is silent is listed."""
FAILED_CYCLE_PAUSE = 1.0
OWNER_KINDS_SECONDS = 10.0
"""Longest wait of the first cycle for kinds of owners that the first pods need."""


class Scheduler:
    """One scheduler process; ``run`` it once.

    ``identity`` is unique to this process. ``on_plan`` is called with every plan. With ``dry_run``
    nothing is written, not even a lease.
    """

    def __init__(
        self,
        client: Client,
        configuration: Configuration,
        metrics: Metrics,
        *,
        identity: str,
        dry_run: bool = False,
        on_plan: PlanListener = lambda _plan: None,
    ) -> None:
        silence = configuration.commit.watch_grace * LISTED_BEFORE_GRACE
        self.mirror = Mirror(client, on_refused=self._on_refused, silence=silence)
        settings = commit_settings(configuration)
        self._client = client
        self._configuration = configuration
        self._metrics = metrics
        self._identity, self._dry_run = identity, dry_run
        self._failures = Failures(
            lambda part: metrics.contained_failures.labels(part).inc(), client.machine.boot_time
        )
        self._planner = Planner(
            configuration,
            on_owner_kind=self._want_owner_kind,
            on_unneeded_kind=self._drop_owner_kind,
            on_failure=self._failures.report_invalid,
            gives_shared_gpus=settings.gpus is not None,
        )
        self._owner_kinds = OwnerKindWatcher(
            client, self.mirror, self._planner.owner_decoder, self._on_owner_kind
        )
        kai_metrics = configuration.kai.queue_metrics
        self._observer = PlanObserver(
            self.mirror, metrics, self._failures, kai_metrics=kai_metrics, on_plan=on_plan
        )
        self.decisions = self._observer.decisions
        self._device_holders = DeviceHolders()
        self._gpu_groups = SharedGpuGroups()
        self._freshness = Freshness(
            self.mirror, silence=configuration.commit.watch_grace, lag=settings.mirror_timeout
        )
        self._audit_source = AuditSource(
            self.mirror, self._freshness, self._planner, configuration, client.machine.now
        )
        self.auditor = Auditor(
            metrics.registry,
            self._audit_source.observe,
            client.machine.boot_time,
            self._audit_source.versions,
        )
        self._executor: Executor | None = None
        self._kept_shares: KeptShares | None = None
        self._kept_startups: KeptStartups | None = None
        self._elector: Elector | ElectorThread | None = None
        self.address = ""
        """URL at which other replicas reach this one; to be set before ``run``."""
        self._wake = CycleWake()
        self._stop = asyncio.Event()
        self._cycle_began: float | None = None
        self._deadline: float | None = None
        self.mirror.subscribe(self._on_change)

    @property
    def last_view(self) -> ClusterView | None:
        """The last plan with its snapshot; None before the first."""
        return self._observer.view

    def gang_of(self, pod: Pod) -> GangSpec | None:
        """The gang of a pod in the mirror, None for pods of other schedulers."""
        return self._planner.builder.gang_of(pod)

    def stop(self) -> None:
        """Finish what is under way, then let ``run`` return."""
        self._stop.set()
        self._wake.wake()

    async def run(self) -> None:
        """Schedule until stopped."""
        await asyncio.to_thread(load_grammar)
        async with asyncio.TaskGroup() as group:
            background = [
                group.create_task(self.mirror.run()),
                group.create_task(self._owner_kinds.run()),
                group.create_task(measure_process(self._metrics, self.mirror, self._freshness)),
                *self._usage_tasks(group),
            ]
            try:
                await self._unless_stopped(self.mirror.wait_synced())
                await self._unless_stopped(self._owner_kinds.wait_settled(OWNER_KINDS_SECONDS))
                if not self._stop.is_set():
                    await self._run_elected()
            finally:
                for task in background:
                    task.cancel()

    def _usage_tasks(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """The task that queries past usage, if it is measured by Prometheus."""
        fair_share = self._configuration.fair_share
        if fair_share.prometheus is None:
            return []
        polling = follow_usage(
            fair_share.prometheus, fair_share.half_life, self._planner.record_usage
        )
        return [group.create_task(polling)]

    def unhealthy(self) -> list[str]:
        """What is wrong with this process, as sentences."""
        started = self._cycle_began
        running = 0.0 if started is None else asyncio.get_running_loop().time() - started
        return health.stale_watches(self.mirror.status()) + health.stuck_cycle(running)

    def unready(self) -> list[str]:
        """What has not been read yet or cannot be reached now, as sentences."""
        kinds = self.mirror.status()
        unread = [] if self.mirror.synced else health.unsynced_kinds(kinds)
        unelectable = [] if self._elector is None else self._elector.problems()
        stale = self._freshness.silent() + self._freshness.behind()
        return unread + unelectable + health.unreachable_kinds(kinds) + stale

    def unreadable(self) -> list[str]:
        """Kinds that are left out because they may not be read, as sentences."""
        return health.unreadable_kinds(self.mirror.status())

    def replica(self) -> Replica:
        """This replica, and the one that leads."""
        election = self._configuration.leader_election
        if self._dry_run or not election.enabled:
            return Replica(self._identity, leads=True, leader=self._identity)
        leader = self._elector.leader if self._elector is not None else Leader()
        leads = self._executor is not None
        return Replica(self._identity, leads, leader.identity, leader.address)

    def probes(self) -> Probes:
        """Sources for the HTTP server of this process."""
        source = ApiSource(
            lambda: self.last_view, self.decisions, self._observer.shares, replica=self.replica
        )
        return Probes(
            self._metrics.registry,
            self.unhealthy,
            self.unready,
            source,
            self.unreadable,
            self._client.machine.now,
        )

    async def _run_elected(self) -> None:
        if self._dry_run:
            await self._cycles(lambda: False)
        elif not self._configuration.leader_election.enabled:
            await self._lead(lambda: True)
        else:
            election = election_of(self._configuration, self._identity, self.address)
            self._kept_shares, self._kept_startups = kept_history(
                self._client, election.namespace, election.name, self._observer.shares
            )
            elector = self._elector = elector_for(self._client, election)
            await self._unless_stopped(elector.lead(lambda: self._lead(lambda: elector.leading)))

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for ``work``; a stop cancels it, unless it leads: then it ends by itself."""
        task = asyncio.create_task(work)
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
            if task.done() or self._executor is not None:
                await task
        finally:
            stopping.cancel()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _lead(self, may_act: Callable[[], bool]) -> None:
        self._metrics.leader.set(1)
        self._executor = Executor(
            ExecutorDependencies(
                client=self._client,
                mirror=self.mirror,
                freshness=self._freshness,
                assume_cache=self._planner.builder,
                claiming_groups=self._planner.builder.releasable_claims,
                holders=self._device_holders,
                gpu_groups=self._gpu_groups,
                metrics=self._metrics,
                settings=commit_settings(self._configuration).with_jitter(
                    self._client.machine.uniform
                ),
                identity=self._identity,
                wake=self._wake.wake_after,
                failures=self._failures,
            )
        )
        recalling = [
            asyncio.create_task(
                self._observer.recall_decisions(self._client, self._configuration.scheduler_name)
            )
        ]
        if self._kept_shares is not None:
            recalling.append(asyncio.create_task(self._kept_shares.run()))
        try:
            if self._kept_startups is not None:
                known = await self._kept_startups.recall()
                self._planner.recall_startups(known, self._client.machine.now())
                recalling.append(asyncio.create_task(self._kept_startups.run()))
            async with self._executor.running():
                await self._cycles(may_act)
        finally:
            for task in recalling:
                task.cancel()
            await asyncio.wait(recalling)
            self._executor = None
            self._metrics.leader.set(0)

    async def _cycles(self, may_act: Callable[[], bool]) -> None:
        auditing = asyncio.create_task(self.auditor.run())
        try:
            await self._run_cycles(may_act)
        finally:
            auditing.cancel()

    async def _run_cycles(self, may_act: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        while not self._stop.is_set():
            started = self._cycle_began = loop.time()
            # Before freezing: a change during the cycle must start another one.
            self._wake.clear()
            pause = self._configuration.cycle_period
            number = self.decisions.cycle + 1
            try:
                with self._metrics.timed("total", number):
                    await self._cycle(number, may_act)
            except Exception:
                log.exception(
                    "the scheduling cycle failed; the next one starts from a new snapshot"
                )
                self._metrics.cycle_failures.inc()
                # The failure may come from cached state: rebuild it.
                self._planner.reset()
                self._wake.wake()
                pause = max(pause, FAILED_CYCLE_PAUSE)
            self._cycle_began = None
            await self._wait_for_cycle(started + pause)

    async def _wait_for_cycle(self, until: float) -> None:
        """Sleep to ``until`` (loop time), then until something relevant happens or is due."""
        delay = until - asyncio.get_running_loop().time()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), max(delay, 0.0))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), self._max_wait())

    def _max_wait(self) -> float:
        limit = self._configuration.resync_period
        if self._deadline is None:
            return limit
        return min(max(self._deadline - self._client.machine.now(), 0.0), limit)

    async def _cycle(self, number: int, may_act: Callable[[], bool]) -> None:
        now = self._client.machine.now()
        with self._metrics.timed("snapshot", number):
            for _ in self._planner.prepare(now):
                await asyncio.sleep(0)
            snapshot = self._planner.freeze(now)
        with self._metrics.timed("plan", number):
            plan, node_gpus = await asyncio.to_thread(self._decide, snapshot)
        if self._kept_startups is not None:
            with self._failures.contained("what is kept of starts"):
                self._kept_startups.note(self._planner.kept_startups())
        ends = self._planner.expected_ends(now)
        view = self._audit_source.view = ClusterView(number, snapshot, plan, node_gpus, ends)
        with self._failures.contained("the next deadline"):
            self._deadline = self._planner.next_deadline(snapshot)
        decisions = self._observer.show(view, now)
        if self._executor is not None and may_act():
            with self._failures.contained("the log"):
                log_decisions(decisions, snapshot.gangs, number, now)
            with self._metrics.timed("commit", number):
                self._executor.execute(plan, snapshot, now)

    def _decide(self, snapshot: Snapshot) -> tuple[Plan, Floats]:
        watch = CycleTimer(self._configuration.budgets.cycle_time)
        plan = self._planner.decide(snapshot, watch=watch)
        return plan, self._planner.node_gpus(snapshot)

    def _want_owner_kind(self, kind: GroupKind) -> None:
        self._owner_kinds.want(kind)

    def _drop_owner_kind(self, kind: GroupKind) -> None:
        self._owner_kinds.drop(kind)

    def _on_owner_kind(self, kind: GroupKind, *, readable: bool) -> None:
        self._planner.builder.set_owner_kind(kind, readable=readable)
        self._wake.wake()

    def _on_refused(self, kind: Kind[Any], *, refused: bool) -> None:
        self._metrics.kind_refused.labels(kind.permission).set(refused)
        self._on_owner_kind(GroupKind(kind.group, kind.name), readable=not refused)

    def _on_change(self, kind: Kind[Any], old: Any, new: Any) -> None:
        changed = old if new is None else new
        assumed = self._planner.builder.assumed_node(changed.metadata.uid) if kind is PODS else ""
        # The builder sets aside what it cannot process; this is for what it overlooks.
        with self._failures.contained("a change", f"{kind.name} {key_of(changed)}"):
            self._planner.builder.apply(kind.collection_name, old, new)
            if kind is RESOURCE_CLAIMS:
                self._device_holders.apply(old, new)
            if kind is PODS:
                self._gpu_groups.apply(old, new)
            if kind in (QUEUES, KAI_QUEUES) and self._executor is not None:
                log_queue_change(*(each and spec_of_queue(each) for each in (old, new)))
        if not self._is_own_write(new):
            self._wake.see(old, new, assumed)

    def _is_own_write(self, new: Any) -> bool:
        """Whether the change is a step of a running transaction, which the builder assumes."""
        return (
            new is not None
            and self._executor is not None
            and self._executor.committer.is_committing(new.metadata.uid)
        )
