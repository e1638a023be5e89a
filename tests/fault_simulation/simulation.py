"""Runs a schedule: cluster, network, replicas, faults and the auditor on one virtual clock."""

import contextlib
import gc
import hashlib
import logging
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from unittest import mock

from prometheus_client import CollectorRegistry

from kai_py import scheduler
from kai_py.commit import autoscalers, provisioner
from kai_py.commit.settings import CommitSettings
from kai_py.config import BudgetsConfig, Configuration, LeaderElectionConfig
from kai_py.embedded.clock import SIMULATION_START
from kai_py.embedded.documents import name_of, namespace_of
from kai_py.embedded.resources import NODES
from kai_py.observe import auditor, kept_history, metrics
from kai_py.observe.metrics import Metrics
from kai_py.scheduler import Scheduler
from kai_py.watch import mirror
from kai_py.watch.client import Client
from kai_py.watch.machine import Machine
from tests.fault_simulation.auditor import AUDITED, UNAUDITED, Auditor
from tests.fault_simulation.loop import Process, SimulatedLoop
from tests.fault_simulation.network import Network
from tests.fault_simulation.objects import cluster_objects, work_objects
from tests.fault_simulation.schedule import HOUR, Effect, Fault, Schedule, Work
from tests.fault_simulation.server import Server
from tests.support.records import replace

RESTART_SECONDS = 5.0
AUDIT_SECONDS = 30.0
"""The auditor looks after every change of a pod or claim; so often, if what it saw may not last."""
CLOSE_AUDIT_SECONDS = 400.0
"""The auditor of the product looks whenever so much time has passed without faults."""
DRAIN_SECONDS = 4 * HOUR
"""After the last fault all work must be done within this time."""
KEPT_LINES = 400
RARER = (
    (metrics, "MONITOR_SECONDS", 900.0),
    (auditor, "INTERVAL", 300.0),
    (mirror, "DISCOVERY_SECONDS", 900.0),
    (autoscalers, "PAUSE", 15.0),
    (provisioner, "RESYNC_SECONDS", 60.0),
    (kept_history, "SAVE_SHARES_SECONDS", 300.0),
)
"""What only measures, or finds nothing here most of the time, would be most of all steps."""
STARTS_PER_COLLECTION = 10
"""Garbage is collected after so many starts of replicas: most of it is what these leave behind."""
BUDGETS = BudgetsConfig(victims=16, victims_per_gang=6)
"""Faults are looked for, not the best victims: searches would be most of a busy hour."""
GPU_SECONDS = 30.0
"""No GPUs are shared, so their upkeep finds nothing."""


@dataclass
class Outcome:
    """What a simulation came to."""

    findings: tuple[str, ...]
    at: float
    """Simulated seconds."""
    trace: str
    """Hash of everything that happened."""
    counts: dict[str, int] = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    """The last of what happened."""


