"""``kai-py decisions``: what a running scheduler decided lately and decides now, as JSON lines.

Asked of its HTTP server, whose history is in memory: it begins with the process and has the last
5,000. Decisions are numbered; a gap in the numbers means that some are no longer kept.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import aiohttp
import msgspec
import typer

from kai_py.api.duration import DurationError, parse_duration
from kai_py.cli.errors import CommandError, ExitCode
from kai_py.observe.http_access import TOKEN_VARIABLE

DATA = b"data: "
DECISION = b"event: decision"
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 15.0
PATIENCE = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=60.0)
"""Of a stream: the server says something every 15 seconds."""


def command(
    *,
    url: Annotated[
        str, typer.Option(help="The scheduler's HTTP server, for example by kubectl port-forward.")
    ] = "http://127.0.0.1:8080",
    token_file: Annotated[
        Path | None, typer.Option(help=f"File with the bearer token; otherwise ${TOKEN_VARIABLE}.")
    ] = None,
    since: Annotated[int, typer.Option(min=0, help="Only decisions after this number.")] = 0,
    last: Annotated[str, typer.Option(help="Only of this time, like 30s, 10m or 2h.")] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as they are made.")] = False,
) -> None:
    """Print decisions as JSON lines: placed, evicted, nominated, waiting, gone."""
    query = {"since": str(since)}
    if last:
        query = {"seconds": str(round(_seconds(last)))}
    try:
        asyncio.run(_print(url.rstrip("/"), _headers(token_file), query, follow=follow))
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except BrokenPipeError:
        sys.stderr.close()
        raise typer.Exit(ExitCode.OK) from None


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except DurationError as error:
        raise CommandError(f"--last: {error}") from None


def _headers(token_file: Path | None) -> dict[str, str]:
    token = os.environ.get(TOKEN_VARIABLE, "")
    if token_file is not None:
        try:
            token = token_file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise CommandError(f"{token_file}: {error.strerror}") from None
    return {"Authorization": f"Bearer {token}"} if token else {}


async def _print(url: str, headers: dict[str, str], query: dict[str, str], *, follow: bool) -> None:
    async with aiohttp.ClientSession(headers=headers, timeout=PATIENCE) as session:
        start = {name: number for name, number in query.items() if name == "since"}
        for kept in await _kept(session, url, query):
            print(bytes(kept).decode(), flush=True)
            start = _after(kept)
        if not follow:
            return
        pause = FIRST_PAUSE
        while True:
            try:
                async for line in _made(session, url, start):
                    print(line.decode(), flush=True)
                    start, pause = _after(line), FIRST_PAUSE
            except (aiohttp.ClientError, TimeoutError) as error:
                print(f"kai-py: {url}: {error}; trying again", file=sys.stderr)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)


async def _kept(
    session: aiohttp.ClientSession, url: str, query: dict[str, str]
) -> list[msgspec.Raw]:
    try:
        async with session.get(f"{url}/v1/decisions", params=query) as response:
            body = await response.read()
            await _check(url, response)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise CommandError(
            f"{url}: {error or 'no answer'}",
            hint="is kai-py run --http there? try kubectl port-forward",
            exit_code=ExitCode.CLUSTER,
        ) from None
    return msgspec.json.decode(body, type=list[msgspec.Raw])


async def _made(
    session: aiohttp.ClientSession, url: str, start: dict[str, str]
) -> AsyncIterator[bytes]:
    async with session.get(f"{url}/v1/events", params=start) as response:
        await _check(url, response)
        is_decision = False
        async for line in response.content:
            if line.startswith(DATA) and is_decision:
                yield line.removeprefix(DATA).rstrip()
            is_decision = line.rstrip() == DECISION


async def _check(url: str, response: aiohttp.ClientResponse) -> None:
    if response.status == 200:
        return
    said = (await response.text()).strip()
    raise CommandError(f"{url}: {response.status}: {said}", exit_code=ExitCode.CLUSTER)


def _after(line: bytes | msgspec.Raw) -> dict[str, str]:
    """Where to go on after a decision; without any, with what is made next."""
    return {"since": str(msgspec.json.decode(line, type=_Numbered).number)}


class _Numbered(msgspec.Struct):
    number: int
