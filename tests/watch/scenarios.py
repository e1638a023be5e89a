"""What a connection may suffer, and what the reflector must make of it: one function each.

Every scenario leaves the collection equal to the server's, and where it matters asserts how often
the server was asked.
"""

import asyncio
from unittest.mock import patch

from kai_py.watch import wire
from tests.watch.collection_server import Fault


async def synced(stage, *names):
    for name in names:
        stage.server.put(name)
    await stage.settle(1)
    stage.assert_equal()
    stage.told()
    stage.server.requests.clear()


async def deletion_in_the_gap(stage):
    await synced(stage, "a", "b")
    stage.server.cut()
    stage.server.delete("b")
    stage.server.put("c")
    stage.server.compact()
    await stage.settle()
    stage.assert_equal()
    assert stage.told() == [("DELETED", "b"), ("ADDED", "c")]
    assert stage.server.count("watch") == 2


async def recreation_in_the_gap(stage):
    await synced(stage, "a")
    stage.server.cut()
    stage.server.recreate("a", size=2)
    stage.server.compact()
    await stage.settle()
    stage.assert_equal()
    assert stage.told() == [("DELETED", "a"), ("ADDED", "a")]


async def changes_in_the_gap(stage):
    await synced(stage, "a", "b")
    stage.server.cut()
    stage.server.put("a", size=5)
    stage.server.delete("b")
    await stage.settle()
    stage.assert_equal()
    assert stage.told() == [("MODIFIED", "a"), ("DELETED", "b")]
    assert [asked for asked, _ in stage.server.requests] == ["watch"]


async def server_errors(stage):
    await synced(stage, "a")
    stage.server.fail("watch", Fault(code=500, forever=True))
    stage.server.cut()
    await asyncio.sleep(5)
    assert 3 <= stage.server.count("watch") <= 6
    assert "500" in stage.reflector.problem
    stage.server.put("b")
    stage.server.calm()
    await stage.settle()
    stage.assert_equal()
    assert stage.reflector.problem == ""
    assert stage.server.count("list") == 0


async def too_many_requests(stage):
    await synced(stage, "a")
    stage.server.fail("watch", Fault(code=429, retry_after=3, forever=True))
    stage.server.cut()
    await asyncio.sleep(10)
    assert 3 <= stage.server.count("watch") <= 4
    stage.server.calm()
    await stage.settle()
    stage.assert_equal()


async def long_retry_after(stage):
    """No answer keeps a view from being read for as long as decisions may rest on it."""
    await synced(stage, "a")
    stage.server.fail("watch", Fault(code=429, retry_after=300, forever=True))
    stage.server.cut()
    await asyncio.sleep(1)
    stage.server.put("b")
    stage.server.calm()
    await asyncio.sleep(30)
    stage.assert_equal()
    assert stage.server.count("watch") == 2


async def immediate_closes(stage):
    await synced(stage, "a")
    stage.server.fail("watch", Fault(lines=0, clean=True, forever=True))
    stage.server.cut()
    await asyncio.sleep(5)
    assert 3 <= stage.server.count("watch") <= 6
    stage.server.put("b")
    stage.server.calm()
    await stage.settle()
    stage.assert_equal()


async def cut_in_mid_initial_events(stage):
    for name in "abcde":
        stage.server.put(name)
    stage.server.fail("watch", Fault(lines=3))
    await asyncio.sleep(0.1)
    assert stage.server.count("watch") == 1
    assert not stage.collection.objects
    assert not stage.reflector.synced
    assert stage.reflector.version == ""
    await stage.settle()
    stage.assert_equal()
    assert [item.get("sendInitialEvents") for _, item in stage.server.requests] == ["true"] * 2


async def initial_events_never_end(stage):
    for name in "abcde":
        stage.server.put(name)
    for _ in range(3):
        stage.server.fail("watch", Fault(lines=3))
    await stage.settle()
    stage.assert_equal()
    assert stage.server.count("list") == 1


async def cut_in_mid_line(stage):
    await synced(stage, "a")
    stage.server.fail("watch", Fault(lines=1, half_line=True))
    stage.server.cut()
    stage.server.put("a", size=2)
    stage.server.put("b")
    await stage.settle()
    stage.assert_equal()
    assert stage.told() == [("MODIFIED", "a"), ("ADDED", "b")]
    assert stage.server.count("list") == 0


