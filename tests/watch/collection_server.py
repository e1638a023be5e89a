"""A server of one collection with history: lists, pages, watches, compaction, and faults on demand.

``CollectionServer`` is the state and the rules; ``MemoryTransport`` calls it directly and ``serve``
puts it behind HTTP. Faults are consumed by the next request of their verb, in order.
"""

import asyncio
import copy
import json
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from kai_py.watch.errors import Status, Unreachable, from_status
from kai_py.watch.wire import INITIAL_EVENTS_END


@dataclass
class Fault:
    """What goes wrong with one request: a failure, or a stream that ends after some lines."""

    code: int = 0
    retry_after: float = 0.0
    lines: int | None = None
    clean: bool = False
    half_line: bool = False
    forever: bool = False


@dataclass
class CollectionServer:
    initial_events: str = "served"
    """served, refused (422) or ignored (as by a server that does not know them)."""
    revision: int = 10
    compacted: int = 0
    objects: dict = field(default_factory=dict)
    history: dict = field(default_factory=dict)
    log: list = field(default_factory=list)
    faults: dict = field(default_factory=lambda: {"list": deque(), "watch": deque()})
    requests: list = field(default_factory=list)
    streams: list = field(default_factory=list)
    pages: dict = field(default_factory=dict)
    gone_as_event: bool = False
    missing: bool = False
    uids: int = 0

    def __post_init__(self):
        self.history[self.revision] = {}

    def put(self, name, **fields):
        known = self.objects.get(name)
        if known is None:
            self.uids += 1
        uid = known["metadata"]["uid"] if known else f"uid-{self.uids}"
        self.revision += 1
        made = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": uid,
                "resourceVersion": str(self.revision),
            },
            **fields,
        }
        self.objects[name] = made
        self._happened("MODIFIED" if known else "ADDED", made)

    def delete(self, name):
        gone = copy.deepcopy(self.objects.pop(name))
        self.revision += 1
        gone["metadata"]["resourceVersion"] = str(self.revision)
        self._happened("DELETED", gone)

    def recreate(self, name, **fields):
        self.delete(name)
        self.put(name, **fields)

    def bookmark(self):
        self._tell(line("BOOKMARK", {"metadata": {"resourceVersion": str(self.revision)}}))

    def send(self, raw):
        """Send any bytes to all open streams."""
        self._tell(raw)

    def compact(self):
        self.compacted = self.revision
        self.pages.clear()

    def cut(self):
        """Close all open streams, cleanly."""
        self._tell(None)

    def fail(self, verb, fault):
        self.faults[verb].append(fault)

    def calm(self):
        for pending in self.faults.values():
            pending.clear()

    def count(self, verb):
        return sum(1 for asked, _ in self.requests if asked == verb)

    def list(self, parameters):
        self.requests.append(("list", parameters))
        fault = self._next_fault("list")
        if fault and fault.code:
            raise failure(fault.code, fault.retry_after)
        token = parameters.get("continue")
        if token:
            if token not in self.pages:
                raise failure(410)
            revision, items = self.pages.pop(token)
        else:
            revision, items = self.revision, list(self.objects.values())
        limit = int(parameters.get("limit", 0)) or len(items)
        page, rest = items[:limit], items[limit:]
        metadata = {"resourceVersion": str(revision)}
        if rest:
            metadata["continue"] = f"token-{len(self.requests)}"
            self.pages[metadata["continue"]] = (revision, rest)
        return json.dumps({"kind": "List", "metadata": metadata, "items": page}).encode()

    def open(self, parameters):
        """Check a watch and give its lines as an asynchronous generator."""
        self.requests.append(("watch", parameters))
        fault = self._next_fault("watch") or Fault()
        if fault.code:
            raise failure(fault.code, fault.retry_after)
        initial = parameters.get("sendInitialEvents") == "true"
        if initial and self.initial_events == "refused":
            raise failure(422)
        first = self._first_lines(parameters, initial=initial)
        queue = asyncio.Queue()
        for item in first:
            queue.put_nowait(item)
        self.streams.append(queue)
        return self._lines(queue, fault)

    def _first_lines(self, parameters, *, initial):
        if initial:
            lines = [line("ADDED", item) for item in self.objects.values()]
            if self.initial_events == "served":
                end = {"resourceVersion": str(self.revision)}
                end["annotations"] = {INITIAL_EVENTS_END: "true"}
                lines.append(line("BOOKMARK", {"metadata": end}))
            return lines
        position = int(parameters["resourceVersion"])
        if position >= self.compacted:
            return [line(kind, item) for kind, item in self.log if version(item) > position]
        if self.gone_as_event:
            return [line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})]
        raise failure(410)

    async def _lines(self, queue, fault):
        try:
            sent = 0
            while fault.lines is None or sent < fault.lines:
                item = await queue.get()
                if item is None:
                    return
                yield item
                sent += 1
            if fault.half_line:
                yield b'{"type":"ADDED","object":{"metadata":{"na'
            if not fault.clean:
                raise Unreachable("cut")
        finally:
            self.streams.remove(queue)

    def _next_fault(self, verb):
        if self.missing:
            raise failure(404)
        pending = self.faults[verb]
        if pending and pending[0].forever:
            return pending[0]
        return pending.popleft() if pending else None

    def _happened(self, kind, item):
        # An object is replaced as a whole, never changed.
        self.history[self.revision] = dict(self.objects)
        self.log.append((kind, copy.deepcopy(item)))
        self._tell(line(kind, item))

    def _tell(self, item):
        for queue in self.streams:
            queue.put_nowait(item)


class MemoryTransport:
    """Calls the server without a network."""

    def __init__(self, server):
        self.server = server

    async def send(self, call, *, timeout_seconds=None):
        await asyncio.sleep(0)
        return self.server.list(call.parameters)

    @asynccontextmanager
    async def stream(self, call, *, idle):
        await asyncio.sleep(0)
        chunks = self.server.open(call.parameters)
        try:
            yield chunks
        finally:
            await chunks.aclose()


@asynccontextmanager
async def serve(handler):
    """Serve all paths by one handler; gives the base URL."""

    async def answer(request):
        return await handler(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


def http_handler(server):
    """Give a handler that answers as an API server with this one collection."""

    async def handle(request):
        parameters = dict(request.query)
        try:
            if "watch" not in parameters:
                return web.Response(body=server.list(parameters), content_type="application/json")
            lines = server.open(parameters)
        except Exception as error:
            return status_response(error)
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            async for item in lines:
                await response.write(item)
        except Unreachable:
            request.transport.abort()
        return response

    return handle


def status_response(error):
    headers = {"Retry-After": str(int(error.retry_after))} if error.retry_after else {}
    body = {"kind": "Status", "code": error.code, "reason": error.reason, "message": "scripted"}
    return web.json_response(body, status=error.code, headers=headers)


def failure(code, retry_after=0.0):
    return from_status("scripted", Status(code=code, reason="Scripted"), wait=retry_after)


def line(kind, item):
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


def version(item):
    return int(item["metadata"]["resourceVersion"])
