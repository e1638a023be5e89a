"""A view that is silent, or older than our own writes, is known as such."""

import asyncio

import msgspec
import pytest

from kai_py.api.references import PodRef
from kai_py.watch.client import MAX_UNSEEN, OwnWrites
from kai_py.watch.freshness import Freshness
from kai_py.watch.kinds import DISRUPTION_BUDGETS, NODES, PODS, PRIORITY_CLASSES
from kai_py.watch.mirror import Progress
from tests.watch import virtual_time


class Watch:
    """The part of a mirror that freshness asks, moved by hand."""

    def __init__(self):
        self.writes, self.seen, self.last, self.listed = OwnWrites(), "10", 0.0, 0.0
        self.writes.follow(PODS)
        self.pods, self.listener = {}, None
        self.kind, self.refused = PODS, False

    def subscribe(self, listener, _kind):
        self.listener = listener

    def objects(self, _kind):
        return self.pods

    def progress(self, _kinds):
        unseen = self.writes.unseen_since(PODS, self.seen, self.listed)
        yield self.kind, Progress(self.last, self.listed, unseen, refused=self.refused)


@pytest.fixture
def watch():
    return Watch()


@pytest.fixture
def freshness(watch):
    return Freshness(watch, silence=90.0, lag=10.0)


def now():
    return asyncio.get_running_loop().time()


@virtual_time.test
async def test_a_watch_is_silent_once_it_has_been_for_longer_than_the_grace(watch, freshness):
    await asyncio.sleep(90)
    assert freshness.silent() == []
    await asyncio.sleep(1)
    [said] = freshness.silent()
    assert said.startswith("Pod: its watch has been silent for 91 s")
    assert "silent" in await freshness.catch_up()
    watch.last = now()
    assert freshness.silent() == []


@pytest.mark.parametrize(
    ("kind", "goes_on"), [(DISRUPTION_BUDGETS, True), (PRIORITY_CLASSES, True), (NODES, False)]
)
@virtual_time.test
async def test_a_right_that_is_taken_away_stops_only_what_rests_on_it(
    kind, goes_on, watch, freshness
):
    """A scheduler that starts without the right goes on without the kind, too."""
    watch.kind = kind
    await asyncio.sleep(91)
    assert freshness.silent()
    watch.refused = True
    assert bool(freshness.silent()) is not goes_on
    [view] = freshness.measure()
    assert view.silent_for == 91


@virtual_time.test
async def test_a_write_of_ours_that_the_watch_does_not_show_is_noticed(watch, freshness):
    watch.writes.record(PODS, "11", now())
    assert freshness.behind() == []
    await asyncio.sleep(11)
    assert freshness.behind()[0].startswith("Pod: its watch has not shown a write of this process")
    watch.seen = "11"
    assert freshness.behind() == []


@pytest.mark.parametrize("listed", [False, True])
@virtual_time.test
async def test_a_list_shows_what_was_written_before_it_began(listed, watch, freshness):
    watch.writes.record(PODS, "99", now())
    await asyncio.sleep(5)
    watch.listed = now() if listed else 0.0
    await asyncio.sleep(10)
    assert bool(freshness.behind()) is not listed, "as after a restored etcd"


@virtual_time.test
async def test_a_list_does_not_show_what_was_written_just_after_it_began(watch, freshness):
    watch.writes.record(PODS, "99", now())
    await asyncio.sleep(0.1)
    watch.listed = now()
    await asyncio.sleep(0.1)
    watch.writes.record(PODS, "100", now())
    watch.seen = "99"
    (pods,) = freshness.measure()
    assert watch.listed <= pods.unseen_since <= now()
    assert "Pod" in await freshness.catch_up()


@virtual_time.test
async def test_catching_up_waits_for_what_was_written_before_and_for_nothing_later(
    watch, freshness
):
    watch.writes.record(PODS, "11", now())
    loop = asyncio.get_running_loop()
    waiting = asyncio.ensure_future(freshness.catch_up())
    loop.call_later(1.0, watch.writes.record, PODS, "12", 1.0)
    loop.call_later(3.0, setattr, watch, "seen", "11")
    assert await waiting == ""
    assert 3.0 <= now() < 3.1
    watch.seen = "11"
    assert "Pod" in await freshness.catch_up()
    assert now() == pytest.approx(13.1, abs=0.1)


@virtual_time.test
async def test_a_binding_is_seen_when_the_mirror_has_the_pod_on_a_node(watch, freshness):
    pod = _pod("")
    watch.pods["ns", "a"] = pod
    freshness.record_binding(PodRef("ns", "a", "uid"))
    await asyncio.sleep(11)
    assert freshness.behind()
    watch.listener(PODS, pod, _pod("node-a"))
    assert freshness.behind() == []


@pytest.mark.parametrize("first", ["write", "binding"])
@virtual_time.test
async def test_of_a_write_and_a_binding_the_earlier_one_is_waited_for(first, watch, freshness):
    watch.pods["ns", "a"] = _pod("")
    for at, what in enumerate(sorted(("write", "binding"), key=lambda each: each != first)):
        await asyncio.sleep(3.0 * at)
        if what == "write":
            watch.writes.record(PODS, "11", now())
        else:
            freshness.record_binding(PodRef("ns", "a", "uid"))
    (pods,) = freshness.measure()
    assert (pods.unseen_since, pods.behind_for) == (now() - 3.0, 3.0)


@virtual_time.test
async def test_a_binding_that_the_mirror_shows_already_is_not_waited_for(watch, freshness):
    watch.pods["ns", "a"] = _pod("node-a")
    freshness.record_binding(PodRef("ns", "a", "uid"))
    freshness.record_binding(PodRef("ns", "gone", "uid"))
    await asyncio.sleep(11)
    assert freshness.behind() == []


def _pod(node):
    meta = {"name": "a", "namespace": "ns", "uid": "uid"}
    return PODS.at().decode(msgspec.json.encode({"metadata": meta, "spec": {"nodeName": node}}))


def test_writes_that_are_never_shown_take_bounded_memory():
    writes = OwnWrites()
    writes.follow(PODS)
    for number in range(10 * MAX_UNSEEN):
        writes.record(PODS, str(number + 1), float(number))
    assert len(writes._unseen[PODS.permission]) <= MAX_UNSEEN
    assert writes.unseen_since(PODS, "not a number", -1.0) is None
    assert writes.unseen_since(PODS, "1", -1.0) == 1.0
    assert writes.unseen_since(PODS, str(10 * MAX_UNSEEN), -1.0) is None


def test_what_is_not_followed_is_not_recorded():
    writes = OwnWrites()
    writes.record(PODS, "5", 0.0)
    assert writes.unseen_since(PODS, "1", -1.0) is None