async def bookmark_outlives_compaction(stage):
    await synced(stage, "a")
    stage.server.log.clear()
    stage.server.revision += 50
    stage.server.history[stage.server.revision] = dict(stage.server.objects)
    stage.server.bookmark()
    await asyncio.sleep(0.1)
    stage.server.compact()
    stage.server.cut()
    await asyncio.sleep(2)
    stage.server.put("b")
    await stage.settle()
    stage.assert_equal()
    assert len(stage.server.requests) == 1
    parameters = stage.server.requests[0][1]
    assert parameters["resourceVersion"] == str(stage.server.revision - 1)
    assert parameters["allowWatchBookmarks"] == "true"


async def error_event(stage):
    await synced(stage, "a", "b")
    stage.server.send(b'{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd"}}\n')
    await asyncio.sleep(0.01)
    assert stage.reflector.version == ""
    stage.server.delete("b")
    await stage.settle()
    stage.assert_equal()


async def sees_the_deletion_of_b(stage):
    stage.server.delete("b")
    await stage.settle()
    stage.assert_equal()
    assert stage.told() == [("DELETED", "b")]


async def garbage_line(stage):
    await synced(stage, "a", "b")
    stage.server.send(b"<html>502 Bad Gateway</html>\n")
    await asyncio.sleep(0.01)
    assert stage.reflector.version == ""
    await sees_the_deletion_of_b(stage)


async def line_without_end(stage):
    with patch.object(wire, "MAX_OBJECT_BYTES", 10_000):
        await synced(stage, "a", "b")
        for _ in range(11):
            stage.server.send(b"x" * 1000)
        await asyncio.sleep(0.01)
        assert stage.reflector.version == ""
    await sees_the_deletion_of_b(stage)


async def paged_list(stage):
    for name in "abcdefg":
        stage.server.put(name)
    await stage.settle()
    stage.assert_equal()
    assert stage.server.count("list") == 3
    assert [name for _, name in stage.told()] == list("abcdefg")


async def page_token_expires(stage):
    for name in "abcdefg":
        stage.server.put(name)
    stage.server.fail("list", Fault())
    stage.server.fail("list", Fault(code=410))
    await stage.settle()
    stage.assert_equal()
    assert [item.get("limit") for verb, item in stage.server.requests if verb == "list"] == [
        "3",
        "3",
        None,
    ]


async def initial_events_not_served(stage):
    for name in "ab":
        stage.server.put(name)
    await asyncio.sleep(15)
    if stage.server.initial_events == "ignored":
        stage.server.bookmark()
    await stage.settle()
    stage.assert_equal()
    stage.server.cut()
    stage.server.delete("a")
    stage.server.compact()
    await stage.settle()
    stage.assert_equal()
    asked = [item for _, item in stage.server.requests if "sendInitialEvents" in item]
    assert len(asked) == 1


async def undecodable_object(stage):
    await synced(stage, "a", "b", "c")
    stage.server.put("b", size="large")
    stage.server.put("c", size=3)
    await asyncio.sleep(1)
    assert stage.told() == [("DELETED", "b"), ("MODIFIED", "c")]
    (rejected,) = stage.collection.rejected.values()
    assert rejected.key == ("default", "b")
    assert "$.size" in rejected.reason
    stage.server.cut()
    stage.server.compact()
    stage.server.put("d")
    await stage.settle()
    assert sorted(name for _, name in stage.collection.objects) == ["a", "c", "d"]
    assert list(stage.collection.rejected) == [("default", "b")]
    stage.server.put("b", size=1)
    await stage.settle()
    stage.assert_equal()
    assert not stage.collection.rejected


async def nameless_object(stage):
    await synced(stage, "a")
    stage.server.send(b'{"type":"ADDED","object":{"metadata":null}}\n')
    stage.server.send(b'{"type":"SHRUNK","object":{}}\n')
    stage.server.put("b")
    await stage.settle()
    stage.assert_equal()


async def silence(stage):
    await synced(stage, "a")
    stage.server.streams.clear()
    stage.server.put("b")
    await asyncio.sleep(70)
    assert ("default", "b") not in stage.collection.objects
    assert asyncio.get_running_loop().time() - stage.reflector.last_progress > 65
    await stage.settle(20)
    stage.assert_equal()
    assert stage.server.count("list") == 1