class Simulation:
    """One run of one schedule."""

    def __init__(self, schedule: Schedule) -> None:
        settings = schedule.settings
        self.schedule = schedule
        self.findings: list[str] = []
        self.counts: dict[str, int] = {}
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._hash = hashlib.sha256()
        self.loop = SimulatedLoop(
            random.Random(f"loop/{settings.seed}"), shuffled=settings.shuffled
        )
        self.server = Server(self.loop, settings.seed)
        self.auditor = Auditor(self.server.api, settings)
        self.network = Network(
            self.loop,
            self.server,
            random.Random(f"network/{settings.seed}"),
            settings.latency,
            self.trace,
        )
        self.network.on_call = self._begin_after
        self._waiting: dict[str, list[Fault]] = {}
        self._replicas = [Replica(self, number) for number in range(settings.replicas)]
        self._calm_seconds, self._calm_since = 0.0, 0.0
        self._broken = 0
        self._looked_at = 0.0

    def run(self) -> Outcome:
        """Run to the end, or to the first finding."""
        loop, settings = self.loop, self.schedule.settings
        for document in cluster_objects(settings):
            self.server.create(document)
        self.server.store.subscribe(self._on_change)
        loop.after_step = self._audit
        for work in self.schedule.load:
            loop.call_later(work.at, self._submit, work)
        for fault in self.schedule.faults:
            loop.call_later(fault.at, self._meet, fault)
        for replica in self._replicas:
            replica.start()
        loop.call_later(AUDIT_SECONDS, self._audit_again)
        end = settings.hours * HOUR
        loop.run_until(end)
        while not self.findings and loop.time() < end + DRAIN_SECONDS and self.auditor.remains():
            loop.run_until(loop.time() + 60.0)
        if not self.findings:
            self._find(self.auditor.remains())
        loop.close()
        return Outcome(
            tuple(self.findings),
            loop.time(),
            self._hash.hexdigest(),
            self.counts,
            tuple(self.lines),
        )

    def trace(self, what: str, *details: str) -> None:
        """Record what happened."""
        line = f"{self.loop.time():.6f} {what} {' '.join(details)}"
        self._hash.update(line.encode())
        self.lines.append(line)
        self.counts[what] = self.counts.get(what, 0) + 1

    def fail(self, finding: str) -> None:
        """Record that something is wrong, and stop."""
        self._find([finding])

    def _find(self, findings: list[str]) -> None:
        if findings:
            self.findings += findings
            self.loop.stop()

    def _submit(self, work: Work) -> None:
        self.auditor.work[work.name] = work
        for document in work_objects(work):
            self.server.create(document)

    def _on_change(self, change) -> None:
        document = change.object
        name = f"{namespace_of(document)}/{name_of(document)}"
        self.trace("change", str(change.revision), change.type.value, change.storage, name)
        if change.storage not in UNAUDITED:
            self.auditor.revision = change.revision
        if change.storage in AUDITED:
            self.loop.dirty = True

    def _audit(self) -> None:
        if self.loop.failures:
            self._find(self.loop.failures)
        self._find(self.auditor.look(self._calm()))

    def _audit_again(self) -> None:
        if self.auditor.waits_for_time:
            self._audit()
        # In calm times only: it rests on more than instants, and faults last longer than its grace.
        if self._calm() - self._looked_at > CLOSE_AUDIT_SECONDS:
            self._looked_at = self._calm()
            self._find(self.auditor.look_closely())
        self.loop.call_later(AUDIT_SECONDS, self._audit_again)

    def _calm(self) -> float:
        running = 0.0 if self._broken else self.loop.time() - self._calm_since
        return self._calm_seconds + running

    def _meet(self, fault: Fault) -> None:
        if fault.after:
            self._waiting.setdefault(fault.after, []).append(fault)
        else:
            self._begin(fault)

    def _begin_after(self, verb: str, kind: str) -> None:
        if not self._waiting:
            return
        for fault in self._waiting.pop(f"{verb} {kind}", ()):
            # The call that triggers it is hit as well, unless the server goes away: it arrives.
            if fault.effect in (Effect.OUTAGE, Effect.KILL, Effect.FREEZE, Effect.COMPACTION):
                wait = 3.0 * self.schedule.settings.latency
                self.loop.call_later(wait, self._begin, fault, context=self.server.process.context)
            else:
                self._begin(fault)

    def _begin(self, fault: Fault) -> None:
        self.trace("fault", fault.effect, fault.process, fault.verb, fault.kind)
        self._calm_seconds = self._calm()
        self._broken += 1
        self.network.faults.begin(fault)
        self._act(fault)
        context = self.server.process.context
        self.loop.call_later(max(fault.seconds, RESTART_SECONDS), self._end, fault, context=context)

    def _act(self, fault: Fault) -> None:
        match fault.effect:
            case Effect.OUTAGE:
                self.network.cut(fault)
            case Effect.COMPACTION:
                self.server.store.compact()
            case Effect.CUT_WATCH | Effect.TEAR_WATCH | Effect.EXPIRE_WATCH:
                self.network.cut(fault)
            case Effect.KILL:
                self._kill(fault.process, fault.seconds)
            case Effect.STOP:
                self._replica(fault.process).stop()
            case Effect.FREEZE:
                self.loop.freeze(self._process(fault.process))
            case Effect.CORDON:
                self._set_cordon(fault.node, on=True)

    def _end(self, fault: Fault) -> None:
        self._broken -= 1
        self._calm_since = self.loop.time()
        self.network.faults.end(fault)
        if fault.effect is Effect.FREEZE:
            self.loop.thaw(self._process(fault.process))
        if fault.effect is Effect.CORDON:
            self._set_cordon(fault.node, on=False)
        self.network.catch_up()

    def _kill(self, name: str, seconds: float) -> None:
        server = self.server
        if name not in server.parts:
            self._replica(name).kill(restart=seconds)
        elif not server.parts[name].dead:
            server.kill_part(name)
            context = server.process.context
            self.loop.call_later(seconds, server.start_part, name, context=context)

    def _set_cordon(self, node: str, *, on: bool) -> None:
        def change(document):
            return {**document, "spec": {**document["spec"], "unschedulable": on}}

        self.server.api.edit(NODES, node, "", change)

    def _replica(self, name: str) -> "Replica":
        return self._replicas[int(name.removeprefix("replica-"))]

    def _process(self, name: str) -> Process:
        return self.server.parts.get(name) or self._replica(name).process


