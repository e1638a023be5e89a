"""Kinds of owners: found in any version, refused politely, found again when they come back."""

import asyncio
import json
from contextlib import suppress

import pytest

from kai_py.grouping.owner_chain import GroupKind
from kai_py.watch import owner_kinds
from kai_py.watch.errors import Forbidden, NotFound, Unreachable
from kai_py.watch.owner_kinds import OwnerKindWatcher
from tests.watch import virtual_time
from tests.watch.collection_server import failure

LWS = GroupKind("leaderworkerset.x-k8s.io", "LeaderWorkerSet")


class Server:
    """Answers discovery; plays mirror and client at once."""

    def __init__(self, *versions):
        self.versions = list(versions)
        self.refuses = False
        self.down = False
        self.followed = []

    async def read(self, path, *, kind):
        if self.down:
            raise Unreachable("down")
        if path == "/apis":
            versions = [{"version": each} for each in self.versions]
            groups = [{"name": LWS.group, "versions": versions}] if versions else []
            return json.dumps({"groups": groups}).encode()
        verbs = ["list", "watch"]
        resources = [
            {"name": "leaderworkersets", "kind": LWS.kind, "verbs": verbs, "namespaced": True},
            {"name": "leaderworkersets/status", "kind": LWS.kind, "verbs": ["get"]},
        ]
        return json.dumps({"resources": resources}).encode()

    async def check_list(self, resource):
        if self.refuses:
            raise failure(403)

    def follow(self, kind):
        self.followed.append(kind)

    def unfollow(self, kind):
        self.followed.remove(kind)

    def has_read(self, kind):
        return True

    def served(self, kind):
        return kind if {*kind.versions} & {*self.versions} else None


