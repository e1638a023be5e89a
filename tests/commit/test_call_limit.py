"""Calls that hang because of one namespace leave slots for those of others."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kai_py.api.references import PodRef
from kai_py.commit.api_access import CallLimit
from kai_py.embedded.resources import NAMESPACES, PODS
from kai_py.grouping.gang import Owner
from kai_py.plan.plan import Plan
from tests.commit.assume_cache import RecordingAssumeCache
from tests.commit.cluster import JOB, SCHEDULER, Cluster, gang_of, placed


class Calls:
    """Calls that go on until they are ended."""

    def __init__(self, limit: int) -> None:
        self.limit = CallLimit(limit)
        self.under_way: list[str] = []
        self.tasks: list[asyncio.Task] = []
        self.end = asyncio.Event()

    async def start(self, namespace: str, count: int = 1) -> None:
        self.tasks += [asyncio.create_task(self._call(namespace)) for _ in range(count)]
        await asyncio.sleep(0)

    async def _call(self, namespace: str) -> None:
        async with self.limit.slot(namespace):
            self.under_way.append(namespace)
            try:
                await self.end.wait()
            finally:
                self.under_way.remove(namespace)


@pytest.mark.parametrize("limit", range(1, 40))
async def test_a_namespace_alone_gets_as_many_as_the_limit_says(limit):
    calls = Calls(limit)
    await calls.start("a", 2 * limit)
    assert len(calls.under_way) == limit
    assert calls.limit.locked()
    calls.end.set()
    await asyncio.gather(*calls.tasks)
    assert not calls.limit.locked()


async def test_those_that_hang_leave_some_for_others():
    calls = Calls(16)
    for namespace in ("a", "b", "c"):
        await calls.start(namespace, 100)
    assert [calls.under_way.count(each) for each in ("a", "b", "c")] == [16, 4, 1]


async def test_namespaces_take_turns_and_calls_of_one_keep_their_order():
    calls, order = Calls(1), []

    async def note(name: str) -> None:
        async with calls.limit.slot(name[0]):
            order.append(name)

    await calls.start("x")
    waiting = [asyncio.create_task(note(name)) for name in ("a1", "a2", "a3", "b1", "b2")]
    await asyncio.sleep(0)
    calls.end.set()
    await asyncio.gather(*waiting)
    assert order == ["a1", "b1", "a2", "b2", "a3"]


steps = st.lists(
    st.tuples(st.sampled_from(("start", "cancel")), st.sampled_from("abc"), st.integers(0, 20)),
    max_size=40,
)


@given(limit=st.integers(1, 6), steps=steps, at_once=st.booleans())
def test_no_slot_is_lost_whenever_calls_are_given_up(limit, steps, at_once):
    async def run() -> None:
        calls = Calls(limit)
        for step, namespace, number in steps:
            if step == "start":
                await calls.start(namespace)
            elif calls.tasks:
                calls.tasks[number % len(calls.tasks)].cancel()
            if not at_once:
                await asyncio.sleep(0)
        calls.end.set()
        await asyncio.gather(*calls.tasks, return_exceptions=True)
        calls.end.clear()
        calls.tasks.clear()
        await calls.start("a", 2 * limit)
        assert len(calls.under_way) == limit
        for task in calls.tasks:
            task.cancel()
        await asyncio.gather(*calls.tasks, return_exceptions=True)

    asyncio.run(run())


async def test_a_webhook_that_hangs_holds_up_one_namespace():
    """Of 40 pods whose bindings are never answered, and one of another namespace."""
    cluster, cache = Cluster(), RecordingAssumeCache()
    cluster.api.create(NAMESPACES, {"metadata": {"name": "hung"}})
    spec = {"containers": [{"name": "main", "image": "i"}], "schedulerName": SCHEDULER}

    def pod(name: str, namespace: str) -> PodRef:
        body = {"metadata": {"name": name}, "spec": spec}
        return PodRef(namespace, name, cluster.api.create(PODS, body, namespace)["metadata"]["uid"])

    async def hang(_call, _serve):
        await asyncio.Event().wait()

    def is_hung(call):
        return "/namespaces/hung/" in call.path and call.kind == "Pod/binding"

    cluster.faults += [(is_hung, hang)] * 40
    hung = gang_of(*(placed(pod(f"p{n}", "hung"), "node-a") for n in range(40)))
    owner = Owner(JOB.api_version, JOB.kind, "hung", JOB.name, JOB.uid)
    hung = replace(hung, gang="hung/Job/train", owner=owner)
    other = gang_of(placed(cluster.add_pod("worker-0"), "node-a"))
    committer = cluster.committer(cache)
    for gang in (hung, other):
        committer.commit(Plan(placements=(gang,)), now=0.0)
        for _ in range(100):
            await asyncio.sleep(0)
    assert cluster.pod("worker-0").spec.node_name == "node-a"
    assert cluster.made("create", "Pod/binding") == 17
    for task in committer.tasks:
        task.cancel()
