"""The connections for calls: HTTP/1.1, one request at a time on each, used again while they last.

A call takes the connection that was used last, or opens one; as many calls as allowed are under
way at once. A request that can't be sent because the server has closed the connection meanwhile is
sent once more on a new one if it only reads: of any other it is unknown whether it has arrived.
A call that is given up ends its connection, since its answer would be taken for that of the next.

Calls do not go through a session of aiohttp, which takes several times the processor time that TLS
and the kernel need for a request as small as a binding. What a session adds (cookies, redirects,
proxies) is not needed for them; calls through a proxy do use one.
"""

import asyncio
import math
import os
import socket
import ssl
from collections import deque
from typing import NamedTuple

from kai_py.watch.http_answer import CLOSED, Answer, AnswerError, AnswerReader

IDLE_SECONDS = 15.0
"""A connection that was not used for so long is not used again: something may have dropped it."""
KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


class Endpoint(NamedTuple):
    """Where to connect to; ``tls``: True for the system's authorities, False for no encryption.

    ``server_name``: the name to expect in the certificate where it is not ``host``.
    """

    host: str
    port: int
    tls: ssl.SSLContext | bool = False
    server_name: str = ""

    def __str__(self) -> str:
        """Host and port as a URL has them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class CannotConnectError(ConnectionError):
    """No connection to the server; the text says to which and why."""


class ConnectionClosedError(ConnectionError):
    """The server closed the connection before its answer."""


class Connections:
    """At most ``limit`` connections in use; for one event loop."""

    def __init__(self, limit: int) -> None:
        self._limiter = asyncio.Semaphore(limit)
        self._idle: deque[_Connection] = deque()
        self._open: dict[_Connection, None] = {}

    async def exchange(
        self, endpoint: Endpoint, request: bytes, *, repeatable: bool, max_bytes: float = math.inf
    ) -> Answer:
        """Send a request and return its answer, whose body is not longer; raises OSError.

        ``repeatable``: it may be sent again if the first connection turns out to be closed.
        """
        async with self._limiter:
            connection = self._idle_one(endpoint)
            if connection is not None:
                try:
                    return await self._on(connection, request, max_bytes)
                except ConnectionClosedError:
                    if not repeatable:
                        raise
            return await self._on(await self._connect(endpoint), request, max_bytes)

    async def close(self) -> None:
        """Close all connections; calls under way fail."""
        for connection in tuple(self._open):
            connection.abort()
        self._idle.clear()
        # The event loop closes the sockets in its next turn.
        await asyncio.sleep(0)

    async def _on(self, connection: "_Connection", request: bytes, max_bytes: float) -> Answer:
        answer = await connection.exchange(request, max_bytes)
        if answer.keeps_connection and connection.is_open:
            connection.used = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            connection.abort()
        return answer

    def _idle_one(self, endpoint: Endpoint) -> "_Connection | None":
        """The idle connection that was used last; ends those that may not be used any more."""
        now = asyncio.get_running_loop().time()
        while self._idle and not self._idle[0].is_usable(endpoint, now):
            self._idle.popleft().abort()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable(endpoint, now):
                return connection
            connection.abort()
        return None

    async def _connect(self, endpoint: Endpoint) -> "_Connection":
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: _Connection(endpoint, self._open),
                endpoint.host,
                endpoint.port,
                ssl=endpoint.tls,
                server_hostname=(endpoint.server_name or None) if endpoint.tls else None,
                happy_eyeballs_delay=0.25,
            )
        except OSError as error:
            raise CannotConnectError(connect_failure(str(endpoint), error)) from error
        return connection


class _Connection(asyncio.Protocol):
    """One connection; it is in ``registry`` as long as it is open."""

    def __init__(self, endpoint: Endpoint, registry: "dict[_Connection, None]") -> None:
        self.used = 0.0
        """When its last answer came, on the event loop's clock."""
        self._endpoint = endpoint
        self._registry = registry
        self._transport: asyncio.Transport
        self._reader = AnswerReader()
        self._answer: asyncio.Future[Answer] | None = None

    @property
    def is_open(self) -> bool:
        """Whether a request may be sent."""
        return self in self._registry and not self._transport.is_closing()

    def is_usable(self, endpoint: Endpoint, now: float) -> bool:
        """Whether an idle connection may be used for a call to ``endpoint``."""
        return self._endpoint == endpoint and self.is_open and now < self.used + IDLE_SECONDS

    async def exchange(self, request: bytes, max_bytes: float) -> Answer:
        """Send a request and wait for its answer; raises OSError."""
        if not self.is_open:
            raise ConnectionClosedError(CLOSED)
        self._reader = AnswerReader(max_bytes)
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._answer
        except BaseException:
            self.abort()
            raise
        finally:
            self._answer = None

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._registry[self] = None
        keep_alive(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        """A part of an answer has come."""
        if self._answer is None or self._answer.done():
            self.abort()  # it answers no request
            return
        try:
            answer = self._reader.feed(data)
        except AnswerError as error:
            self._answer.set_exception(error)
            return
        if answer is not None:
            self._answer.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self._registry.pop(self, None)
        if self._answer is None or self._answer.done():
            return
        if not self._reader.has_begun:
            self._answer.set_exception(ConnectionClosedError(str(exc or CLOSED)))
        elif exc is not None:
            # Whatever reading an answer raises must end only this call.
            error = exc if isinstance(exc, OSError) else AnswerError(f"no HTTP answer: {exc!r}")
            self._answer.set_exception(error)
        else:
            self._end_answer(self._answer)

    def _end_answer(self, answer: asyncio.Future[Answer]) -> None:
        try:
            answer.set_result(self._reader.end())
        except AnswerError as error:
            answer.set_exception(error)


def connect_failure(where: str, error: Exception) -> str:
    """Why there is no connection to ``where``, a host with its port, as a sentence."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"cannot trust the certificate of {where}: {error.verify_message or error}"
    if not isinstance(error, OSError):
        return f"cannot connect to {where}: {error}"
    return f"cannot connect to {where}: {reason_of(error)}"


def reason_of(error: OSError) -> str:
    """The system's words for an error, without what asyncio adds to them."""
    # Errors of name resolution have numbers of their own, below 0.
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or str(error)


def keep_alive(connection: socket.socket) -> None:
    """Have the kernel notice within about a minute that the other side is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in KEEP_ALIVE.items():
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)
