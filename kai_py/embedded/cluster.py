"""The embedded cluster over HTTP, in real time: requests in, JSON and watch streams out.

async with EmbeddedCluster() as cluster:
    cluster.url, cluster.create({...}), cluster.write_kubeconfig(path)

The server listens on loopback, authenticates no one, and only translates: the path to a resource
(`routing`), the verb to a call of `ApiServer`, the result to the form the client accepts
(`representation`).

A watch is one JSON line per event, until the client's timeout, a compaction (an ERROR event with
code 410) or the end of the server. A quiet watch gets a bookmark now and then if it allows them.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec
import yaml
from aiohttp import web

from kai_py.api.texts import printable
from kai_py.embedded import discovery, writes
from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.documents import Json
from kai_py.embedded.errors import RequestError, bad_request, unsupported_media_type
from kai_py.embedded.in_process import InProcessCluster
from kai_py.embedded.listing import Lister, Watch, WatchEvent
from kai_py.embedded.representation import Presenter, ResponseForm, accepted_form
from kai_py.embedded.routing import Target, integer, is_set, parse_path, verb_of

BOOKMARK_SECONDS = 10.0
DEFAULT_TIMEOUT_SECONDS = 1800
_EVENTS_PER_WRITE = 256


@dataclass
class WatchStream:
    """Events of a watch as the lines of an answer."""

    request: web.Request
    response: web.StreamResponse
    presenter: Presenter
    sent: int = 0

    async def send(self, events: Sequence[WatchEvent]) -> None:
        """Write events in few large writes."""
        for start in range(0, len(events), _EVENTS_PER_WRITE):
            batch = events[start : start + _EVENTS_PER_WRITE]
            lines = [self._line(event, self.sent + index) for index, event in enumerate(batch)]
            await self.write(lines)
            self.sent += len(lines)

    async def write(self, lines: list[bytes]) -> None:
        """Write some lines."""
        await self.response.write(b"".join(lines))

    def _line(self, event: WatchEvent, position: int) -> bytes:
        if event.type == "ERROR" or self.presenter.form is ResponseForm.FULL:
            encoded = event.encoded_object()
        elif event.type == "BOOKMARK":
            encoded = msgspec.json.encode(self.presenter.bookmark(event.object))
        else:
            shown = self.presenter.event(event.object, first=position == 0)
            encoded = msgspec.json.encode(shown)
        return b'{"type":"%s","object":%s}\n' % (event.type.encode(), encoded)


async def _send_events(watch: Watch, stream: WatchStream, wakeup: asyncio.Event) -> None:
    query = stream.request.query
    bookmarks = is_set(query, "allowWatchBookmarks")
    loop = asyncio.get_running_loop()
    end = loop.time() + (integer(query, "timeoutSeconds") or DEFAULT_TIMEOUT_SECONDS)
    await stream.send(watch.poll())
    if is_set(query, "sendInitialEvents") and bookmarks:
        await stream.send([watch.bookmark(initial_events_end=True)])
    while (remaining := end - loop.time()) > 0:
        wakeup.clear()
        if events := watch.poll():
            await stream.send(events)
            continue
        try:
            await asyncio.wait_for(wakeup.wait(), min(remaining, BOOKMARK_SECONDS))
        except TimeoutError:
            if bookmarks:
                await stream.send([watch.bookmark()])


HEALTH_PATHS = frozenset({"/healthz", "/livez", "/readyz"})
MAX_BODY_BYTES = 3 * 1024 * 1024
MAX_WARNINGS, MAX_CUT_WARNING = 4096, 256
"""Characters of the warnings of an answer, and of each where they are cut."""


class HttpFront:
    """Serves an ApiServer on 127.0.0.1."""

    stream_type = WatchStream

    def __init__(self, api: ApiServer) -> None:
        self.api = api
        self._lister = Lister(api)
        self._runner: web.AppRunner | None = None
        self._watches: set[asyncio.Task[Any]] = set()
        self.url = ""

    async def start(self) -> None:
        """Listen on any free port; `url` is set afterwards."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, bound = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{bound}"

    async def stop(self) -> None:
        """Close the watches and the socket."""
        for watch in tuple(self._watches):
            watch.cancel()
        if self._runner:
            await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            if request.path in HEALTH_PATHS:
                return web.Response(text="ok")
            address = self.url.removeprefix("http://")
            fixed = discovery.document(self.api.registry, request.path, address=address)
            if fixed is not None:
                return _json(fixed)
            return await self.handle_resource(request)
        except RequestError as error:
            return error_response(error)

    async def handle_resource(self, request: web.Request) -> web.StreamResponse:
        """Answer a request to a resource; raises RequestError."""
        target = parse_path(request.path, self.api.registry)
        verb = verb_of(request.method, target, request.query)
        presenter = Presenter(
            target.resource,
            accepted_form(request.headers.get("Accept", "")),
            self.api.clock.now(),
            request.query.get("includeObject", "Metadata"),
        )
        if verb == "watch":
            return await self._watch(request, target, presenter)
        return await self._respond(verb, request, target, presenter)

    async def _respond(
        self, verb: str, request: web.Request, target: Target, presenter: Presenter
    ) -> web.Response:
        if verb == "list":
            return _json(self._lister.list(target, request.query, presenter))
        if verb == "get":
            return _json(presenter.one(writes.read(self.api, target)))
        body = await _body(verb, request)
        content_type = request.content_type
        answer = writes.execute(
            self.api, verb, target, writes.WriteRequest(body, content_type, request.query)
        )
        shown = presenter.one(answer.document) if answer.is_object else answer.document
        return _json(shown, status=answer.code, warnings=answer.warnings)

    async def _watch(
        self, request: web.Request, target: Target, presenter: Presenter
    ) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._watches.add(task)
        try:
            return await self._stream_watch(request, target, presenter)
        finally:
            self._watches.discard(task)

    async def _stream_watch(
        self, request: web.Request, target: Target, presenter: Presenter
    ) -> web.StreamResponse:
        watch = self._lister.watch(target, request.query)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        stream = self.stream_type(request, response, presenter)
        wakeup = asyncio.Event()
        stop_listening = watch.listen(wakeup.set)
        try:
            await _send_events(watch, stream, wakeup)
        except RequestError as error:
            await stream.send([WatchEvent("ERROR", error.status())])
        except ConnectionError:
            pass
        finally:
            stop_listening()
        return response


