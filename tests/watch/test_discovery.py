"""Which kinds are served, and in which version."""

import asyncio
import json

import pytest

from kai_py.watch import kinds
from kai_py.watch.client import Client
from kai_py.watch.discovery import discover
from kai_py.watch.errors import ApiError
from tests.watch.cluster_server import CLAIMS, KINDS, PODS, QUEUES, ClusterServer


@pytest.mark.parametrize(
    ("served", "chosen"),
    [
        (["v1beta1", "v1", "v1beta2"], "v1"),
        (["v1beta1", "v1beta2"], "v1beta2"),
        (["v1beta1"], "v1beta1"),
        (["v2"], None),
        ([], None),
    ],
)
def test_best_served_version_is_chosen(served, chosen):
    async def main():
        server = ClusterServer(*(CLAIMS.format(version) for version in served))
        found = (await discover(Client(server), KINDS, {})).served
        claims = found.get(kinds.RESOURCE_CLAIMS)
        assert (claims and claims.version) == chosen
        assert found[kinds.PODS].collection() == PODS
        assert kinds.QUEUES not in found

    asyncio.run(main())


def test_group_that_cannot_answer_keeps_what_was_known_of_it():
    async def main():
        server = ClusterServer(CLAIMS.format("v1"), QUEUES)
        client = Client(server)
        known = (await discover(client, KINDS, {})).served
        server.broken.add("/apis/resource.k8s.io/v1")
        again = await discover(client, KINDS, known)
        assert again.served == known
        assert again.unanswered == {}
        first = await discover(client, KINDS, {})
        assert set(first.served) == {kinds.PODS, kinds.QUEUES}
        assert "503" in first.unanswered[kinds.RESOURCE_CLAIMS]
        server.broken.add("/apis")
        with pytest.raises(ApiError):
            await discover(client, KINDS, known)

    asyncio.run(main())


def test_kinds_that_cannot_be_watched_are_not_served():
    async def main():
        server = ClusterServer(QUEUES)
        whole = server._discovery
        server._discovery = lambda path: json.loads(
            json.dumps(whole(path)).replace('"watch"', '"patch"')
        )
        assert (await discover(Client(server), KINDS, {})).served == {}

    asyncio.run(main())


def test_versions_that_are_served_and_not_known_are_found():
    async def main():
        found = await discover(Client(ClusterServer(CLAIMS.format("v2"), QUEUES)), KINDS, {})
        assert found.unknown_versions == {kinds.RESOURCE_CLAIMS: ("v2",)}
        served = CLAIMS.format("v1"), CLAIMS.format("v2")
        found = await discover(Client(ClusterServer(*served)), KINDS, {})
        assert found.unknown_versions == {}

    asyncio.run(main())
