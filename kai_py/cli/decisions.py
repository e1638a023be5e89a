"""``kai-py decisions``: the decisions of a running scheduler, as JSON lines or sentences.

Requested from its HTTP server, whose history is in memory: it begins with the process and has the
last 5,000. Decisions are numbered; a gap in the numbers means that some are no longer kept, and
numbers that restart that another process schedules now.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated

import aiohttp
import msgspec
import typer

from kai_py.api.printable import printable_json
from kai_py.api.times import DurationError, parse_duration
from kai_py.cli.errors import CommandError, ExitCode
from kai_py.cli.output import ReportFile, say, write_report
from kai_py.cli.scheduler_http import DEFAULT_URL, TokenFile, get, raise_for_status, session
from kai_py.cli.sentences import say_sentence
from kai_py.observe.decision_log import Decision
from kai_py.report.decisions_page import decisions_page

ID = b"id: "
DATA = b"data: "
DECISION = b"event: decision"
FIRST_PAUSE, MAX_PAUSE = 1.0, 15.0


def command(
    *,
    url: Annotated[
        str, typer.Option(help="The scheduler's HTTP server, for example by kubectl port-forward.")
    ] = DEFAULT_URL,
    token_file: TokenFile = None,
    since: Annotated[
        str,
        typer.Option(
            help="Only decisions after this number, or of this last period: 30s, 10m, 2h."
        ),
    ] = "0",
    last: Annotated[str, typer.Option(help="Same as --since with a period.")] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow new decisions.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="JSON lines on a terminal, too, as in a pipe.")
    ] = False,
    report_file: ReportFile = None,
) -> None:
    """Print decisions: placed, evicted, nominated, pending, deleted."""
    if last or not since.isdecimal():
        option, text = ("--last", last) if last else ("--since", since)
        query = {"seconds": str(seconds_of(option, text))}
    else:
        query = {"since": since}
    if follow and report_file is not None:
        raise CommandError("--report cannot be combined with --follow")
    try:
        if report_file is not None:
            found = asyncio.run(_read(url.rstrip("/"), token_file, query))
            write_report(report_file, decisions_page(found, title=f"Decisions of {url}"))
            return
        write = _print_json if json or not sys.stdout.isatty() else _print_sentence
        asyncio.run(_print(url.rstrip("/"), token_file, query, write, follow=follow))
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except BrokenPipeError:
        # Otherwise the interpreter complains about the closed pipe at exit.
        sys.stderr.close()
        raise typer.Exit(ExitCode.OK) from None


def seconds_of(option: str, text: str) -> int:
    """Whole seconds of a duration that an option was given; raises CommandError."""
    try:
        return round(parse_duration(text))
    except DurationError as error:
        raise CommandError(f"{option}: {error}") from None


async def _read(url: str, token_file: Path | None, query: dict[str, str]) -> list[Decision]:
    async with session(token_file) as http:
        lines = await _read_decisions(http, url, query)
    return [msgspec.json.decode(line, type=Decision) for line in lines]


def _print_json(line: bytes) -> None:
    print(printable_json(line.decode()), flush=True)


def _print_sentence(line: bytes) -> None:
    decision = msgspec.json.decode(line, type=Decision)
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(decision.time))
    what = decision.stage or decision.action
    how = f"{decision.kind.value} ({what})" if what else decision.kind.value
    queue = f", queue {decision.queue}" if decision.queue else ""
    why = f": {decision.message}" if decision.message else ""
    say_sentence(f"{when}  {decision.gang}{queue}: {how}{why}")


async def _print(
    url: str,
    token_file: Path | None,
    query: dict[str, str],
    write: Callable[[bytes], None],
    *,
    follow: bool,
) -> None:
    async with session(token_file) as http:
        start = {name: number for name, number in query.items() if name == "since"}
        for decision in await _read_decisions(http, url, query):
            write(bytes(decision))
            start = _next_start(decision)
        if not follow:
            return
        pause = FIRST_PAUSE
        while True:
            try:
                async for name, line in _stream_decisions(http, url, start):
                    write(line)
                    start, pause = {"since": name.decode()}, FIRST_PAUSE
            except (aiohttp.ClientError, TimeoutError) as error:
                say(f"kai-py: {url}: {error}; trying again", err=True)
            await asyncio.sleep(pause)
            pause = min(pause * 2, MAX_PAUSE)


async def _read_decisions(
    asking: aiohttp.ClientSession, url: str, query: dict[str, str]
) -> list[msgspec.Raw]:
    body = await get(asking, url, "/v1/decisions", query)
    return msgspec.json.decode(body, type=list[msgspec.Raw])


async def _stream_decisions(
    asking: aiohttp.ClientSession, url: str, start: dict[str, str]
) -> AsyncIterator[tuple[bytes, bytes]]:
    """Decisions with the ids of their events, which distinguish processes."""
    async with asking.get(f"{url}/v1/events", params=start) as response:
        await raise_for_status(url, response)
        name, is_decision = b"", False
        async for line in response.content:
            if line.startswith(ID):
                name = line.removeprefix(ID).rstrip()
            if line.startswith(DATA) and is_decision:
                yield name, line.removeprefix(DATA).rstrip()
            is_decision = line.rstrip() == DECISION


def _next_start(line: msgspec.Raw) -> dict[str, str]:
    """The query to continue after a decision."""
    return {"since": str(msgspec.json.decode(line, type=_NumberedDecision).number)}


class _NumberedDecision(msgspec.Struct):
    number: int
