"""A long list is taken in step by step: other work of the event loop has its turn in between."""

import asyncio

import pytest

from kai_py.watch import kinds
from kai_py.watch.client import Client
from kai_py.watch.collection import STEP
from kai_py.watch.mirror import Mirror
from tests.watch import virtual_time
from tests.watch.cluster_server import PODS, ClusterServer

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
def test_no_turn_of_the_loop_takes_in_more_than_a_step(initial_events):
    async def main():
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

    virtual_time.run(main())
