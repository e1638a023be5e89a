"""HTTP transport to the API server: authentication, TLS, timeouts, typed errors.

Calls share a bounded pool of connections; watches have a pool of their own, so that they never
starve calls. A call is tried once, except that after a 401 the credentials are loaded again and the
call is tried once more: other retries are the caller's, who knows whether the call is still needed.
Dead peers are noticed by TCP keep-alive within about a minute, long before a watch times out.

There are thousands of calls and one watch per kind: calls have connections of their own
(``connections``); watches, and calls through a proxy, go through aiohttp (``aiohttp_calls``), which
is imported with the first of them.
"""

import asyncio
import math
import re
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import quote, urlencode, urlsplit

from kai_py.watch.client import Client
from kai_py.watch.connections import Connections, Endpoint
from kai_py.watch.credentials import AccessCache, Credentials, ServerAccess
from kai_py.watch.errors import (
    CredentialsError,
    InvalidName,
    TimedOut,
    Unauthorized,
    Unreachable,
    from_response,
)
from kai_py.watch.transport import METHODS, USER_AGENT, ApiCall, CallObserver

if TYPE_CHECKING:
    from kai_py.watch.aiohttp_calls import AiohttpCalls

WATCH_OPEN_SECONDS = 30.0
"""Timeout for opening a watch: it is answered at once, even if the first event comes later."""
READING = frozenset({"get", "list"})
_TARGET = re.compile(r"/[!-~]*")
"""A path with its query, as it may stand in a request."""
_HEADER = re.compile(r"[\t -~]*")


class HttpTransport:
    """Connections to one API server, to be used as an async context manager."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        timeout_seconds: float = 30.0,
        connections: int = 32,
        on_call: CallObserver = lambda _verb, _kind, _code, _seconds, _failure: None,
    ) -> None:
        self._credentials = credentials
        self._access = AccessCache(credentials)
        self._timeout_seconds = timeout_seconds
        self._connections = connections
        self._on_call = on_call
        self._calls: Connections
        self._calls_by_proxy: AiohttpCalls | None = None
        self._watches: AiohttpCalls | None = None

    def separate(self, *, connections: int) -> "HttpTransport":
        """Other connections to the same server, for another event loop."""
        return HttpTransport(
            self._credentials,
            timeout_seconds=self._timeout_seconds,
            connections=connections,
            on_call=self._on_call,
        )

    async def __aenter__(self) -> Self:
        await self._access.current()
        self._calls = Connections(self._connections)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._calls.close()
        for opened in (self._calls_by_proxy, self._watches):
            if opened is not None:
                await opened.close()

    async def send(self, call: ApiCall, *, timeout_seconds: float | None = None) -> bytes:
        """Make a call and return the body of the answer; raises ApiError."""
        limit = timeout_seconds or self._timeout_seconds
        try:
            return await self._send_once(call, limit)
        except Unauthorized:
            if not await self._access.reload():
                raise
        return await self._send_once(call, limit)

    async def server(self) -> str:
        """The present base URL of the API server."""
        return (await self._access.current()).server

    async def authorization(self) -> str:
        """The present value of the Authorization header; "" where a certificate identifies us."""
        return (await self._access.current()).authorization

    @asynccontextmanager
    async def stream(self, call: ApiCall, *, idle: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch and yield its chunks; raises TimedOut after ``idle`` seconds of silence."""
        from kai_py.watch.aiohttp_calls import (  # noqa: PLC0415 - takes long to import
            AiohttpCalls,
            read_chunks,
            read_failure,
        )

        if self._watches is None:
            # Without a limit: each kind has one watch, which keeps a connection.
            self._watches = AiohttpCalls(0)
        with self._counted(call) as status:
            async with asyncio.timeout(WATCH_OPEN_SECONDS):
                access = await self._access.current()
                response = await self._watches.request(call, access, idle)
            status.code = response.status
        chunks = read_chunks(call, response)
        try:
            if response.status >= 300:
                raise await read_failure(call, response)
            yield chunks
        except Unauthorized:
            await self._access.reload()
            raise
        finally:
            await chunks.aclose()
            response.close()

    async def _send_once(self, call: ApiCall, limit: float) -> bytes:
        with self._counted(call) as status:
            access = await self._access.current()
            async with asyncio.timeout(limit):
                if _needs_aiohttp(access):
                    return await self._send_by_proxy(call, access, status)
                where = _endpoint(access.server, access.tls, access.server_name)
                request = request_bytes(call, access)
                repeatable = call.verb in READING
                most = math.inf if call.verb == "list" else call.max_bytes
                answer = await self._calls.exchange(
                    where, request, repeatable=repeatable, max_bytes=most
                )
            status.code = answer.status
            if answer.status >= 300:
                wait = {"Retry-After": answer.headers.get("retry-after", "")}
                raise from_response(str(call), answer.status, answer.body, wait)
            return answer.body

    async def _send_by_proxy(
        self, call: ApiCall, access: ServerAccess, status: "_CountedCall"
    ) -> bytes:
        from kai_py.watch.aiohttp_calls import (  # noqa: PLC0415 - takes long to import
            AiohttpCalls,
            read_body,
            read_failure,
        )

        if self._calls_by_proxy is None:
            self._calls_by_proxy = AiohttpCalls(self._connections)
        response = await self._calls_by_proxy.request(call, access)
        async with response:
            status.code = response.status
            if response.status >= 300:
                raise await read_failure(call, response)
            return await read_body(call, response)

    def _counted(self, call: ApiCall) -> "_CountedCall":
        return _CountedCall(call, self._on_call)


