"""``kai-py decisions``: the decisions of a running scheduler, as JSON lines or sentences.

Requested from its HTTP server, at a URL or through the API server. The history is in memory: it
begins with the process and has the last 5,000. Decisions are numbered; a gap in the numbers means
that some are no longer kept, and numbers that restart that another process schedules now.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Annotated

import msgspec
import typer
from msgspec.structs import replace

from kai_py.api.texts import printable_json
from kai_py.api.times import DurationError, parse_duration
from kai_py.cli.connection import Context, Kubeconfig
from kai_py.cli.errors import CommandError, ExitCode, UnreachableError
from kai_py.cli.naming import context_namespace
from kai_py.cli.output import ReportFile, say, write_report
from kai_py.cli.scheduler_http import (
    DEFAULT_SERVICE,
    DEFAULT_URL,
    Link,
    Query,
    SchedulerAddress,
    Service,
    TokenFile,
    decoded,
)
from kai_py.cli.sentences import say_sentence
from kai_py.observe.decision_log import Decision

ID = b"id: "
DATA = b"data: "
DECISION = b"event: decision"
FIRST_PAUSE, MAX_PAUSE = 1.0, 15.0


def command(
    *,
    url: Annotated[
        str,
        typer.Option(
            help=f"The scheduler's HTTP server; otherwise {DEFAULT_URL} if one answers there, or "
            "its Service."
        ),
    ] = "",
    token_file: TokenFile = None,
    service: Service = DEFAULT_SERVICE,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    since: Annotated[
        str,
        typer.Option(
            help="Only decisions after this number, or of a last period such as 10m or 2h."
        ),
    ] = "0",
    last: Annotated[str, typer.Option(help="Same as --since with a period.")] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow new decisions.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON lines on a terminal, too, as in a pipe.")
    ] = False,
    report_file: ReportFile = None,
) -> None:
    """Print decisions: placed, evicted, nominated, pending, deleted.

    With rights in some namespaces only, those about their workloads.
    """
    if last or not since.isdecimal():
        option, text = ("--last", last) if last else ("--since", since)
        query: Query = (("seconds", str(seconds_of(option, text))),)
    else:
        query = (("since", since),)
    if follow and report_file is not None:
        raise CommandError("--report cannot be combined with --follow")

    def ask(address: SchedulerAddress) -> None:
        if report_file is None:
            write = _print_json if json or not sys.stdout.isatty() else _print_sentence
            asyncio.run(_print(address, query, write, follow=follow))
            return
        # Its charts take long to import, and few ask for it.
        from kai_py.report.decisions_page import decisions_page  # noqa: PLC0415

        found = asyncio.run(_read(address, query))
        title = f"Decisions of {address.url or address.service}"
        write_report(report_file, decisions_page(found, title=title))

    try:
        _ask_somewhere(SchedulerAddress(url, token_file, service, kubeconfig, context), ask)
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _ask_somewhere(address: SchedulerAddress, ask: Callable[[SchedulerAddress], None]) -> None:
    """Ask at what was named; else on this machine, and where none answers the Service."""
    if address.url or address.service != DEFAULT_SERVICE:
        ask(address)
        return
    try:
        ask(replace(address, url=DEFAULT_URL))
    except UnreachableError as nothing_here:
        try:
            ask(address)
        except CommandError as error:
            text = f"{nothing_here}; the Service was asked instead: {error}"
            raise CommandError(text, exit_code=ExitCode.CLUSTER) from None


def seconds_of(option: str, text: str) -> int:
    """Whole seconds of a duration that an option was given; raises CommandError."""
    try:
        return round(parse_duration(text))
    except DurationError as error:
        raise CommandError(f"{option}: {error}") from None


async def _read(address: SchedulerAddress, query: Query) -> list[Decision]:
    async with address.connect() as link:
        lines = await _read_decisions(link, address, query)
    return [decoded(line, Decision) for line in lines]


def _print_json(line: bytes) -> None:
    print(printable_json(line.decode()), flush=True)


def _print_sentence(line: bytes) -> None:
    decision = decoded(line, Decision)
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(decision.time))
    what = decision.stage or decision.action
    how = f"{decision.kind.value} ({what})" if what else decision.kind.value
    queue = f", queue {decision.queue}" if decision.queue else ""
    why = f": {decision.message}" if decision.message else ""
    say_sentence(f"{when}  {decision.gang}{queue}: {how}{why}")


async def _print(
    address: SchedulerAddress, query: Query, write: Callable[[bytes], None], *, follow: bool
) -> None:
    async with address.connect() as link:
        start = {name: number for name, number in query if name == "since"}
        found = await _read_decisions(link, address, query)
        for decision in found:
            write(bytes(decision))
            start = {"since": str(decoded(decision, _NumberedDecision).number)}
        if not follow:
            if not found:
                say("no decision was made in this period", err=True)
            return
        pause = FIRST_PAUSE
        while True:
            try:
                async for name, line in _stream_decisions(link, address, start):
                    write(line)
                    start, pause = {"since": name.decode()}, FIRST_PAUSE
            except UnreachableError as error:
                say(f"kai-py: {error}; trying again", err=True)
            await asyncio.sleep(pause)
            pause = min(pause * 2, MAX_PAUSE)


async def _read_decisions(link: Link, address: SchedulerAddress, query: Query) -> list[msgspec.Raw]:
    body = await link.get("/v1/decisions", (*query, *_namespace(address)))
    return decoded(body, list[msgspec.Raw])


def _namespace(address: SchedulerAddress) -> Query:
    """The namespace in question, which is reviewed before others."""
    if address.url:
        return ()
    return (("namespace", context_namespace(address.kubeconfig, address.context)),)


async def _stream_decisions(
    link: Link, address: SchedulerAddress, start: dict[str, str]
) -> AsyncIterator[tuple[bytes, bytes]]:
    """Decisions with the ids of their events, which distinguish processes."""
    name, is_decision = b"", False
    async for line in link.lines("/v1/events", (*start.items(), *_namespace(address))):
        if line.startswith(ID):
            name = line.removeprefix(ID).rstrip()
        if line.startswith(DATA) and is_decision:
            yield name, line.removeprefix(DATA).rstrip()
        is_decision = line.rstrip() == DECISION


class _NumberedDecision(msgspec.Struct):
    number: int
