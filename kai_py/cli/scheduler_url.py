"""Requests to a running scheduler at a URL, through aiohttp.

It is apart from ``scheduler_http.py`` because aiohttp takes long to import, and without ``--url``
no command needs it.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp
from msgspec import Struct

from kai_py.cli.errors import CommandError, ExitCode, UnreachableError, exit_code_of
from kai_py.watch.connections import reason_of
from kai_py.watch.wire import LineSplitter

UNAUTHORIZED = 401
CONNECT_SECONDS = 10.0
Query = tuple[tuple[str, str], ...]


@asynccontextmanager
async def url_link(
    url: str, headers: Mapping[str, str], read_seconds: float, token_hint: str
) -> AsyncIterator["UrlLink"]:
    """Open a link; ``read_seconds``: the longest silence of the server."""
    timeout = aiohttp.ClientTimeout(
        total=None, sock_connect=CONNECT_SECONDS, sock_read=read_seconds
    )
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as http:
        yield UrlLink(http, url, token_hint)


class UrlLink(Struct, frozen=True):
    """The scheduler at ``url``; ``token_hint``: what gives it a token."""

    http: aiohttp.ClientSession
    url: str
    token_hint: str

    async def get(self, path: str, query: Query = ()) -> bytes:
        """The body of one answer; raises CommandError."""
        async with self._answer(path, query) as response:
            return await response.read()

    async def lines(self, path: str, query: Query = ()) -> AsyncIterator[bytes]:
        """The lines of an answer as they come; raises CommandError."""
        splitter = LineSplitter()
        async with self._answer(path, query) as response:
            async for chunk in response.content.iter_any():
                for line in splitter.feed(chunk):
                    yield line

    @asynccontextmanager
    async def _answer(self, path: str, query: Query) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with self.http.get(f"{self.url.rstrip('/')}{path}", params=query) as response:
                if response.status != 200:
                    text, code = (await response.text()).strip(), exit_code_of(response.status)
                    problem = f"{self.url}: {response.status}: {text}"
                    hint = self.token_hint if response.status == UNAUTHORIZED else ""
                    raise CommandError(problem, hint=hint, exit_code=code)
                yield response
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _unreachable(self.url, error) from None


def _unreachable(url: str, error: Exception) -> CommandError:
    if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError):
        return CommandError(f"{url}: is not a URL: write http://HOST:PORT")
    reason: object = error
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno:
        reason = reason_of(error.os_error)
    return UnreachableError(
        f"{url}: {reason or 'no response'}",
        hint="is kai-py run --http running? try kubectl port-forward",
        exit_code=ExitCode.CLUSTER,
    )
