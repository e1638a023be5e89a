"""Objects nested as deep as the API server accepts end nothing, at whatever depth a decoder stops.

A decoder stops where Python's stack ends, which depends on the calls around it: an object may be
read as part of a page or event and then not by itself. So all depths near the limit are tried.
"""

import asyncio
from contextlib import asynccontextmanager

import pytest

from kai_py.watch.client import Client
from kai_py.watch.collection import Collection
from kai_py.watch.kinds import NATIVE_GROUPS, RESOURCE_CLAIMS
from kai_py.watch.reflector import Reflector

DEPTHS = (500, *range(860, 1010), 4900)


def deep_claim(depth):
    parameters = '{"a":' + "[" * depth + "]" * depth + "}"
    return (
        '{"kind":"ResourceClaim","metadata":{"name":"c","namespace":"ns","uid":"u",'
        '"resourceVersion":"7"},"spec":{"devices":{"config":[{"opaque":{"driver":"d",'
        f'"parameters":{parameters}}}}}]}}}}}}'
    )


class OneObject:
    """A server of one deep object: in a list, or in one event after an empty list."""

    def __init__(self, depth, event=""):
        self.text, self.event = deep_claim(depth), event

    async def send(self, call, **_options):
        if call.verb != "list":
            return self.text.encode()
        items = "" if self.event else self.text
        return f'{{"metadata":{{"resourceVersion":"6"}},"items":[{items}]}}'.encode()

    @asynccontextmanager
    async def stream(self, _call, *, idle):
        async def chunks():
            if self.event:
                yield f'{{"type":"{self.event}","object":{self.text}}}\n'.encode()
            await asyncio.sleep(idle)

        yield chunks()


@pytest.mark.parametrize("kind", [RESOURCE_CLAIMS, NATIVE_GROUPS], ids=lambda kind: kind.name)
@pytest.mark.parametrize("event", ["", "ADDED", "DELETED"])
async def test_a_reflector_reads_objects_of_any_depth(kind, event):
    for depth in DEPTHS:
        collection = Collection(kind, lambda *_: None)
        reflector = Reflector(OneObject(depth, event), kind.at(), collection)
        reflector._initial_attempts = 0
        task = asyncio.ensure_future(reflector.run())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not task.done(), (depth, task.exception())
        task.cancel()
        present = [] if event == "DELETED" else [("ns", "c")]
        assert [*collection.objects] == present, depth
        assert not collection.rejected


async def test_a_client_reads_objects_of_any_depth():
    for depth in DEPTHS:
        client = Client(OneObject(depth))
        claim = await client.get(RESOURCE_CLAIMS.at(), "c", namespace="ns")
        assert claim.metadata.uid == "u"
        patched = await client.patch(RESOURCE_CLAIMS.at(), "c", {}, namespace="ns")
        assert patched.metadata.resource_version == "7"
        await client.delete(RESOURCE_CLAIMS.at(), "c", namespace="ns")