def error_response(error: RequestError) -> web.Response:
    """The response for a refusal."""
    response = _json(error.status(), status=error.code)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    return response


def _json(document: Json, *, status: int = 200, warnings: tuple[str, ...] = ()) -> web.Response:
    body = msgspec.json.encode(document)
    response = web.Response(body=body, status=status, content_type="application/json")
    for warning in _limited(warnings):
        quoted = warning.replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')
    return response


def _limited(warnings: tuple[str, ...]) -> Iterator[str]:
    """The warnings as the API server limits them: cut where they are many, the last ones left out.

    Source: ``truncateAtTotalRunes``, ``truncateItemRunes`` of k8s.io/apiserver.
    """
    left, longest = MAX_WARNINGS, max(map(len, warnings), default=0)
    if sum(map(len, warnings)) > MAX_WARNINGS:
        longest = MAX_CUT_WARNING
    for warning in warnings:
        text = printable(warning)[:longest]
        left -= len(text)
        if left < 0:
            return
        yield text


async def _body(verb: str, request: web.Request) -> Any:
    plain = ("application/json", "application/yaml", "application/octet-stream")
    if verb != "patch" and request.content_type not in plain:
        raise unsupported_media_type(plain[:2])
    text = await request.read()
    if not text:
        return {}
    decode: Callable[[bytes], Any] = msgspec.json.decode
    if "yaml" in request.content_type:
        decode = msgspec.yaml.decode
    try:
        return decode(text)
    except (msgspec.DecodeError, ValueError) as error:
        raise bad_request(f"error decoding the request body: {error}") from error


CONTEXT = "kai-py-embedded"


def kubeconfig(url: str) -> str:
    """The text of a kubeconfig for the server at `url`, without credentials."""
    context = {"cluster": CONTEXT, "user": CONTEXT, "namespace": "default"}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": {"server": url}}],
        "users": [{"name": CONTEXT, "user": {}}],
        "contexts": [{"name": CONTEXT, "context": context}],
        "current-context": CONTEXT,
    }
    text: str = yaml.safe_dump(document, sort_keys=False)
    return text


class EmbeddedCluster(InProcessCluster):
    """A cluster in this process that is served over HTTP within ``async with``."""

    front: HttpFront
    front_type = HttpFront

    async def __aenter__(self) -> Self:
        self.start()
        self.front = self.front_type(self.api)
        await self.front.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.stop()
        await self.front.stop()

    @property
    def url(self) -> str:
        """The address of the HTTP front."""
        return self.front.url

    def kubeconfig(self) -> str:
        """The text of a kubeconfig for this cluster."""
        return kubeconfig(self.url)

    def write_kubeconfig(self, path: Path) -> None:
        """Write the kubeconfig to a file."""
        path.write_text(self.kubeconfig(), encoding="utf-8")
