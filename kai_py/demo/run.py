"""One run of the demo, from the empty cluster to the summary.

Every event is passed to the verification and then to the listener (a printer or a live view), in
one order; the script waits for the verification's milestones, and the summary is drawn from it.

The scheduler is the one that ``kai-py run`` runs, over HTTP on loopback, with its lease; only the
kubelets are simulated.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct
from prometheus_client import CollectorRegistry

from kai_py.api.crd import crds
from kai_py.api.settings import EvictionConfig
from kai_py.config import Configuration, LeaderElectionConfig
from kai_py.demo.events import AnyDemoEvent, DemoSummary, LogLine, StepStarted
from kai_py.demo.observer import Observer, observed
from kai_py.demo.script import GPUS_PER_NODE, MilestoneReached, Script, ScriptStep
from kai_py.demo.verification import Verification
from kai_py.demo.workloads import NAMESPACE, PLUGIN_NODES, job_manifest, setup_manifests
from kai_py.embedded.cluster import EmbeddedCluster
from kai_py.embedded.kubelet import RUN_SECONDS, PodTiming
from kai_py.embedded.nodes import h100_node, h100_slices, nvidia_device_classes
from kai_py.observe.http import serve
from kai_py.observe.http_access import HttpAccess
from kai_py.observe.metrics import Metrics
from kai_py.plan.plan import Plan
from kai_py.scheduler import Scheduler
from kai_py.simulate.advisor import with_advisor
from kai_py.watch.client import Client
from kai_py.watch.credentials import Anonymous
from kai_py.watch.errors import NotFound
from kai_py.watch.http_transport import connect
from kai_py.watch.kinds import JOBS, PODS

RACKS = 2
STEP_TIMEOUT = 20.0
JOB_LABEL = "batch.kubernetes.io/job-name"
PLUGIN_NODE = "plugin-0"
MAX_START_SECONDS = 1.0
MIN_START_SECONDS = 0.3
"""Least seconds until a bound pod runs; with less a client would not see it start."""
LEASE_SECONDS = 30 * 24 * 3600.0
"""The cluster is in this process and ends with it: a lease that is lost because the machine is busy
or asleep would only take the cluster from its user. Another scheduler still sees who leads."""

CONFIGURATION = Configuration(
    # The demo's workloads end within a minute: with patience, none of them would be evicted.
    eviction=EvictionConfig(patience=0.0, settling_time=0.0, evictions_per_day=0),
    leader_election=LeaderElectionConfig(
        duration=LEASE_SECONDS, renew_deadline=LEASE_SECONDS - 3600.0
    ),
)


@asynccontextmanager
async def demo_cluster(script: Script, *, speed: float) -> AsyncIterator[EmbeddedCluster]:
    """A cluster with everything but Jobs; pods start and stop ``speed`` times faster."""
    timing = PodTiming(
        start=max(MAX_START_SECONDS / speed, MIN_START_SECONDS), stop=min(1.0, 1.0 / speed)
    )
    async with EmbeddedCluster(timing=timing) as cluster:
        cluster.create_all(crds().values())
        cluster.create_all(nvidia_device_classes())
        for index in range(script.nodes):
            name = f"h100-{index}"
            rack = f"rack-{index * RACKS // script.nodes}"
            cluster.create(h100_node(name, rack=rack, gpus=GPUS_PER_NODE))
            cluster.create_all(h100_slices(name, gpus=GPUS_PER_NODE))
        last_rack = f"rack-{RACKS - 1}"
        cluster.create(
            h100_node(PLUGIN_NODE, rack=last_rack, device_plugin=True, labels=PLUGIN_NODES)
        )
        cluster.create_all(setup_manifests(script.queues, script.priorities, script.workloads))
        yield cluster


@asynccontextmanager
async def running_scheduler(
    cluster: EmbeddedCluster, run: "DemoRun"
) -> AsyncIterator[tuple[Scheduler, Observer]]:
    """A scheduler on the cluster, observed from its start."""

    def note_plan(plan: Plan) -> None:
        observer.note_plan(plan)

    metrics = Metrics(CollectorRegistry())
    async with connect(Anonymous(cluster.url), on_call=metrics.count_call) as client:
        scheduler = Scheduler(
            client,
            CONFIGURATION,
            metrics,
            identity="kai-py-demo",
            on_plan=note_plan,
        )
        observer = Observer(client, scheduler, run.publish, run.clock)
        async with observed(scheduler, observer):
            await scheduler.mirror.wait_synced()
            yield scheduler, observer


IDLE_POLL_SECONDS = 0.5

EventListener = Callable[[AnyDemoEvent], None]
Task = Coroutine[Any, Any, None]


class DemoOptions(Struct, frozen=True):
    """Options of a run.

    ``until_idle`` ends every Job and waits for it; ``kubeconfig`` is written once the cluster
    answers; with ``keep`` everything goes on until it is stopped. ``http`` is the address of the
    dashboard, which is passed to ``announce`` as a URL.
    """

    speed: float = 1.0
    until_idle: bool = False
    keep: bool = False
    kubeconfig: Path | None = None
    http: tuple[str, int] | None = None
    announce: Callable[[str], None] = print


class DemoRun:
    """The running demo, as far as a view may look at it."""

    def __init__(self, script: Script, listener: EventListener) -> None:
        self.verification = Verification(script.workloads)
        self.changed = asyncio.Event()
        self._listener = listener
        self._began = asyncio.get_running_loop().time()
        self._is_over = False

    def clock(self) -> float:
        """Seconds since the demo began, to the millisecond."""
        return round(asyncio.get_running_loop().time() - self._began, 3)

    def stop_publishing(self) -> None:
        """Drop all further events: those of the shutdown are not part of the demo."""
        self._is_over = True

    def publish(self, event: AnyDemoEvent) -> None:
        """Pass an event to verification and listener, until publishing is stopped."""
        if self._is_over:
            return
        self.verification.apply(event)
        self._listener(event)
        self.changed.set()


class ScriptDriver:
    """Runs the steps of the script against the API, as users with a client would.

    A step begins once all milestones it depends on have been reached and its pause has passed; if
    they are not reached within ``STEP_TIMEOUT`` seconds, the demo ends there.
    """

    def __init__(self, client: Client, run: DemoRun, *, speed: float) -> None:
        self._client, self._run, self._speed = client, run, speed

    async def run(self, script: Script) -> bool:
        """Run all steps; False when one could not begin."""
        for number, step in enumerate(script.steps, start=1):
            if not await self.wait_for(step.after):
                return False
            await asyncio.sleep(step.pause / self._speed)
            self._run.publish(_step_started(step, number, len(script.steps), self._run.clock()))
            await self._start_step(step)
        return await self.wait_for(_final_milestones(script))

    async def end(self, job: str) -> None:
        """Let the pods of a Job succeed."""
        pods = await self._client.list(
            PODS.at(), namespace=NAMESPACE, label_selector=f"{JOB_LABEL}={job}"
        )
        done = {"metadata": {"annotations": {RUN_SECONDS: "0"}}}
        for pod in pods.items:
            try:
                await self._client.patch(PODS.at(), pod.metadata.name, done, namespace=NAMESPACE)
            except NotFound:
                continue

    async def wait_for(self, wanted: tuple[MilestoneReached, ...]) -> bool:
        """Whether all these milestones are reached in time."""
        try:
            async with asyncio.timeout(STEP_TIMEOUT):
                while not self._run.verification.has_reached(wanted):
                    self._run.changed.clear()
                    await self._run.changed.wait()
        except TimeoutError:
            return False
        return True

    async def _start_step(self, step: ScriptStep) -> None:
        for job in step.end:
            await self.end(job)
        for workload in step.submit:
            manifest = job_manifest(workload)
            await self._client.create(JOBS.at(), manifest, namespace=NAMESPACE)


def _step_started(step: ScriptStep, number: int, of: int, time: float) -> StepStarted:
    return StepStarted(
        time=time,
        number=number,
        total=of,
        title=step.title,
        submitted=tuple(workload.name for workload in step.submit),
        ended=step.end,
    )


def _final_milestones(script: Script) -> tuple[MilestoneReached, ...]:
    return tuple(
        milestone for expectation in script.expectations for milestone in expectation.milestones
    )


async def watch_nothing(_run: DemoRun, _observer: Observer) -> None:
    """Default for ``watch``: do nothing."""


async def run_demo(
    script: Script,
    options: DemoOptions,
    listener: EventListener,
    *,
    stop: asyncio.Event,
    watch: Callable[[DemoRun, Observer], Task] = watch_nothing,
) -> DemoSummary:
    """Run the script until it is over or ``stop`` is set; ``watch`` runs meanwhile."""
    run = DemoRun(script, listener)
    with _publish_warnings(run):
        async with (
            demo_cluster(script, speed=options.speed) as cluster,
            connect(Anonymous(cluster.url)) as client,
            running_scheduler(cluster, run) as (scheduler, observer),
            _serving(scheduler, client, options),
            _background(watch(run, observer)),
        ):
            if options.kubeconfig is not None:
                cluster.write_kubeconfig(options.kubeconfig)
            driver = ScriptDriver(client, run, speed=options.speed)
            await _run_until(stop, _run_script(driver, observer, script, options))
            summary = run.verification.summary(script.expectations, run.clock())
            run.publish(summary)
            if options.keep:
                await stop.wait()
            run.stop_publishing()
    return summary


async def _run_script(
    driver: ScriptDriver, observer: Observer, script: Script, options: DemoOptions
) -> None:
    if not await driver.run(script) or not options.until_idle:
        return
    pods = observer.mirror.objects(PODS)
    while any(pod.status.phase in ("Pending", "Running") for pod in pods.values()):
        for workload in script.workloads:
            await driver.end(workload.name)
        await asyncio.sleep(IDLE_POLL_SECONDS)


@asynccontextmanager
async def _serving(
    scheduler: Scheduler, client: Client, options: DemoOptions
) -> AsyncIterator[None]:
    if options.http is None:
        yield
        return
    host, port = options.http
    with with_advisor(scheduler.probes(), client, Configuration()) as probes:
        async with serve(probes, HttpAccess(host), port) as port:
            bracketed_host = f"[{host}]" if ":" in host else host
            options.announce(f"http://{bracketed_host}:{port}/")
            yield


@asynccontextmanager
async def _background(work: Task) -> AsyncIterator[None]:
    """Run ``work`` during the block; if it fails, so does the block."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        try:
            yield
        finally:
            task.cancel()


async def _run_until(stop: asyncio.Event, work: Task) -> None:
    """Run ``work`` until it ends or ``stop`` is set."""
    task = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    # Raises what the work raised.
    if task.done():
        await task
    task.cancel()


@contextmanager
def _publish_warnings(run: DemoRun) -> Iterator[None]:
    """Publish the log's warnings as events instead of printing them."""
    handler = _LogPublisher(run)
    root = logging.getLogger()
    previous, root.handlers = root.handlers, [handler]
    try:
        yield
    finally:
        root.handlers = previous


class _LogPublisher(logging.Handler):
    def __init__(self, run: DemoRun) -> None:
        super().__init__(logging.WARNING)
        self._run = run

    def emit(self, record: logging.LogRecord) -> None:
        line = LogLine(
            time=self._run.clock(), level=record.levelname.lower(), message=record.getMessage()
        )
        self._run.publish(line)
