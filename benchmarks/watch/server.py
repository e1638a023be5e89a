"""An API server with a big cluster in it that only lists and watches, in a process of its own.

Initial events and pages are made as they are sent. ``POST /events?count=N`` sends N changes of pods
to the open watches. Prints its port when it serves.

    python -m benchmarks.watch.server NODES PODS
"""

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from aiohttp import web

from benchmarks.watch import documents
from benchmarks.watch.documents import PODS_PER_JOB, Template

REVISION = "1000"
CHUNK = 100


@dataclass(frozen=True)
class Collection:
    """``count`` objects of one kind."""

    root: str
    plural: str
    template: Template
    count: int


class BigCluster:
    """The served collections and the watches that are open on pods."""

    def __init__(self, nodes: int, pods: int) -> None:
        self._pods = Collection("/api/v1", "pods", documents.pods(nodes), pods)
        self._collections = (
            self._pods,
            Collection("/api/v1", "nodes", documents.nodes(), nodes),
            Collection("/api/v1", "namespaces", documents.namespaces(), 1),
            Collection("/apis/batch/v1", "jobs", documents.jobs(), pods // PODS_PER_JOB),
            Collection("/apis/scheduling.kai.io/v1alpha1", "queues", documents.queues(), 1),
        )
        self._watches: list[web.StreamResponse] = []

    def application(self) -> web.Application:
        """Every route."""
        app = web.Application()
        app.router.add_post("/events", self._send_events)
        app.router.add_get("/apis", self._groups)
        for root in dict.fromkeys(each.root for each in self._collections):
            app.router.add_get(root, self._resources)
        for each in self._collections:
            app.router.add_get(f"{each.root}/{each.plural}", self._watch)
        return app

    async def _groups(self, _: web.Request) -> web.Response:
        roots = {each.root.removeprefix("/apis/") for each in self._collections}
        named = [root.split("/") for root in sorted(roots - {"/api/v1"})]
        groups = [{"name": name, "versions": [{"version": version}]} for name, version in named]
        return web.json_response({"groups": groups})

    async def _resources(self, request: web.Request) -> web.Response:
        listed = [
            {"name": each.plural, "verbs": ["list", "watch"]}
            for each in self._collections
            if each.root == request.path
        ]
        return web.json_response({"resources": listed})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        found = next(c for c in self._collections if f"{c.root}/{c.plural}" == request.path)
        answer = web.StreamResponse()
        await answer.prepare(request)
        if request.query.get("sendInitialEvents") == "true":
            for lines in _initial_events(found):
                await answer.write(lines)
        if found is self._pods:
            self._watches.append(answer)
        await asyncio.Event().wait()
        return answer

    async def _send_events(self, request: web.Request) -> web.Response:
        count = int(request.query["count"])
        numbers = [i % self._pods.count for i in range(count)]
        for start in range(0, count, CHUNK):
            lines = b"".join(
                _line("MODIFIED", _changed(self._pods.template(i), revision=2000 + start))
                for i in numbers[start : start + CHUNK]
            )
            for watch in self._watches:
                await watch.write(lines)
        return web.Response()


def _changed(document: bytes, *, revision: int) -> bytes:
    return document.replace(
        b'"resourceVersion": "%s"' % REVISION.encode(), b'"resourceVersion": "%d"' % revision
    )


def _initial_events(collection: Collection) -> Iterator[bytes]:
    for start in range(0, collection.count, CHUNK):
        numbers = range(start, min(start + CHUNK, collection.count))
        yield b"".join(_line("ADDED", collection.template(i)) for i in numbers)
    ended = {"k8s.io/initial-events-end": "true"}
    mark = {"metadata": {"resourceVersion": REVISION, "annotations": ended}}
    yield _line("BOOKMARK", json.dumps(mark).encode())


def _line(kind: str, document: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), document)


async def serve(nodes: int, pods: int) -> None:
    """Serve on a free port of loopback until ended."""
    runner = web.AppRunner(BigCluster(nodes, pods).application())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
