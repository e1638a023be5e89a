"""A long list is taken in step by step: other work of the event loop has its turn in between.

Objects nested as deep as the API server accepts end nothing, at whatever depth a decoder stops.

A decoder stops where Python's stack ends, which depends on the calls around it: an object may be
read as part of a page or event and then not by itself. So all depths near the limit are tried.
"""

import asyncio
import itertools
from contextlib import asynccontextmanager

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.watch import kinds
from kai_py.watch.client import Client
from kai_py.watch.collection import STEP, Collection
from kai_py.watch.kinds import NATIVE_GROUPS, RESOURCE_CLAIMS
from kai_py.watch.mirror import Mirror
from kai_py.watch.reflector import Reflector
from kai_py.watch.wire import (
    LineSplitter,
    decode_envelope,
    decode_event,
    decode_page,
    flattened,
    without_nulls,
)
from tests.watch import virtual_time
from tests.watch.cluster_server import PODS, ClusterServer


@given(
    lines=st.lists(
        st.binary(min_size=1, max_size=8).filter(lambda x: x.strip() and b"\n" not in x)
    ),
    rest=st.binary(max_size=3).filter(lambda x: b"\n" not in x),
    cuts=st.lists(st.integers(0, 60)),
)
def test_lines_are_the_same_however_they_are_cut(lines, rest, cuts):
    stream = b"".join(line + b"\n" for line in lines) + rest
    marks = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    splitter = LineSplitter()
    found = []
    for start, end in itertools.pairwise(marks):
        found += splitter.feed(stream[start:end])
    assert found == lines


def test_one_line_in_many_chunks_takes_linear_time():
    splitter = LineSplitter()
    chunk = b"x" * 1000
    for _ in range(50_000):
        assert not splitter.feed(chunk)
    assert [len(line) for line in splitter.feed(b"\n")] == [50_000_000]


def test_empty_lines_are_left_out():
    assert LineSplitter().feed(b"\n\r\na\n\n") == [b"a"]


@pytest.mark.parametrize("depth", [100, 199, 250, 5000, 9990])
@pytest.mark.parametrize("brackets", ["[]", '{"a":}'])
def test_deep_json_is_read_without_what_is_too_deep(depth, brackets):
    opening, closing = (brackets[:1], brackets[1:]) if brackets == "[]" else ('{"a":', "}")
    nested = opening * depth + "1" + closing * depth
    line = (
        f'{{"type":"ADDED","object":{{"metadata":{{"name":"x\\"[{{"}},"spec":{nested}}}}}'.encode()
    )
    event = decode_event(line)
    assert decode_envelope(event.object).metadata.name == 'x"[{'
    page = decode_page(b'{"metadata":{"resourceVersion":"7"},"items":[' + line + b"]}", "list")
    assert page.metadata.resource_version == "7"
    assert len(page.items) == 1


def test_nulls_are_left_out_but_for_content_of_no_type():
    value = {"a": None, "b": [None, {"c": None, "raw": {"d": None}}], "raw": [None]}
    assert without_nulls(value) == {"b": [{"raw": {}}], "raw": []}
    kept = {"b": [{"raw": {"d": None}}], "raw": [None]}
    assert without_nulls(value, raw_field="raw") == kept


@given(st.recursive(st.none() | st.text() | st.integers(), lambda e: st.lists(e, max_size=3)))
def test_shallow_json_is_not_changed(value):
    body = msgspec.json.encode(value)
    assert flattened(body) == body


PODS_IN_ALL = 1000


class Turns:
    """How many changes are told before what is scheduled at the first of them has its turn."""

    def __init__(self):
        self.counts = []
        self._told = 0

    def hear(self, *_change):
        if not self._told:
            asyncio.get_running_loop().call_soon(self._end)
        self._told += 1

    def _end(self):
        self.counts.append(self._told)
        self._told = 0


@pytest.mark.slow
@pytest.mark.parametrize("initial_events", ["served", "refused"])
@virtual_time.test
async def test_no_turn_of_the_loop_takes_in_more_than_a_step(initial_events):
    server, turns = ClusterServer(), Turns()
    pods = server.collections[PODS]
    pods.initial_events = initial_events
    for number in range(PODS_IN_ALL):
        pods.put(f"p{number}", spec={})
    mirror = Mirror(Client(server), (kinds.PODS,))
    mirror.subscribe(turns.hear)
    running = asyncio.ensure_future(mirror.run())
    await asyncio.wait_for(mirror.wait_synced(), 60)
    await asyncio.sleep(0.1)
    assert sum(turns.counts) == PODS_IN_ALL
    assert max(turns.counts) <= STEP
    pods.cut()
    for number in range(PODS_IN_ALL):
        pods.delete(f"p{number}")
    pods.compact()
    await asyncio.sleep(60)
    assert not mirror.objects(kinds.PODS)
    assert sum(turns.counts) == 2 * PODS_IN_ALL
    assert max(turns.counts) <= STEP
    running.cancel()


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
