"""What does one client write, and what if the write or its answer is lost?

A proxy between a client and the API server: it passes everything on, watches included, keeps a
list of the client's writes, and asks a gate about each before it is passed on. It can also be the
fault itself: hold back what watches of a kind say while their connections stay open, hold back
its lists, answer in place of the server, or cut it off. The client needs no credentials: requests
go out as the user of the cluster's `Api`.
"""

import asyncio
import enum
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from aiohttp import web
from yarl import URL

from tests.support.cluster.api import Api

PASSED_ON = ("Accept", "Content-Type", "User-Agent")
READS = {"GET", "HEAD", "OPTIONS"}
LARGEST_BODY = 8 << 20


class Passage(enum.Enum):
    """What becomes of a write."""

    PASS = enum.auto()
    LOSE = enum.auto()
    """It never arrives."""
    LOSE_ANSWER = enum.auto()
    """It arrives, but its answer is lost."""


@dataclass(frozen=True)
class Write:
    """A write: `kind` is the plural of what is written with its subresource, as `pods/binding`."""

    method: str
    path: str

    @property
    def kind(self) -> str:
        """The path without root, namespace and name."""
        return _kind(self.path)


def _kind(path: str) -> str:
    parts = _parts(path)
    return "/".join([*parts[:1], *parts[2:]])


def _parts(path: str) -> list[str]:
    """The path without root and namespace: plural, name, subresource, as far as it goes."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    return parts[2:] if parts[:1] == ["namespaces"] and len(parts) > 2 else parts


@dataclass(frozen=True)
class Answer:
    """An answer in place of the server's."""

    status: int
    body: bytes = b""


@dataclass
class Proxy:
    """The way of one client to the API server."""

    kubeconfig: Path
    """Leads to the proxy; written when it serves."""
    gate: Callable[[Write], Passage] = lambda _write: Passage.PASS
    writes: list[Write] = field(default_factory=list)
    spoil: Callable[[str, str], Answer | None] = lambda _method, _kind: None
    """By method and kind: what is answered in place of the server; watches are not asked about."""
    delay: Callable[[str, str], float] = lambda _method, _kind: 0.0
    """By method and kind: seconds for which a request is held back; watches are not asked about."""
    held_watches: set[str] = field(default_factory=set)
    """Plurals whose watches say nothing, however much the server tells them."""
    held_lists: set[str] = field(default_factory=set)
    """Plurals whose lists get no answer."""
    cut_off: bool = False
    """Whether nothing reaches the server; set by ``cut``."""
    _streams: dict[int, web.Request] = field(default_factory=dict)
    _released: asyncio.Event = field(default_factory=asyncio.Event)

    def hold(self, kind: str) -> None:
        """Hold back watches and lists of a kind, while objects of it can be read."""
        self.held_watches.add(kind)
        self.held_lists.add(kind)

    def release(self) -> None:
        """Let all that was held back go on."""
        self.held_watches.clear()
        self.held_lists.clear()
        self._released.set()
        self._released.clear()

    def cut(self) -> None:
        """Break every connection, and refuse new ones until ``cut_off`` is False again."""
        self.cut_off = True
        for request in tuple(self._streams.values()):
            _hang_up(request)

    async def handle(self, api: Api, request: web.Request) -> web.StreamResponse:
        """Pass one request on."""
        if self.cut_off:
            raise ConnectionResetError
        body = await request.read()
        kind, watches = _kind(request.path), "watch" in request.query
        await asyncio.sleep(0.0 if watches else self.delay(request.method, kind))
        spoiled = None if watches else self.spoil(request.method, kind)
        if spoiled is not None:
            return web.Response(status=spoiled.status, body=spoiled.body)
        passage = Passage.PASS
        if request.method not in READS:
            write = Write(request.method, request.path)
            self.writes.append(write)
            passage = self.gate(write)
        if passage is Passage.LOSE:
            raise ConnectionResetError
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        url = URL(request.raw_path, encoded=True)
        async with api.open(request.method, url, body=body, headers=headers) as answer:
            if passage is Passage.LOSE_ANSWER:
                await answer.read()
                raise ConnectionResetError
            held = self.held_watches if watches else self.held_lists
            lists = len(_parts(request.path)) == 1

            async def pass_on() -> None:
                while lists and kind in held:
                    await self._released.wait()

            self._streams[id(request)] = request
            try:
                return await _repeat(answer, request, pass_on)
            finally:
                del self._streams[id(request)]


async def _repeat(
    answer: aiohttp.ClientResponse, request: web.Request, pass_on: Callable[[], Awaitable[None]]
) -> web.StreamResponse:
    names = ("Content-Type", "Retry-After")
    headers = {name: answer.headers[name] for name in names if name in answer.headers}
    response = web.StreamResponse(status=answer.status, headers=headers)
    await response.prepare(request)
    with suppress(aiohttp.ClientError, ConnectionError):
        async for chunk in answer.content.iter_any():
            await pass_on()
            await response.write(chunk)
    return response


@asynccontextmanager
async def proxy(api: Api, kubeconfig: Path) -> AsyncIterator[Proxy]:
    """Serve a proxy on loopback for the duration of the block."""
    made = Proxy(kubeconfig)

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return await made.handle(api, request)
        except (aiohttp.ClientError, ConnectionError):
            _hang_up(request)
            raise asyncio.CancelledError from None

    application = web.Application(client_max_size=LARGEST_BODY)
    application.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        _write_kubeconfig(kubeconfig, f"http://127.0.0.1:{runner.addresses[0][1]}")
        yield made
    finally:
        await runner.cleanup()


def _hang_up(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def _write_kubeconfig(path: Path, server: str) -> None:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "proxy",
        "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "anonymous"}}],
        "clusters": [{"name": "proxy", "cluster": {"server": server}}],
        "users": [{"name": "anonymous", "user": {}}],
    }
    path.write_text(json.dumps(document))
