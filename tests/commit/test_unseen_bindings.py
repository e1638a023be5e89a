"""A binding that the API has lost is not assumed for ever."""

import pytest

from kai_py.api.records.core import Pod
from kai_py.commit.maintenance import UnseenBindings
from kai_py.snapshot.tables.pod_table import AssumedBinding
from kai_py.watch.errors import Malformed
from tests.commit.assume_cache import RecordingAssumeCache
from tests.commit.cluster import NAMESPACE


class Watching:
    """Passes over pods that are assumed to be bound."""

    def __init__(self, cluster) -> None:
        self.cluster, self.cache, self.in_flight = cluster, RecordingAssumeCache(), set()
        self.access = cluster.access()
        self.passes = UnseenBindings(self.access, self.cache, lambda: self.in_flight, 90.0)

    async def at(self, *moments: float) -> list[str]:
        for now in moments:
            await self.passes.run_once(self.cluster.pods, now)
        return self.cache.forgotten

    async def bind(self, pod) -> None:
        await self.access.client.bind(namespace=NAMESPACE, pod=pod.name, uid=pod.uid, node="node-a")


@pytest.fixture
def watching(cluster):
    return Watching(cluster)


async def test_a_binding_that_is_lost_is_forgotten_after_the_grace(cluster, watching):
    pod = cluster.add_pod("worker-0")
    watching.cache.assume(AssumedBinding(pod.uid, "node-a"))
    assert await watching.at(0.0, 30.0, 89.0) == []
    assert await watching.at(90.0) == [pod.uid]
    assert await watching.at(120.0, 300.0) == [pod.uid], "once"


async def test_a_pod_that_the_api_has_on_a_node_stays_assumed(cluster, watching):
    pod = cluster.add_pod("worker-0")
    await watching.bind(pod)
    watching.cache.assume(AssumedBinding(pod.uid, "node-a"))
    assert await watching.at(0.0, 90.0, 900.0) == []


async def test_a_binding_under_way_cannot_arrive_afterwards(cluster, watching):
    pod = cluster.add_pod("worker-0")
    before = cluster.pods()[0].metadata.resource_version
    watching.cache.assume(AssumedBinding(pod.uid, "node-a"))
    await watching.at(0.0, 90.0)
    assert cluster.pods()[0].metadata.resource_version != before


async def test_a_pod_in_a_transaction_is_left_to_it(cluster, watching):
    pod = cluster.add_pod("worker-0")
    watching.cache.assume(AssumedBinding(pod.uid, "node-a"))
    watching.in_flight.add(pod.uid)
    assert await watching.at(0.0, 90.0, 900.0) == []
    watching.in_flight.clear()
    assert await watching.at(901.0, 990.0) == [], "the time runs from the end of the transaction"
    assert await watching.at(991.0) == [pod.uid]


async def test_what_cannot_be_read_stays_assumed(cluster, watching, monkeypatch):
    pod = cluster.add_pod("worker-0")
    watching.cache.assume(AssumedBinding(pod.uid, "node-a"))

    async def failing(*_, **__) -> Pod:
        raise Malformed("no answer")

    with monkeypatch.context() as broken:
        broken.setattr(watching.access.client, "get", failing)
        assert await watching.at(0.0, 90.0) == []
    assert await watching.at(91.0) == [pod.uid]


async def test_a_pod_that_commit_forgot_meanwhile_is_not_touched(cluster, watching):
    pod = cluster.add_pod("worker-0")
    watching.cache.assume(AssumedBinding(pod.uid, "node-a"))
    await watching.at(0.0)
    watching.cache.assumed.clear()
    assert await watching.at(90.0) == []
