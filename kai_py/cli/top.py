"""``kai-py top``: the demo's live screen for any cluster: GPUs, queues, gangs, events.

Everything is read from the API server; shares and reasons are those of cycles that are run on it.
Where the rights for that are missing, the scheduler returns what the user may see. Nothing is
written except evictions that the user confirmed. q and Ctrl-C end it. In a pipe, on a dumb terminal
and with ``--once``, the screen is printed once.

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
from rich.console import Console
from rich.text import Text

from kai_py.api.texts import count_of
from kai_py.cli.connection import ClusterOptions, cluster_client
from kai_py.cli.errors import CommandError, ExitCode, RightsMissingError
from kai_py.cli.options import takes_groups
from kai_py.cli.reading import READ_SECONDS, check_rights, wait_until_read
from kai_py.cli.scheduler_http import SchedulerAddress, SchedulerOptions, with_both_reasons
from kai_py.cli.top_controls import TopSession, TopSource, keys_in
from kai_py.cli.top_through_scheduler import watching_scheduler
from kai_py.config import Configuration
from kai_py.demo.events import AnyDemoEvent
from kai_py.demo.observer import Observer, observed
from kai_py.demo.rendering import feed_line
from kai_py.observe.explanation import Explainer, Explanation
from kai_py.observe.live.builder import LiveClusterBuilder
from kai_py.observe.live.cluster import LiveCluster
from kai_py.observe.live.feed import Feed
from kai_py.observe.live.screen import Screen, show
from kai_py.observe.metrics import Metrics
from kai_py.plan.plan import Plan
from kai_py.scheduler import Scheduler
from kai_py.watch.client import Client
from kai_py.watch.kinds import NODES


@contextmanager
def pressed_keys() -> Iterator[asyncio.Queue[str]]:
    """Yield the keys as they are pressed; none if standard input is not a terminal."""
    keys: asyncio.Queue[str] = asyncio.Queue()
    if not sys.stdin.isatty():
        yield keys
        return
    terminal = sys.stdin.fileno()

    def read() -> None:
        for key in keys_in(os.read(terminal, 64)):
            keys.put_nowait(key)

    before = termios.tcgetattr(terminal)
    loop = asyncio.get_running_loop()
    tty.setcbreak(terminal)
    loop.add_reader(terminal, read)
    try:
        yield keys
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


PIPE_SIZE = (128, 34)


@takes_groups
def command(
    *,
    cluster: ClusterOptions,
    scheduler: SchedulerOptions,
    once: Annotated[bool, typer.Option("--once", help="Print the screen once.")] = False,
) -> None:
    """Watch GPUs, queues and gangs of a cluster.

    Keys: / filters, s sorts, arrows select a gang, d describes it, x evicts its pods after a
    question, with your own rights, q quits. Without the right to read the cluster, the scheduler
    returns what you may see.
    """
    configuration = cluster.configuration()
    logging.disable(logging.WARNING)  # a log line would tear the screen
    try:
        asyncio.run(_run(scheduler.address(cluster), configuration, once=once))
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.OK) from None
    finally:
        logging.disable(logging.NOTSET)


async def _run(address: SchedulerAddress, configuration: Configuration, *, once: bool) -> None:
    async with cluster_client(address.kubeconfig, address.context) as client:
        missing = None if address.url else await _missing_rights(client)
        if not address.url and missing is None:
            async with _watching(client, configuration) as top:
                await _show(top, client, once=once)
            return
        try:
            async with watching_scheduler(address) as view:
                await _show(view, client, once=once)
        except CommandError as error:
            if missing is None:
                raise
            raise with_both_reasons(missing, error) from None


async def _missing_rights(client: Client) -> RightsMissingError | None:
    await client.read("/apis", kind="Discovery")
    try:
        await check_rights(client)
    except RightsMissingError as error:
        return error
    return None


async def _show(top: TopSource, client: Client, *, once: bool) -> None:
    console = Console()
    if once or not console.is_terminal or console.is_dumb_terminal:
        width, height = console.size if console.is_terminal else PIPE_SIZE
        console = Console(width=width, height=height)
        screen = Screen(top.feed, console)
        drawn = screen.draw(top.live_cluster(), top.headline(), width=width, height=height)
        console.print(drawn, height=height)
        return
    session = TopSession(top, client)
    with pressed_keys() as keys:
        drawing = asyncio.create_task(
            show(console, Screen(top.feed, console), session.cluster, top.headline, session.state)
        )
        waiting = asyncio.create_task(session.follow(keys))
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

    def __init__(self, client: Client, scheduler: Scheduler) -> None:
        """``scheduler``: plans without carrying anything out, and does not run yet."""
        self.feed = Feed()
        self.planned = asyncio.Event()
        self.observer = Observer(client, scheduler, self._on_event, self._clock)
        self._began = time.monotonic()
        self._builder = LiveClusterBuilder(scheduler.mirror, scheduler.gang_of)
        self._scheduler = scheduler

    def note_plan(self, plan: Plan) -> None:
        """Take over shares and reasons of a plan, whose decisions are not carried out."""
        self.observer.plan = plan
        self.planned.set()

    def live_cluster(self) -> LiveCluster:
        """The live view now."""
        return self._builder.build(self.observer.plan)

    def headline(self) -> Sequence[Text]:
        """The line above all panels."""
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append(" kai-py top ", style="bold reverse")
        nodes = count_of(len(self.observer.mirror.objects(NODES)), "node")
        waiting = count_of(len(self.observer.plan.unplaced), "gang")
        line.append(f"  {nodes}  {waiting} pending", style="bold")
        return (line,)

    async def explain(self, gang: str) -> Explanation | None:
        """What is known of a gang."""
        view = self._scheduler.last_view
        return Explainer(view.snapshot, view.plan).explain(gang) if view is not None else None

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

    def note_plan(plan: Plan) -> None:
        top.note_plan(plan)

    scheduler = Scheduler(
        client,
        configuration,
        Metrics(CollectorRegistry()),
        identity="kai-py-top",
        dry_run=True,
        on_plan=note_plan,
    )
    top = Top(client, scheduler)
    async with observed(scheduler, top.observer):
        try:
            async with asyncio.timeout(READ_SECONDS):
                await wait_until_read(scheduler.mirror)
                await top.planned.wait()
            yield top
        except TimeoutError:
            raise CommandError(
                f"reading the cluster timed out after {READ_SECONDS:.0f} s",
                exit_code=ExitCode.CLUSTER,
            ) from None
