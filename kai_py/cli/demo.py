"""``kai-py demo``: the scheduler on a cluster in this process.

Exit codes: 0 when everything expected was shown, 1 when something is missing, 130 when interrupted
before the end (0 with ``--serve``, which only an interrupt ends).
"""

import asyncio
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace
from rich.console import Console

from kai_py.cli.connection import address_of
from kai_py.cli.errors import OTHER_ADDRESS, CommandError, ExitCode
from kai_py.cli.output import write_report
from kai_py.demo.events import DemoSummary
from kai_py.demo.live import LiveView, ScreenshotWriter, print_summary
from kai_py.demo.rendering import JsonPrinter, PlainPrinter
from kai_py.demo.run import DemoOptions, run_demo
from kai_py.demo.script import Script, script_for
from kai_py.observe.http import CannotServeError


def command(
    *,
    speed: Annotated[float, typer.Option(min=0.1, max=100.0, help="Speed-up factor.")] = 1.0,
    nodes: Annotated[
        int, typer.Option(help="Number of H100 nodes with a DRA driver, 6 to 64.")
    ] = 8,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End every Job, then exit.")
    ] = False,
    serve: Annotated[
        bool,
        typer.Option("--serve", help="Print a kubeconfig and keep cluster and scheduler running."),
    ] = False,
    http: Annotated[
        str | None, typer.Option(help="HOST:PORT to serve the dashboard on; port 0: a free one.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print events as JSON, one object per line.")
    ] = False,
    svg: Annotated[
        Path | None,
        typer.Option(help="Save a picture of the fullest screen; print the plain log."),
    ] = None,
) -> None:
    """Show gangs, queues and preemption on an embedded cluster, in under a minute."""
    try:
        script = script_for(nodes)
    except ValueError as error:
        raise CommandError(f"--nodes: {error}") from error
    if svg is not None:
        write_report(svg, "")  # fails now if it cannot be written, not after the demo
    with _kubeconfig(wanted=serve) as kubeconfig:
        run_options = DemoOptions(
            speed=speed,
            until_idle=until_idle,
            keep=serve,
            kubeconfig=kubeconfig,
            http=address_of(http) if http is not None else None,
            announce=_announce,
        )
        try:
            summary, interrupted = asyncio.run(_run(script, run_options, json=json, svg=svg))
        except* CannotServeError as errors:
            raise CommandError(str(errors.exceptions[0]), hint=OTHER_ADDRESS) from None
    if interrupted and not serve:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if summary.missing and not interrupted:
        raise typer.Exit(ExitCode.FOUND)


async def _run(
    script: Script, options: DemoOptions, *, json: bool, svg: Path | None
) -> tuple[DemoSummary, bool]:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signal_number, stop.set)
    console = Console()
    if console.is_terminal and not console.is_dumb_terminal and not json and svg is None:
        view = LiveView(console, speed=options.speed, kubeconfig=options.kubeconfig)
        options = replace(options, announce=view.announce)
        summary = await run_demo(script, options, view, stop=stop, watch=view.watch)
        print_summary(console, summary)
        return summary, stop.is_set()
    if options.kubeconfig is not None:
        print(f"kubeconfig: {options.kubeconfig}", file=sys.stderr, flush=True)
    printer = JsonPrinter(sys.stdout) if json else PlainPrinter(sys.stdout)
    if svg is not None:
        writer = ScreenshotWriter(svg, printer, speed=options.speed)
        summary = await run_demo(script, options, writer, stop=stop, watch=writer.watch)
    else:
        summary = await run_demo(script, options, printer, stop=stop)
    return summary, stop.is_set()


def _announce(url: str) -> None:
    print(f"dashboard: {url}", file=sys.stderr, flush=True)


@contextmanager
def _kubeconfig(*, wanted: bool) -> Iterator[Path | None]:
    if not wanted:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="kai-py-demo-") as directory:
        yield Path(directory) / "kubeconfig"