@asynccontextmanager
async def connect(
    credentials: Credentials,
    *,
    timeout_seconds: float = 30.0,
    connections: int = 32,
    on_call: CallObserver | None = None,
) -> AsyncIterator[Client]:
    """Open a client that makes at most ``connections`` calls at a time."""
    observer = on_call or (lambda _verb, _kind, _code, _seconds, _failure: None)
    transport = HttpTransport(
        credentials, timeout_seconds=timeout_seconds, connections=connections, on_call=observer
    )
    async with transport:
        yield Client(transport)


@asynccontextmanager
async def separate_client(client: Client, transport: HttpTransport) -> AsyncIterator[Client]:
    """A client of the same server with connections of its own, for another event loop."""
    async with transport.separate(connections=2) as other:
        yield Client(other, client.machine)


class _CountedCall:
    """Counts a call with its ``code`` at the end of the block; errors become ours."""

    __slots__ = ("_began", "_call", "_on_call", "code")

    def __init__(self, call: ApiCall, on_call: CallObserver) -> None:
        self._call, self._on_call = call, on_call
        self._began, self.code = time.monotonic(), 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        call, seconds = self._call, time.monotonic() - self._began
        raised = error
        if isinstance(error, TimeoutError):
            raised = TimedOut(f"{call}: no answer in time")
        elif isinstance(error, OSError):
            raised = Unreachable(f"{call}: {str(error) or type(error).__name__}")
        failure = str(raised) if raised is not None and not self.code else ""
        self._on_call(call.verb, call.kind, self.code, seconds, failure)
        if raised is not None and raised is not error:
            raise raised from error


def _needs_aiohttp(access: ServerAccess) -> bool:
    """Whether calls need what only aiohttp knows: proxies, and passwords in URLs."""
    return bool(access.proxy) or "@" in access.server


@lru_cache(maxsize=8)
def _endpoint(server: str, tls: ssl.SSLContext | None, server_name: str) -> Endpoint:
    """Where calls to this server are sent to; raises CredentialsError if that is no address."""
    try:
        url = urlsplit(server)
        host, port = url.hostname or "", url.port
        host.encode("idna")  # as connecting would do: a name may have parts that are too long
    except ValueError as error:
        raise CredentialsError(f"{server} is not the address of a server: {error}") from error
    if not host:
        raise CredentialsError(f"{server} is not the address of a server: it names no host")
    if url.scheme not in ("http", "https"):
        raise CredentialsError(f"{server} is not the address of a server: it is not http or https")
    if url.scheme == "http":
        return Endpoint(host, port or 80)
    return Endpoint(host, port or 443, tls or True, server_name)


def request_bytes(call: ApiCall, access: ServerAccess) -> bytes:
    """The HTTP request of a call; raises InvalidName for what can't be part of one."""
    url = urlsplit(access.server)
    # The path must reach the server unchanged.
    target = f"{url.path}{call.path}"
    if call.parameters:
        target += "?" + urlencode(call.parameters, safe=",", quote_via=quote)
    headers = {"Host": url.netloc, "User-Agent": USER_AGENT, "Accept": call.accept, **call.headers}
    if call.verb == "list":
        headers["Accept-Encoding"] = "gzip"
    if access.authorization:
        headers["Authorization"] = access.authorization
    if call.body is not None:
        headers["Content-Type"] = call.content_type
        headers["Content-Length"] = str(len(call.body))
    lines = [f"{name}: {value}" for name, value in headers.items()]
    if _TARGET.fullmatch(target) is None or not all(map(_HEADER.fullmatch, lines)):
        raise InvalidName(f"{call}: no request can have this path and these headers")
    head = "\r\n".join((f"{METHODS[call.verb]} {target} HTTP/1.1", *lines, "", ""))
    return head.encode() + (call.body or b"")
