"""HTTP server of the scheduler: dashboard, metrics, probes and API.

    /           the dashboard
    /metrics    Prometheus text; OpenMetrics, which has exemplars, for those that accept it
    /healthz    200, or 503 and why where a watch or a cycle hangs
    /readyz     200 while every watch has its first list and reaches the server, else 503 and
                which does not; unreadable optional kinds are named either way
    /v1/…       JSON about the cluster (``http_api``), guarded (``http_access``)

The answers come from callables, so that this module does not depend on their contents. Open
connections are limited, so that no client can take the memory of the scheduler.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

from aiohttp import web
from msgspec import Struct
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from kai_py.observe.dashboard import dashboard_routes
from kai_py.observe.http_access import HttpAccess, require_access
from kai_py.observe.http_api import Api, ApiSource
from kai_py.observe.http_forward import forward_to_leader, forwarding_session, mark_answers
from kai_py.watch.connections import reason_of

SHUTDOWN_SECONDS = 2.0
MAX_CONNECTIONS = 512
KEEP_ALIVE_SECONDS = 75.0
"""How long a connection without requests stays open."""


class Probes(Struct, frozen=True):
    """Sources of the answers; ``unhealthy`` and ``unready`` return sentences, none if all is well.

    ``unreadable``: sentences on kinds that the scheduler does without.
    """

    registry: CollectorRegistry
    unhealthy: Callable[[], Sequence[str]]
    unready: Callable[[], Sequence[str]]
    source: ApiSource
    unreadable: Callable[[], Sequence[str]] = tuple
    now: Callable[[], float] = time.time
    """Seconds since the epoch, by the clock of the cycles."""


def make_app(probes: Probes, access: HttpAccess) -> web.Application:
    """The HTTP application."""

    async def metrics(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        # In a thread: the metrics of the cluster's state are computed during the scrape.
        body = await asyncio.to_thread(encode, probes.registry)
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def healthz(_request: web.Request) -> web.Response:
        return _probe_response(probes.unhealthy(), ())

    async def readyz(_request: web.Request) -> web.Response:
        return _probe_response(probes.unready(), probes.unreadable())

    def problems() -> Iterator[str]:
        yield from probes.unready()
        yield from probes.unhealthy()

    api = Api(probes.source)
    replica = probes.source.replica
    app = web.Application(middlewares=[require_access(access), forward_to_leader(replica)])
    app.cleanup_ctx.append(forwarding_session)
    app.on_response_prepare.append(mark_answers(replica, probes.source.view, probes.now, problems))
    routes = {"/metrics": metrics, "/healthz": healthz, "/readyz": readyz}
    app.add_routes([web.get(path, handler) for path, handler in routes.items()])
    app.add_routes([*api.routes(), *dashboard_routes()])
    app.on_shutdown.append(api.close)
    return app


def _probe_response(problems: Sequence[str], notes: Sequence[str]) -> web.Response:
    lines = [*(problems or ("ok",)), *notes]
    return web.Response(
        status=503 if problems else 200, text="".join(f"{line}\n" for line in lines)
    )


class CannotServeError(Exception):
    """The address cannot be listened on; the text says why."""


@asynccontextmanager
async def serve(probes: Probes, access: HttpAccess, port: int) -> AsyncIterator[int]:
    """Serve until the block is left; yields the port, which the system chooses for 0.

    Raises CannotServeError.
    """
    runner = web.AppRunner(
        make_app(probes, access),
        access_log=None,
        shutdown_timeout=SHUTDOWN_SECONDS,
        keepalive_timeout=KEEP_ALIVE_SECONDS,
    )
    await runner.setup()
    assert runner.server is not None
    limited = LimitedServer(runner.server)
    listening = None
    try:
        try:
            listening = await asyncio.get_running_loop().create_server(limited, access.host, port)
        except OSError as error:
            address = f"{access.host}:{port}"
            raise CannotServeError(f"cannot serve on {address}: {reason_of(error)}") from error
        yield int(listening.sockets[0].getsockname()[1])
    finally:
        if listening is not None:
            listening.close()
        await runner.cleanup()


class LimitedServer:
    """Makes the protocol of each new connection, as ``server`` does; the oldest gives way to it.

    Metrics and probes need no token: a client that opens connections and sends or reads nothing
    would otherwise hold an answer each.
    """

    def __init__(self, server: web.Server) -> None:
        """``server``: knows the open connections, the oldest first."""
        self._server = server

    def __call__(self) -> asyncio.Protocol:
        """The protocol of a connection that is accepted now."""
        connections = self._server.connections
        for each in connections[: len(connections) + 1 - MAX_CONNECTIONS]:
            # Not ``close``, which waits until the client has read all.
            if each.transport is not None:
                each.transport.abort()
        return self._server()
