"""Requests to a running scheduler over HTTP."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import aiohttp
import typer

from kai_py.cli.errors import CommandError, ExitCode
from kai_py.observe.http_access import TOKEN_VARIABLE

DEFAULT_URL = "http://127.0.0.1:8080"
CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
"""For streams too: the server sends something every 15 seconds."""

TokenFile = Annotated[
    Path | None, typer.Option(help=f"File with the bearer token; otherwise ${TOKEN_VARIABLE}.")
]


def session(
    token_file: Path | None, *, read_seconds: float = READ_SECONDS
) -> aiohttp.ClientSession:
    """A session with the bearer token, if there is one; raises CommandError.

    ``read_seconds``: the longest silence of the server.
    """
    token = os.environ.get(TOKEN_VARIABLE, "")
    if token_file is not None:
        try:
            token = token_file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise CommandError(f"{token_file}: {error.strerror}") from None
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    timeout = aiohttp.ClientTimeout(
        total=None, sock_connect=CONNECT_SECONDS, sock_read=read_seconds
    )
    return aiohttp.ClientSession(headers=headers, timeout=timeout)


async def get(http: aiohttp.ClientSession, url: str, path: str, query: Mapping[str, str]) -> bytes:
    """The body of one answer; raises CommandError."""
    try:
        async with http.get(f"{url.rstrip('/')}{path}", params=query) as response:
            body = await response.read()
            await raise_for_status(url, response)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise CommandError(
            f"{url}: {error or 'no response'}",
            hint="is kai-py run --http running? try kubectl port-forward",
            exit_code=ExitCode.CLUSTER,
        ) from None
    return body


async def raise_for_status(url: str, response: aiohttp.ClientResponse) -> None:
    """Raise CommandError unless the status is 200."""
    if response.status != 200:
        text = (await response.text()).strip()
        raise CommandError(f"{url}: {response.status}: {text}", exit_code=ExitCode.CLUSTER)
