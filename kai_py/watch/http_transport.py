"""HTTP transport to the API server: authentication, TLS, timeouts, typed errors.

Calls share a bounded pool of connections; watches have a pool of their own, so that they never
starve calls. A call is tried once, except that after a 401 the credentials are loaded again and the
call is tried once more: other retries are the caller's, who knows whether the call is still needed.
Dead peers are noticed by TCP keep-alive within about a minute, long before a watch times out.

There are thousands of calls and one watch per kind: calls have connections of their own
(``connections``); watches, and calls through a proxy, go through aiohttp.
"""

import asyncio
import math
import re
import socket
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import lru_cache
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
from yarl import URL

from kai_py import __version__
from kai_py.watch.client import Client
from kai_py.watch.connections import Connections, Endpoint, connect_failure, keep_alive
from kai_py.watch.credentials import AccessCache, Credentials, ServerAccess
from kai_py.watch.errors import (
    CredentialsError,
    InvalidName,
    StatusError,
    TimedOut,
    Unauthorized,
    Unreachable,
    from_response,
)
from kai_py.watch.transport import FIELD_MANAGER, METHODS, ApiCall, CallObserver

WATCH_OPEN_SECONDS = 30.0
"""Timeout for opening a watch: it is answered at once, even if the first event comes later."""
READING = frozenset({"get", "list"})
USER_AGENT = f"{FIELD_MANAGER}/{__version__}"
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
        on_call: CallObserver = lambda _verb, _kind, _code, _seconds: None,
    ) -> None:
        self._credentials = credentials
        self._access = AccessCache(credentials)
        self._timeout_seconds = timeout_seconds
        self._connections = connections
        self._on_call = on_call
        self._calls: Connections
        self._calls_by_proxy: aiohttp.ClientSession
        self._watches: aiohttp.ClientSession

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
        self._calls_by_proxy = _session(connections=self._connections)
        # 0 means no limit: each kind has one watch, which keeps a connection.
        self._watches = _session(connections=0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._calls.close()
        await self._calls_by_proxy.close()
        await self._watches.close()

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
        limit = aiohttp.ClientTimeout(total=None, sock_read=idle)
        with self._counted(call) as status:
            async with asyncio.timeout(WATCH_OPEN_SECONDS):
                response = await self._request(self._watches, call, limit)
            status.code = response.status
        chunks = _chunks(call, response)
        try:
            if response.status >= 300:
                raise await _failure(call, response)
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
                    return await self._send_by_proxy(call, status)
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

    async def _send_by_proxy(self, call: ApiCall, status: "_CountedCall") -> bytes:
        limit = aiohttp.ClientTimeout(total=None)
        response = await self._request(self._calls_by_proxy, call, limit)
        async with response:
            status.code = response.status
            if response.status >= 300:
                raise await _failure(call, response)
            return await response.read()

    async def _request(
        self, session: aiohttp.ClientSession, call: ApiCall, limit: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        access = await self._access.current()
        headers = {"Accept": call.accept, **call.headers}
        if access.authorization:
            headers["Authorization"] = access.authorization
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        # Not requoted: the path must reach the server unchanged.
        url = URL(access.server + call.path, encoded=True)
        return await session.request(
            METHODS[call.verb],
            url.with_query(call.parameters) if call.parameters else url,
            data=call.body,
            headers=headers,
            timeout=limit,
            ssl=access.tls or True,
            server_hostname=access.server_name or None,
            proxy=access.proxy or None,
            # Never follow a redirect with our credentials.
            allow_redirects=False,
        )

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
    observer = on_call or (lambda _verb, _kind, _code, _seconds: None)
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
        call = self._call
        self._on_call(call.verb, call.kind, self.code, time.monotonic() - self._began)
        if error is not None:
            _raise_translated(call, error)


@contextmanager
def _translated_errors(call: ApiCall) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        _raise_translated(call, error)
        raise


def _raise_translated(call: ApiCall, error: BaseException) -> None:
    """Raise errors of aiohttp and the socket as ours; leave others alone."""
    if isinstance(error, TimeoutError):
        raise TimedOut(f"{call}: no answer in time") from error
    if isinstance(error, (aiohttp.ClientError, OSError)):
        raise Unreachable(f"{call}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """The reason of an error, without the objects that aiohttp puts into its texts."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return connect_failure(f"{error.host}:{error.port}", error.certificate_error)
    if isinstance(error, aiohttp.ClientConnectorError):
        return connect_failure(f"{error.host}:{error.port}", error.os_error)
    return str(error) or type(error).__name__


async def _chunks(call: ApiCall, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    with _translated_errors(call):
        async for chunk in response.content.iter_any():
            yield chunk


async def _failure(call: ApiCall, response: aiohttp.ClientResponse) -> StatusError:
    with _translated_errors(call):
        return from_response(str(call), response.status, await response.read(), response.headers)


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


def _session(*, connections: int) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=connections, socket_factory=_socket)
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": USER_AGENT},
    )


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    result = socket.socket(family, kind, protocol)
    keep_alive(result)
    return result
