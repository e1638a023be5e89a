"""One run of the demo, from the empty cluster to the last line.

Everything that happens is told to the story and then to the audience (a printer or a live view), in
one order; the story is what the script waits for and what the verdict is drawn from.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kai_py.config import Configuration
from kai_py.demo.driver import ScriptDriver
from kai_py.demo.events import AnyDemoEvent, DemoSummary, LogLine
from kai_py.demo.fixture import demo_cluster, running_scheduler
from kai_py.demo.observer import Observer
from kai_py.demo.script import Script
from kai_py.demo.verification import Verification
from kai_py.observe.http import serve
from kai_py.observe.http_access import HttpAccess
from kai_py.scheduler import Scheduler
from kai_py.simulate.advisor import with_advisor
from kai_py.watch.client import Client, connect
from kai_py.watch.credentials import Anonymous
from kai_py.watch.kinds import PODS

IDLE_POLL_SECONDS = 0.5

EventListener = Callable[[AnyDemoEvent], None]
Task = Coroutine[Any, Any, None]


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """How to play.

    ``until_idle`` ends every Job and waits for it; ``kubeconfig`` is written once the cluster
    answers; with ``keep`` everything goes on until it is stopped. ``http`` is where the dashboard
    is served, at an address that is announced.
    """

    speed: float = 1.0
    until_idle: bool = False
    keep: bool = False
    kubeconfig: Path | None = None
    http: tuple[str, int] | None = None
    announce: Callable[[str], None] = print


class DemoRun:
    """The running demo, as far as an audience may look at it."""

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
        """Tell nothing any more: what happens while the stage is cleared is not of the story."""
        self._is_over = True

    def publish(self, event: AnyDemoEvent) -> None:
        """Tell story and audience, until it is over."""
        if self._is_over:
            return
        self.verification.apply(event)
        self._listener(event)
        self.changed.set()


async def watch_nothing(_run: DemoRun, _observer: Observer) -> None:
    """Watch nothing: what is told is enough."""


async def run_demo(
    script: Script,
    options: DemoOptions,
    listener: EventListener,
    *,
    stop: asyncio.Event,
    watch: Callable[[DemoRun, Observer], Task] = watch_nothing,
) -> DemoSummary:
    """Play the script until it is over or ``stop`` is set; ``watch`` looks on meanwhile."""
    show = DemoRun(script, listener)
    with _publish_warnings(show):
        async with (
            demo_cluster(script, speed=options.speed) as cluster,
            connect(Anonymous(cluster.url)) as client,
            _observing(client, show) as observer,
            running_scheduler(cluster, observer.note_plan) as scheduler,
            _serving(scheduler, client, options),
            _background(watch(show, observer)),
        ):
            if options.kubeconfig is not None:
                cluster.write_kubeconfig(options.kubeconfig)
            await _run_until(
                stop, _run_script(_script_driver(client, show, options), observer, script, options)
            )
            told = show.verification.summary(script.expectations, show.clock())
            show.publish(told)
            if options.keep:
                await stop.wait()
            show.stop_publishing()
    return told


def _script_driver(client: Client, run: DemoRun, options: DemoOptions) -> ScriptDriver:
    return ScriptDriver(
        client,
        speed=options.speed,
        publish=run.publish,
        clock=run.clock,
        has_seen=run.verification.has_reached,
        changed=run.changed,
    )


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
async def _observing(client: Client, run: DemoRun) -> AsyncIterator[Observer]:
    observer = Observer(client, run.publish, run.clock)
    async with _background(observer.mirror.run()):
        await observer.mirror.wait_synced()
        yield observer


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
            named = f"[{host}]" if ":" in host else host
            options.announce(f"http://{named}:{port}/")
            yield


@asynccontextmanager
async def _background(work: Task) -> AsyncIterator[None]:
    """Do ``work`` during the block; if it fails, so does the block."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        try:
            yield
        finally:
            task.cancel()


async def _run_until(stop: asyncio.Event, work: Task) -> None:
    """Do ``work``, or as much of it as ``stop`` leaves time for."""
    task = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if task.done():
        await task
    task.cancel()


@contextmanager
def _publish_warnings(run: DemoRun) -> Iterator[None]:
    """Tell the log's warnings instead of printing them."""
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