async def told(server, *, until, decoder=lambda _kind: None):
    """What is said of the kind until ``until`` says it is enough."""
    said = []

    def readable(kind, *, readable):
        assert kind == LWS
        said.append(readable)

    kinds = OwnerKindWatcher(server, server, decoder, readable)
    kinds.want(LWS)
    task = asyncio.ensure_future(kinds.run())
    try:
        for _ in range(500):
            if until(said):
                break
            await asyncio.sleep(0.01)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    return said


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(owner_kinds, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(owner_kinds, "UNREACHABLE_SECONDS", 0.05)


async def test_a_kind_is_followed_in_every_served_version_by_its_metadata():
    server = Server("v2", "v1")
    assert await told(server, until=bool) == [True]
    (kind,) = server.followed
    assert (kind.plural, kind.group, list(kind.versions)) == (
        "leaderworkersets",
        LWS.group,
        ["v2", "v1"],
    )
    assert kind.metadata_only


async def test_with_a_decoder_whole_objects_are_read():
    server = Server("v1")
    await told(server, until=bool, decoder=lambda _kind: json.loads)
    assert not server.followed[0].metadata_only


@pytest.mark.parametrize("failure", ["unserved", "refused"])
async def test_what_cannot_be_read_is_said_and_tried_again(failure):
    server = Server(*(["v1"] if failure == "refused" else []))
    server.refuses = failure == "refused"

    def enough(said):
        if len(said) == 2:
            server.refuses, server.versions = False, ["v1"]
        return said[-1:] == [True]

    said = await told(server, until=enough)
    assert said[:2] == [False, False]
    assert len(server.followed) == 1


async def test_a_kind_that_disappears_is_looked_for_again_in_other_versions():
    server = Server("v1")

    def enough(said):
        if said == [True] and server.versions:
            asyncio.get_running_loop().call_later(0.15, server.versions.clear)
        if said[-1:] == [False]:
            server.versions = ["v2"]
        return said[-1:] == [True] and len(said) > 1

    assert (await told(server, until=enough))[:2] == [True, False]
    assert [list(kind.versions) for kind in server.followed] == [["v2"]]


async def test_an_unreachable_server_says_nothing_of_kinds():
    server = Server("v1")
    server.down = True
    kinds = OwnerKindWatcher(server, server, lambda _kind: None, lambda *_args, **_kw: None)
    kinds.want(LWS)
    task = asyncio.ensure_future(kinds.run())
    await kinds.wait_settled(0.2)
    assert not kinds.settled
    server.down = False
    await kinds.wait_settled(2.0)
    assert kinds.settled
    task.cancel()
    assert len(server.followed) == 1


class Hanging(Server):
    """Has a second group, whose server takes half a minute to say nothing."""

    GROUP = "hangs.example.com"

    async def read(self, path, *, kind):
        if path == f"/apis/{self.GROUP}/v1":
            await asyncio.sleep(30)
            raise Unreachable("no answer")
        answer = json.loads(await super().read(path, kind=kind))
        if path == "/apis":
            answer["groups"].append({"name": self.GROUP, "versions": [{"version": "v1"}]})
        return json.dumps(answer).encode()


@virtual_time.test
async def test_kinds_of_a_group_that_hangs_do_not_hold_up_those_of_others():
    server, found = Hanging("v1"), []
    kinds = OwnerKindWatcher(server, server, lambda _: None, lambda kind, **_: found.append(kind))
    for number in range(100):
        kinds.want(GroupKind(Hanging.GROUP, f"Kind{number}"))
    kinds.want(LWS)
    task = asyncio.ensure_future(kinds.run())
    await asyncio.sleep(40)
    task.cancel()
    assert found == [LWS]


def test_refusals_are_the_errors_that_are_handled():
    assert isinstance(failure(403), Forbidden)
    assert isinstance(failure(404), NotFound)


async def test_kinds_by_the_hundred_that_are_not_served_cost_a_call_and_a_line_each_once(caplog):
    """Any pod may name any text as the kind of its owner."""
    caplog.set_level("INFO", "kai_py.watch.owner_kinds")
    server, calls = Server("v1"), []
    read = server.read

    async def counted(path, *, kind):
        calls.append(path)
        return await read(path, kind=kind)

    server.read = counted
    refused, enough = [], asyncio.Event()

    def refuse(kind, **_):
        refused.append(kind)
        if len(refused) == 2000:
            enough.set()

    kinds = OwnerKindWatcher(server, server, lambda _: None, refuse)
    for number in range(500):
        kinds.want(GroupKind(f"group-{number}.example.com", "Any"))
        kinds.want(GroupKind(LWS.group, f"Any{number}"))
    task = asyncio.ensure_future(kinds.run())
    await enough.wait()
    task.cancel()
    assert set(calls) == {"/apis", f"/apis/{LWS.group}/v1"}
    assert len(calls) <= 3 * 2
    assert len(caplog.messages) == 1000


async def test_a_kind_that_is_not_needed_any_more_is_not_looked_for_again():
    server = Server()
    kinds = OwnerKindWatcher(server, server, lambda _: None, lambda _kind, **_: None)
    read = server.read

    async def dropped_meanwhile(path, *, kind):
        kinds.drop(LWS)
        return await read(path, kind=kind)

    server.read = dropped_meanwhile
    kinds.want(LWS)
    task = asyncio.ensure_future(kinds.run())
    await asyncio.sleep(0.02)
    server.read, server.versions = read, ["v1"]
    await asyncio.sleep(0.2)
    task.cancel()
    assert server.followed == []


@virtual_time.test
async def test_new_kinds_that_are_named_all_the_time_do_not_keep_others_from_being_found(
    monkeypatch,
):
    monkeypatch.setattr(owner_kinds, "RETRY_SECONDS", 60.0)
    said = {}

    def readable(kind, *, readable):
        said[kind] = readable

    server = Server()
    kinds = OwnerKindWatcher(server, server, lambda _kind: None, readable)
    task = asyncio.ensure_future(kinds.run())
    kinds.want(LWS)
    await asyncio.sleep(1)
    assert said == {LWS: False}
    server.versions = ["v1"]
    for number in range(20):
        kinds.want(GroupKind("tenant.example", f"Kind{number}"))
        await asyncio.sleep(5)
    assert said[LWS]
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
