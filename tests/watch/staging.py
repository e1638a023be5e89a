"""A reflector of a small kind, at work on a collection server, with every change recorded."""

import asyncio
from contextlib import asynccontextmanager

import msgspec

from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.record import Record
from kai_py.watch.collection import Collection
from kai_py.watch.credentials import Anonymous
from kai_py.watch.http_transport import HttpTransport
from kai_py.watch.reflector import Reflector
from kai_py.watch.resource import define_kind, key_of
from tests.watch import virtual_time
from tests.watch.collection_server import CollectionServer, MemoryTransport, http_handler, serve


class Thing(Record, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    size: int = 0


THINGS = define_kind(Thing, "Thing", "things", "v1", group="example.com")


class Stage:
    def __init__(self, server, transport):
        self.server = server
        self.changes = []
        self.replayed = {}
        self.collection = Collection(THINGS, self.changed)
        self.reflector = Reflector(
            transport, THINGS.at(), self.collection, uniform=lambda low, high: (low + high) / 2
        )
        self.task = asyncio.ensure_future(self.reflector.run())

    def changed(self, kind, old, new):
        """Record a change; the record that it replaces must be the one told last."""
        key = key_of(new if new is not None else old)
        assert self.replayed.get(key) is old
        if old is not None and new is not None:
            assert old.metadata.uid == new.metadata.uid
        if new is None:
            del self.replayed[key]
        else:
            self.replayed[key] = new
        word = "DELETED" if new is None else "ADDED" if old is None else "MODIFIED"
        self.changes.append((word, key[1]))

    async def settle(self, seconds=70.0):
        """Let time pass until the reflector has certainly caught up."""
        await asyncio.sleep(seconds)
        if self.task.done():
            self.task.result()

    def assert_equal(self):
        """The collection, what was told of it and the server are the same."""
        assert self.reflector.synced
        assert self.replayed == self.collection.objects
        assert documents(self.collection.objects) == self.server.objects

    def assert_at_version(self):
        """The collection is what the server had at the version that the reflector resumes from."""
        if self.reflector.version:
            known = self.server.history[int(self.reflector.version)]
            assert documents(self.collection.objects) == known

    def told(self):
        """Give the changes since the last call."""
        changes, self.changes = self.changes, []
        return changes


def documents(objects):
    fields = ("name", "namespace", "uid", "resourceVersion")
    result = {}
    for (_, name), thing in objects.items():
        built = msgspec.to_builtins(thing)
        result[name] = {"metadata": {key: built["metadata"][key] for key in fields}}
        if thing.size:
            result[name]["size"] = thing.size
    return result


@asynccontextmanager
async def in_memory(server):
    stage = Stage(server, MemoryTransport(server))
    try:
        yield stage
    finally:
        await _end(stage.task)


@asynccontextmanager
async def over_http(server):
    async with (
        serve(http_handler(server)) as url,
        HttpTransport(Anonymous(url)) as transport,
    ):
        stage = Stage(server, transport)
        try:
            yield stage
        finally:
            await _end(stage.task)
            server.cut()
            await asyncio.sleep(0)


async def _end(task):
    task.cancel()
    await asyncio.wait((task,))


def play(scenario, *, staged=in_memory, **options):
    """Run a scenario, ``async (stage) -> None``, in virtual time."""

    async def main():
        async with staged(CollectionServer(**options)) as stage:
            await scenario(stage)

    virtual_time.run(main(), grace=0.002 if staged is over_http else 0.0)