class Replica:
    """One replica of the scheduler: a process that is started again when it has ended."""

    def __init__(self, simulation: Simulation, number: int) -> None:
        self._simulation = simulation
        self._name = f"replica-{number}"
        self._incarnation = 0
        self._scheduler: Scheduler | None = None
        self.process = Process(self._name)

    def start(self) -> None:
        """Start the process."""
        simulation, settings = self._simulation, self._simulation.schedule.settings
        self._incarnation += 1
        identity = f"{self._name}-{self._incarnation}"
        simulation.trace("start", identity)
        if simulation.counts["start"] % STARTS_PER_COLLECTION == 0:
            gc.collect()
        process = self.process = Process(self._name)
        machine = Machine(
            now=lambda: SIMULATION_START + simulation.loop.time(),
            boot_time=simulation.loop.time,
            chance=random.Random(f"{identity}/{settings.seed}"),
            exit_process=lambda: self.kill(restart=RESTART_SECONDS),
        )
        client = Client(simulation.network.link(process), machine)
        task = simulation.loop.start(process, self._run(client, identity))
        task.add_done_callback(self._on_end)

    async def _run(self, client: Client, identity: str) -> None:
        configuration = _configuration(self._simulation.schedule)
        metrics = Metrics(CollectorRegistry())
        self._scheduler = Scheduler(client, configuration, metrics, identity=identity)
        await self._scheduler.run()

    def kill(self, restart: float = 0.0) -> None:
        """End the process at once; start it again after ``restart`` seconds, unless 0."""
        if self.process.dead:
            return
        self._simulation.trace("end", self._name)
        self._simulation.loop.kill(self.process)
        self._simulation.network.drop(self.process)
        self._scheduler = None
        if restart:
            self._start_later(restart)

    def stop(self) -> None:
        """Ask the process to finish what it does and to end."""
        if self._scheduler is not None and not self.process.dead:
            self.process.context.run(self._scheduler.stop)

    def _on_end(self, task) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._simulation.fail(f"{self._name} ended with {error!r}")
        self.kill(restart=RESTART_SECONDS)

    def _start_later(self, seconds: float) -> None:
        context = self._simulation.server.process.context
        self._simulation.loop.call_later(seconds, self.start, context=context)


def _configuration(schedule: Schedule) -> Configuration:
    duration, renew, retry = schedule.settings.lease
    return Configuration(
        leader_election=LeaderElectionConfig(duration=duration, renew_deadline=renew, retry=retry),
        budgets=BUDGETS,
    )


def _settings(
    decided: Callable[[Configuration], CommitSettings], configuration: Configuration
) -> CommitSettings:
    return replace(decided(configuration), gpu_interval=GPU_SECONDS)


class _Errors(logging.Handler):
    """An error in the log of a scheduler is a finding: faults are no errors of its own."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(logging.ERROR)
        self._simulation = simulation

    def emit(self, record: logging.LogRecord) -> None:
        self._simulation.fail(f"{record.name}: {self.format(record)}")


def simulate(schedule: Schedule) -> Outcome:
    """Run a schedule; what it changes in this process is put back."""
    simulation = Simulation(schedule)
    errors, logger = _Errors(simulation), logging.getLogger("kai_py")
    level, propagate = logger.level, logger.propagate
    logger.addHandler(errors)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    gc.disable()
    try:
        with contextlib.ExitStack() as rarer:
            for module, name, seconds in RARER:
                rarer.enter_context(mock.patch.object(module, name, seconds))
            rarer.enter_context(mock.patch.object(mirror, "freeze_memory"))
            settings = partial(_settings, scheduler.commit_settings)
            rarer.enter_context(mock.patch.object(scheduler, "commit_settings", settings))
            return simulation.run()
    finally:
        logger.removeHandler(errors)
        logger.setLevel(level)
        logger.propagate = propagate
        gc.enable()
