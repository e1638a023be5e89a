"""``kai-py top``: the demo's live screen for any cluster: GPUs, queues, gangs, events.

Everything is read from the API server; shares and reasons are those of cycles that are run on it,
and nothing is written. q and Ctrl-C end it. In a pipe, and with ``--once``, the screen is printed
once.

Ends a live screen on the key q, if standard input is a terminal.

Keys are read one by one and not echoed meanwhile; Ctrl-C stays the interrupt. The terminal's mode
is restored when the block is left.
"""

import asyncio
import logging
import os
import sys
import termios
import time
import tty
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any

import typer
from prometheus_client import CollectorRegistry
from rich.console import Console, RenderableType
from rich.text import Text

from kai_py.cli.connection import (
    ConfigFile,
    Context,
    Kubeconfig,
    cluster_client,
    configuration_from,
)
from kai_py.cli.errors import CommandError, ExitCode
from kai_py.cli.reading import READ_SECONDS, wait_until_read
from kai_py.config import Configuration
from kai_py.demo.events import AnyDemoEvent
from kai_py.demo.observer import Observer
from kai_py.demo.rendering import feed_line
from kai_py.observe.live.builder import LiveClusterBuilder
from kai_py.observe.live.cluster import LiveCluster
from kai_py.observe.live.feed import Feed
from kai_py.observe.live.screen import Screen, show
from kai_py.observe.metrics import Metrics
from kai_py.plan.plan import Plan
from kai_py.scheduler import Scheduler
from kai_py.watch.client import Client
from kai_py.watch.kinds import NODES

QUIT_KEYS = b"qQ"


@contextmanager
def quit_key() -> Iterator[asyncio.Event]:
    """Yield an event that is set when q is pressed; never if standard input is not a terminal."""
    pressed = asyncio.Event()
    if not sys.stdin.isatty():
        yield pressed
        return
    terminal = sys.stdin.fileno()

    def read() -> None:
        if any(key in QUIT_KEYS for key in os.read(terminal, 64)):
            pressed.set()

    before = termios.tcgetattr(terminal)
    loop = asyncio.get_running_loop()
    tty.setcbreak(terminal)
    loop.add_reader(terminal, read)
    try:
        yield pressed
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


PIPE_SIZE = (128, 34)


def command(
    *,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    config: ConfigFile = None,
    once: Annotated[bool, typer.Option("--once", help="Print the screen once.")] = False,
) -> None:
    """Watch GPUs, queues and gangs of a cluster."""
    configuration = configuration_from(config)
    logging.disable(logging.WARNING)  # a log line would tear the screen
    try:
        asyncio.run(_run(kubeconfig, context, configuration, once=once))
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.OK) from None
    finally:
        logging.disable(logging.NOTSET)


async def _run(kubeconfig: str, context: str, configuration: Configuration, *, once: bool) -> None:
    console = Console()
    async with (
        cluster_client(kubeconfig, context) as client,
        _watching(client, configuration) as top,
    ):
        if once or not console.is_terminal:
            width, height = console.size if console.is_terminal else PIPE_SIZE
            console = Console(width=width, height=height)
            console.print(top.draw(console, width, height), height=height)
            return
        screen = Screen(top.feed, console)
        with quit_key() as quitting:
            drawing = asyncio.create_task(show(console, screen, top.live_cluster, top.headline))
            waiting = asyncio.create_task(quitting.wait())
            await _until_first_ends(drawing, waiting)


async def _until_first_ends(*tasks: asyncio.Task[Any]) -> None:
    """Wait until one of ``tasks`` ends, and cancel the others; raises what it raised."""
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()


class Top:
    """The observed cluster, and its events since the start."""

    def __init__(self, client: Client) -> None:
        self.feed = Feed()
        self.planned = asyncio.Event()
        self.observer = Observer(client, self._on_event, self._clock)
        self._began = time.monotonic()
        self._builder = LiveClusterBuilder(self.observer.mirror, self.observer.owners)

    def note_plan(self, plan: Plan) -> None:
        """Take over shares and reasons of a plan, whose decisions are not carried out."""
        self.observer.plan = plan
        self.planned.set()

    def draw(self, console: Console, width: int, height: int) -> RenderableType:
        """The screen now."""
        screen = Screen(self.feed, console)
        return screen.draw(self.live_cluster(), self.headline(), width=width, height=height)

    def live_cluster(self) -> LiveCluster:
        """The live view now."""
        return self._builder.build(self.observer.plan)

    def headline(self) -> Sequence[Text]:
        """The line above all panels."""
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append(" kai-py top ", style="bold reverse")
        nodes = len(self.observer.mirror.objects(NODES))
        waiting = len(self.observer.plan.unplaced)
        line.append(f"  {nodes} nodes  {waiting} gangs pending", style="bold")
        return (line,)

    def _clock(self) -> float:
        return time.monotonic() - self._began

    def _on_event(self, event: AnyDemoEvent) -> None:
        line = feed_line(event) if self.observer.mirror.synced else None
        if line is not None:
            self.feed.add(line)


@asynccontextmanager
async def _watching(client: Client, configuration: Configuration) -> AsyncIterator[Top]:
    """Keep ``Top`` up to date during the block."""
    await client.read("/apis", kind="Discovery")
    top = Top(client)
    metrics = Metrics(CollectorRegistry())
    scheduler = Scheduler(
        client, configuration, metrics, identity="kai-py-top", dry_run=True, on_plan=top.note_plan
    )
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(top.observer.mirror.run())
        planning = group.create_task(scheduler.run())
        try:
            async with asyncio.timeout(READ_SECONDS):
                await wait_until_read(top.observer.mirror)
                await top.planned.wait()
            yield top
        except TimeoutError:
            raise CommandError(
                f"reading the cluster timed out after {READ_SECONDS:.0f} s",
                exit_code=ExitCode.CLUSTER,
            ) from None
        finally:
            scheduler.stop()
            await asyncio.wait((planning,))
            watching.cancel()
