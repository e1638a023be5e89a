"""Forwarding: any replica answers, as standbys forward requests to the leader.

Every answer under /v1 says in its headers which replica made it, whether that one leads, and how
old its data is. A request is forwarded once: a replica that is asked although it does not lead then
names the leader instead. The bearer's token goes with it, to the address on the Lease only, and
redirects are not followed.

The leader writes its address on the Lease, so the others can pass requests on. Only those who may
write the Lease could name another address; they could also lead.
"""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from msgspec import Struct

from kai_py.observe.cluster_view import ClusterView
from kai_py.observe.http_access import PROTECTED_PREFIX
from kai_py.observe.token_review import OWN_HEADER

ANY_ADDRESS = ("", "0.0.0.0", "::")


class Replica(Struct, frozen=True):
    """The replica that answers; ``leader`` and ``address`` of the one that leads, if it is known.

    ``name`` is unique to the process.
    """

    name: str = ""
    leads: bool = True
    leader: str = ""
    address: str = ""


def is_address(url: str) -> bool:
    """Whether ``url`` is what a replica writes: http, an IP address and a port."""
    try:
        parts = urlsplit(url)
        ipaddress.ip_address(parts.hostname or "")
        has_port = parts.port is not None
    except ValueError:
        return False
    is_plain = url == f"http://{parts.netloc}" and "@" not in url
    return parts.scheme == "http" and has_port and is_plain


def own_address(host: str, port: int, server: str) -> str:
    """The URL at which other replicas reach this one; "" if it is not known.

    Where it listens on every address, that from which the API server at the URL ``server`` is
    reached is meant. Nothing is sent to find it.
    """
    if host in ANY_ADDRESS:
        try:
            parts = urlsplit(server)
            there = socket.getaddrinfo(parts.hostname, parts.port or 443, type=socket.SOCK_DGRAM)[0]
            with socket.socket(there[0], socket.SOCK_DGRAM) as probe:
                probe.connect(there[4])
                host = probe.getsockname()[0]
        except OSError:
            return ""
    if host == "localhost":
        host = "127.0.0.1"
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    return address if is_address(address) else ""


REPLICA_PATH = "/v1/replica"
"""Answered by the replica that was asked."""
FORWARDED_BY = "X-Kai-Forwarded-By"
REPLICA, LEADS, AGE = "X-Kai-Replica", "X-Kai-Leads", "X-Kai-Data-Age"
REQUEST_HEADERS = (
    "Authorization", OWN_HEADER, "Accept", "Accept-Encoding", "If-None-Match", "Last-Event-ID",
)  # fmt: skip
ANSWER_HEADERS = (
    "Content-Type", "Content-Encoding", "ETag", "Cache-Control", "WWW-Authenticate",
    REPLICA, LEADS, AGE,
)  # fmt: skip
CONNECT_SECONDS = 3.0
SILENT_SECONDS = 150.0
"""Longest silence of the leader: a simulation takes up to two minutes."""
SESSION = web.AppKey("session", aiohttp.ClientSession)


def forward_to_leader(replica: Callable[[], Replica]) -> Middleware:
    """Middleware that lets the leader answer what is asked under /v1."""

    @web.middleware
    async def forward(request: web.Request, handler: Handler) -> web.StreamResponse:
        here = replica()
        path = request.path
        is_forwarded = path.startswith(PROTECTED_PREFIX) and path != REPLICA_PATH
        if here.leads or not is_forwarded or request.method != "GET":
            return await handler(request)
        if FORWARDED_BY in request.headers:
            return _unavailable(f"replica {here.name} is a standby")
        if not here.leader:
            return _unavailable(f"replica {here.name} is a standby; no replica leads at present")
        if not is_address(here.address):
            return _unavailable(
                f"replica {here.name} is a standby; {here.leader} leads, at an unknown address"
            )
        return await _forwarded(request, here)

    return forward


def mark_answers(
    replica: Callable[[], Replica],
    view: Callable[[], ClusterView | None],
    now: Callable[[], float],
    problems: Callable[[], Iterable[str]],
) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """Return a hook that adds the replica and age headers to answers that lack them.

    The view of a leader without ``problems`` is current, however long ago its cycle was: a cycle
    only follows a change. Otherwise it is as old as its cycle.
    """

    async def mark(request: web.Request, response: web.StreamResponse) -> None:
        if not request.path.startswith(PROTECTED_PREFIX) or REPLICA in response.headers:
            return
        here, shown = replica(), view()
        response.headers[REPLICA] = here.name
        response.headers[LEADS] = "true" if here.leads else "false"
        if shown is not None:
            is_current = here.leads and not any(problems())
            age = 0.0 if is_current else max(now() - shown.snapshot.now, 0.0)
            response.headers[AGE] = f"{age:.1f}"

    return mark


async def forwarding_session(app: web.Application) -> AsyncIterator[None]:
    """Connections to the leader, for as long as the application runs."""
    limits = aiohttp.ClientTimeout(
        total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENT_SECONDS
    )
    # Only the encodings that the reader takes: the answer is passed on as it comes.
    async with aiohttp.ClientSession(
        timeout=limits, auto_decompress=False, skip_auto_headers=("Accept-Encoding",)
    ) as session:
        app[SESSION] = session
        yield


async def _forwarded(request: web.Request, here: Replica) -> web.StreamResponse:
    headers = {name: request.headers[name] for name in REQUEST_HEADERS if name in request.headers}
    headers[FORWARDED_BY] = here.name
    url = f"{here.address}{request.path_qs}"
    try:
        async with request.app[SESSION].get(url, headers=headers, allow_redirects=False) as answer:
            return await _copied(request, answer)
    except (aiohttp.ClientError, TimeoutError) as error:
        reason = str(error) or "no answer in time"
        return _unavailable(
            f"replica {here.name} is a standby; {here.leader} leads and cannot be reached: {reason}"
        )


async def _copied(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    kept = {name: answer.headers[name] for name in ANSWER_HEADERS if name in answer.headers}
    response = web.StreamResponse(status=answer.status, headers=kept)
    await response.prepare(request)
    try:
        async for part in answer.content.iter_any():
            await response.write(part)
    except (aiohttp.ClientError, TimeoutError, ConnectionResetError, asyncio.IncompleteReadError):
        # The status is sent already: a connection that ends early tells the reader.
        if request.transport is not None:
            request.transport.close()
    return response


def _unavailable(reason: str) -> web.Response:
    return web.Response(status=503, text=f"{reason}\n", headers={"Retry-After": "2"})
