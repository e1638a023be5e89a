"""Forwarding: any replica answers, as standbys forward requests to the leader.

Every answer under /v1 says in its headers which replica made it, whether that one leads, and how
old its data is. A request is forwarded once: a replica that is asked although it does not lead then
names the leader instead. The bearer's token goes with it, to the address on the Lease only, and
redirects are not followed.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from kai_py.observe.cluster_view import ClusterView
from kai_py.observe.http_access import OWN_HEADER, PROTECTED_PREFIX
from kai_py.observe.replica import Replica, is_address

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
        if here.leads or path == REPLICA_PATH or not path.startswith(PROTECTED_PREFIX):
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
    """What adds the headers about replica and age to an answer, unless the leader wrote them.

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
    async with aiohttp.ClientSession(timeout=limits, auto_decompress=False) as session:
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
