"""What can be asked of a running scheduler over HTTP?

    /metrics    Prometheus text
    /healthz    200 while watches hear of the server and the loop turns, else 503 and why
    /readyz     200 while every watch has its first list and reaches the server, else 503 and
                which does not
    /v1/plan    the last plan as JSON, 404 before the first

The answers are computed from callables, so that this room knows nothing of what it shows.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from kai_py.plan.decisions import Plan

encode_plan = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Probes:
    """Sources of the answers; ``unhealthy`` and ``unready`` give sentences, none if all is well."""

    registry: CollectorRegistry
    unhealthy: Callable[[], Sequence[str]]
    unready: Callable[[], Sequence[str]]
    last_plan: Callable[[], Plan | None]


def make_app(probes: Probes) -> web.Application:
    """The HTTP application."""

    async def metrics(_request: web.Request) -> web.Response:
        body = generate_latest(probes.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def healthz(_request: web.Request) -> web.Response:
        return _verdict(probes.unhealthy())

    async def readyz(_request: web.Request) -> web.Response:
        return _verdict(probes.unready())

    async def plan(_request: web.Request) -> web.Response:
        last = probes.last_plan()
        if last is None:
            raise web.HTTPNotFound(text="no cycle has run yet\n")
        return web.Response(body=encode_plan(last), content_type="application/json")

    app = web.Application()
    routes = {"/metrics": metrics, "/healthz": healthz, "/readyz": readyz, "/v1/plan": plan}
    app.add_routes([web.get(path, handler) for path, handler in routes.items()])
    return app


def _verdict(problems: Sequence[str]) -> web.Response:
    if not problems:
        return web.Response(text="ok\n")
    return web.Response(status=503, text="".join(f"{problem}\n" for problem in problems))


@asynccontextmanager
async def serve(probes: Probes, host: str, port: int) -> AsyncIterator[int]:
    """Serve until the block is left; gives the port, which the system chooses for 0."""
    runner = web.AppRunner(make_app(probes), access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
