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
from kai_py.demo.driver import Director
from kai_py.demo.events import AnyHappening, LogLine, Told
from kai_py.demo.fixture import open_stage, scheduling
from kai_py.demo.observer import Observer
from kai_py.demo.script import Script
from kai_py.demo.verification import Story
from kai_py.observe.http import serve
from kai_py.observe.http_access import Access
from kai_py.scheduler import Scheduler
from kai_py.simulate.advisor import advised
from kai_py.watch.client import Client, connect
from kai_py.watch.credentials import Anonymous
from kai_py.watch.kinds import PODS

IDLE_LOOK = 0.5

Audience = Callable[[AnyHappening], None]
Task = Coroutine[Any, Any, None]


@dataclass(frozen=True, slots=True)
class Wishes:
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


class Performance:
    """The running demo, as far as an audience may look at it."""

    def __init__(self, script: Script, audience: Audience) -> None:
        self.story = Story(script.workloads)
        self.changed = asyncio.Event()
        self._audience = audience
        self._began = asyncio.get_running_loop().time()
        self._is_over = False

    def clock(self) -> float:
        """Seconds since the demo began, to the millisecond."""
        return round(asyncio.get_running_loop().time() - self._began, 3)

    def end(self) -> None:
        """Tell nothing any more: what happens while the stage is cleared is not of the story."""
        self._is_over = True

    def tell(self, happening: AnyHappening) -> None:
        """Tell story and audience, until it is over."""
        if self._is_over:
            return
        self.story.apply(happening)
        self._audience(happening)
        self.changed.set()


async def look_away(_performance: Performance, _observer: Observer) -> None:
    """Watch nothing: what is told is enough."""


async def perform(
    script: Script,
    wishes: Wishes,
    audience: Audience,
    *,
    stop: asyncio.Event,
    watch: Callable[[Performance, Observer], Task] = look_away,
) -> Told:
    """Play the script until it is over or ``stop`` is set; ``watch`` looks on meanwhile."""
    show = Performance(script, audience)
    with _warnings_told(show):
        async with (
            open_stage(script, speed=wishes.speed) as cluster,
            connect(Anonymous(cluster.url)) as client,
            _observing(client, show) as observer,
            scheduling(cluster, observer.note_plan) as scheduler,
            _serving(scheduler, client, wishes),
            _beside(watch(show, observer)),
        ):
            if wishes.kubeconfig is not None:
                cluster.write_kubeconfig(wishes.kubeconfig)
            await _until(stop, _play(_director(client, show, wishes), observer, script, wishes))
            told = show.story.told(script.expectations, show.clock())
            show.tell(told)
            if wishes.keep:
                await stop.wait()
            show.end()
    return told


def _director(client: Client, show: Performance, wishes: Wishes) -> Director:
    return Director(
        client,
        speed=wishes.speed,
        tell=show.tell,
        clock=show.clock,
        has_seen=show.story.has_seen,
        changed=show.changed,
    )


async def _play(director: Director, observer: Observer, script: Script, wishes: Wishes) -> None:
    if not await director.play(script) or not wishes.until_idle:
        return
    pods = observer.mirror.objects(PODS)
    while any(pod.status.phase in ("Pending", "Running") for pod in pods.values()):
        for workload in script.workloads:
            await director.end(workload.name)
        await asyncio.sleep(IDLE_LOOK)


@asynccontextmanager
async def _observing(client: Client, show: Performance) -> AsyncIterator[Observer]:
    observer = Observer(client, show.tell, show.clock)
    async with _beside(observer.mirror.run()):
        await observer.mirror.wait_synced()
        yield observer


@asynccontextmanager
async def _serving(scheduler: Scheduler, client: Client, wishes: Wishes) -> AsyncIterator[None]:
    if wishes.http is None:
        yield
        return
    host, port = wishes.http
    with advised(scheduler.probes(), client, Configuration()) as probes:
        async with serve(probes, Access(host), port) as port:
            named = f"[{host}]" if ":" in host else host
            wishes.announce(f"http://{named}:{port}/")
            yield


@asynccontextmanager
async def _beside(work: Task) -> AsyncIterator[None]:
    """Do ``work`` during the block; if it fails, so does the block."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        try:
            yield
        finally:
            task.cancel()


async def _until(stop: asyncio.Event, work: Task) -> None:
    """Do ``work``, or as much of it as ``stop`` leaves time for."""
    task = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if task.done():
        await task
    task.cancel()


@contextmanager
def _warnings_told(show: Performance) -> Iterator[None]:
    """Tell the log's warnings instead of printing them."""
    handler = _LogTeller(show)
    root = logging.getLogger()
    previous, root.handlers = root.handlers, [handler]
    try:
        yield
    finally:
        root.handlers = previous


class _LogTeller(logging.Handler):
    def __init__(self, show: Performance) -> None:
        super().__init__(logging.WARNING)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        line = LogLine(
            time=self._show.clock(), level=record.levelname.lower(), message=record.getMessage()
        )
        self._show.tell(line)
