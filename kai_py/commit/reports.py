"""Reports of a plan on objects: statuses of pods, queues and groups, events, requests for nodes.

Alongside the cycles, each writer updates its objects to what the last plan says about them, except
about gangs that are just being created (``PendingReports``).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator

from msgspec import Struct, structs

from kai_py.commit.autoscalers import NodeProtector, ScaleUpTracker
from kai_py.commit.dependencies import ExecutorDependencies, Lookups
from kai_py.commit.event_writer import EventWriter
from kai_py.commit.events import EventRecorder, TokenBucket
from kai_py.commit.namespace_texts import NamespaceTexts
from kai_py.commit.pod_patches import CheckpointRequester, GateRemover
from kai_py.commit.provisioner import Provisioner
from kai_py.commit.retry import ObjectBackoff
from kai_py.commit.statuses.group_conditions import NativeGroupStatusWriter, PodGangStatusWriter
from kai_py.commit.statuses.kai import KaiStatusWriter
from kai_py.commit.statuses.kai_messages import with_kai_messages
from kai_py.commit.statuses.pod import PodStatusWriter, pending_statuses
from kai_py.commit.statuses.queue import QueueStatusWriter
from kai_py.plan.plan import Plan, Stage, Unplaced
from kai_py.plan.session.startups import GANGS_NOT_READY
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.snapshot import Snapshot
from kai_py.watch.kinds import NODES, QUEUES, WatchedQueue

STATUS_DRAIN_SECONDS = 2.0
GATE_CONCURRENCY = 4

NamedTask = tuple[str, Callable[[], Awaitable[None]]]
"""What runs beside the cycles, with its name."""


class PlanReports:
    """The writers of statuses, events, gates and requests for nodes."""

    def __init__(
        self, dependencies: ExecutorDependencies, lookups: Lookups, busy: Callable[[], bool]
    ) -> None:
        """``busy``: whether as many bindings are under way as may be."""
        self._dependencies, self._lookups = dependencies, lookups
        client, mirror = dependencies.client, dependencies.mirror
        settings = dependencies.settings
        self._recorder = EventRecorder(
            client,
            TokenBucket(settings.events_per_second, settings.events_burst),
            reporter=settings.scheduler_name,
            instance=dependencies.identity,
            on_dropped=dependencies.metrics.events_dropped.inc,
            retry=settings.retry,
            busy=busy,
        )
        self._texts = NamespaceTexts()
        self.events = EventWriter(
            self._recorder,
            lookups.queue_reference,
            lookups.unallocated_claims,
            self._texts.readable,
        )
        self._pending = PendingReports(dependencies.wake, settings.message_interval)
        self._pods = PodStatusWriter(
            dependencies.access(settings.status_concurrency),
            lookups.pod,
            message_interval=settings.message_interval,
            on_transition=self.events.report_transition,
            wake=dependencies.wake,
        )
        self._queues = QueueStatusWriter(
            client,
            mirror.served(QUEUES) or QUEUES.at(),
            self._reported_queue,
            interval=settings.queue_status_interval,
            backoff=ObjectBackoff(settings.backoff),
            on_transition=self.events.report_queue,
        )
        self._gates = GateRemover(dependencies.access(GATE_CONCURRENCY), lookups.pod)
        self._checkpoints = CheckpointRequester(
            dependencies.access(GATE_CONCURRENCY), lookups.pod, self.events.report_checkpoint
        )
        self._node_protector = (
            NodeProtector(client, lambda: mirror.objects(NODES), ObjectBackoff(settings.backoff))
            if settings.autoscaling.protect_promised
            else None
        )
        self._native_groups = NativeGroupStatusWriter(client, mirror, settings)
        self._grove_groups = PodGangStatusWriter(client, mirror, settings)
        self._kai = KaiStatusWriter(client, mirror, settings)
        self._provisioner = Provisioner(client, mirror, settings)
        self._scale_ups = ScaleUpTracker(
            settled_after=settings.autoscaling.settled_after,
            max_ineffective=settings.autoscaling.futile_scale_ups,
            wake=dependencies.wake,
        )

    def complete(self, plan: Plan, snapshot: Snapshot, now: float) -> Plan:
        """``plan`` with KAI's messages and the state of scale-ups and ProvisioningRequests.

        Its texts name no workloads of other namespaces than those that they are written in, and no
        queues that are closed to these.
        """
        gangs = snapshot.gangs.values()
        self._texts.update(gangs, snapshot.queues, snapshot.namespaces)
        plan = self._texts.readable_plan(with_kai_messages(plan, gangs, now))
        names = [name for _, name in self._dependencies.mirror.objects(NODES)]
        since_boot = self._dependencies.client.machine.boot_time()
        return self._provisioner.update(
            self._scale_ups.suppress_ineffective(plan, names, since_boot), gangs
        )

    def update(self, plan: Plan, gangs: Collection[Gang]) -> None:
        """Report what ``plan`` says; what fails for one kind of object is contained."""
        settings, contained = self._dependencies.settings, self._dependencies.failures.contained
        now = asyncio.get_running_loop().time()
        pending = self._pending.due(plan, now)
        with contained("statuses of pods"):
            elastic = settings.autoscaling.surplus
            self._pods.update(pending_statuses(pending, elastic_calls_for_nodes=elastic), now)
        self._report_pending(pending)
        with contained("statuses of queues"):
            self._queues.update(plan)
        self._gates.update(plan.admissions)
        self._checkpoints.update(plan.checkpoints)
        if self._node_protector is not None:
            self._node_protector.update(plan.promised_nodes)
        with contained("events"):
            self.events.report_running(plan)
        for each in plan.avoided_devices:
            self._dependencies.assume_cache.avoid_device(each.key, GANGS_NOT_READY, each.seconds)
        with contained("statuses of groups"):
            self._native_groups.update(pending, gangs)
            self._grove_groups.update(pending, gangs)
            if settings.write_kai_statuses:
                self._kai.update(pending, gangs)

    def _report_pending(self, plan: Plan) -> None:
        contained = self._dependencies.failures.contained
        for unplaced in plan.unplaced:
            with contained("events", unplaced.gang):
                self.events.report_pending(unplaced)
        for hold in plan.holds:
            with contained("events", hold.gang):
                self.events.report_hold(hold)
        for problem in plan.problems:
            if problem.object.kind == "Pod":  # it may be bound before the next look
                self.events.report_problem(problem)

    def background(self) -> Iterator[NamedTask]:
        """What runs beside the cycles."""
        for _ in range(self._dependencies.settings.status_concurrency):
            yield "statuses of pods", self._pods.run
        for _ in range(GATE_CONCURRENCY):
            yield "scheduling gates", self._gates.run
            yield "requests for checkpoints", self._checkpoints.run
        yield "statuses of queues", self._queues.run
        yield "statuses of KAI's objects", self._kai.run
        yield "statuses of PodGroups", self._native_groups.run
        yield "statuses of PodGangs", self._grove_groups.run
        yield "ProvisioningRequests", self._provisioner.run
        yield "events", self._recorder.run
        if self._node_protector is not None:
            yield "annotations of nodes", self._node_protector.run

    async def drain(self) -> None:
        """Finish the pending statuses of pods and events, as far as there is time."""
        await self._pods.drain(STATUS_DRAIN_SECONDS)
        await self._recorder.drain(STATUS_DRAIN_SECONDS)

    def _reported_queue(self, name: str) -> WatchedQueue | None:
        """The queue, if this node pool writes its status."""
        found = self._lookups.queue(name)
        reports = found is not None and self._dependencies.settings.reports_on(found.metadata)
        return found if reports else None


BEING_CREATED = frozenset({Stage.BELOW_MIN_MEMBER, Stage.CLAIMS_NOT_READY})
CREATED_WITHIN_SECONDS = 5.0
PODS_PER_SECOND = 10
"""How many pods of one gang are written to per second, on average, while its reason changes."""
MAX_REPORT_INTERVAL = 120.0
"""The longest interval between two reports on a gang of few pods whose reason keeps changing."""


class _Reported(Struct, frozen=True):
    """The last report on a gang: when it was made, and how long some changes have to wait.

    ``stages``: those that were reported since reports last came seldom.
    """

    unplaced: Unplaced
    at: float
    interval: float
    stages: frozenset[Stage]

    def says(self, unplaced: Unplaced) -> bool:
        """Whether it says the same as ``unplaced``."""
        reported = self.unplaced
        return reported.stage is unplaced.stage and reported.message == unplaced.message

    def due(self, unplaced: Unplaced) -> float:
        """When ``unplaced`` may be reported: a new stage at once."""
        return self.at + self.interval if unplaced.stage in self.stages else self.at

    def is_recent(self, now: float) -> bool:
        """Whether another report now would be one of a series."""
        return now < self.at + 2 * self.interval


class PendingReports:
    """Leaves out gangs whose pods or claims have been missing for a moment only.

    Controllers create the pods of a gang one after another, and others create their claims. What is
    missing then is there a moment later, and a warning on every pod of every new gang would hide
    those that matter. A gang that was reported with another reason, above all one that makes
    autoscalers add nodes, is reported at once.

    A report is a write and an event for each pod of the gang. A changed message, as counts change
    while pods are deleted one after another, and a stage that comes back, as beside a node that is
    ready every other second, have to wait for the interval of the gang. It is longer for gangs of
    many pods, and doubles each time that a stage comes back.
    """

    def __init__(self, wake: Callable[[float], None], message_interval: float) -> None:
        """``wake`` requests a cycle in that many seconds."""
        self._wake = wake
        self._message_interval = message_interval
        self._since: dict[str, float] = {}
        self._waiting = frozenset[str]()
        self._reported: dict[str, _Reported] = {}

    def due(self, plan: Plan, now: float) -> Plan:
        """``plan`` with the gangs to report; ``now`` in seconds of a monotonic clock."""
        self._since = {
            each.gang: self._since.get(each.gang, now)
            for each in plan.unplaced
            if each.stage in BEING_CREATED and each.gang not in self._waiting
        }
        delays = {
            gang: since + CREATED_WITHIN_SECONDS - now
            for gang, since in self._since.items()
            if since + CREATED_WITHIN_SECONDS > now
        }
        due = [each for each in plan.unplaced if each.gang not in delays]
        self._waiting = frozenset(each.gang for each in due)
        reports = {each.gang: self._report(each, now) for each in due}
        for each in due:
            if not (report := reports[each.gang]).says(each):
                delays[each.gang] = report.due(each) - now
        earlier = self._reported.items()
        recent = {
            gang: last for gang, last in earlier if gang not in reports and last.is_recent(now)
        }
        self._reported = recent | reports
        if not delays:
            return plan
        self._wake(min(delays.values()))
        return structs.replace(plan, unplaced=tuple(map(self._as_reported, due)))

    def _report(self, unplaced: Unplaced, now: float) -> _Reported:
        """What to report now, which is what was reported last if a change has to wait."""
        last, stage = self._reported.get(unplaced.gang), unplaced.stage
        if last is not None and last.unplaced.owner.uid != unplaced.owner.uid:
            last = None  # A gang that is created again under its name is another one.
        if last is not None and last.says(unplaced):
            return last
        interval = max(self._message_interval, len(unplaced.pods) / PODS_PER_SECOND)
        if last is None or not last.is_recent(now):
            return _Reported(unplaced, now, interval, frozenset((stage,)))
        if now < last.due(unplaced):
            return last
        comes_back = stage is not last.unplaced.stage and stage in last.stages
        longer = 2 * last.interval if comes_back else last.interval
        interval = max(interval, min(longer, MAX_REPORT_INTERVAL))
        return _Reported(unplaced, now, interval, last.stages | {stage})

    def _as_reported(self, unplaced: Unplaced) -> Unplaced:
        reported = self._reported[unplaced.gang].unplaced
        return structs.replace(
            unplaced,
            stage=reported.stage,
            message=reported.message,
            shortage=reported.shortage,
        )
