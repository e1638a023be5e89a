"""Election from a thread: what holds up the loop of the process holds up no renewal."""

import asyncio
import threading
import time

import pytest

from kai_py.watch.credentials import Anonymous
from kai_py.watch.elector import LEASES, Election, LeadershipLostError
from kai_py.watch.elector_thread import ElectorThread
from kai_py.watch.http_transport import connect, separate_client
from tests.support.cluster.eventually import eventually
from tests.support.faulty_cluster import Fault, FaultyCluster, Refuse
from tests.support.patience import patience

pytestmark = pytest.mark.cluster

RENEW = min(patience(3.0), 12.0)
HELD_UP = RENEW + 2.0
"""Seconds: longer than a Lease lives without a renewal."""


@pytest.fixture
def cluster():
    """An embedded cluster on an event loop and in a thread of its own, as a server is."""
    loop, stop, started = asyncio.new_event_loop(), asyncio.Event(), threading.Event()
    running: list[FaultyCluster] = []

    async def serve():
        async with FaultyCluster() as cluster:
            running.append(cluster)
            started.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert started.wait(patience(20.0))
    yield running[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()


def candidate(client, identity, lost):
    election = Election("kube-system", "kai", identity, duration=RENEW + 1, renew=RENEW, retry=0.2)
    return ElectorThread(
        lambda: separate_client(client, client.transport), election, on_lost=lambda: lost.append(1)
    )


async def test_a_loop_that_is_held_up_keeps_the_lease(cluster):
    lost = []
    async with connect(Anonymous(cluster.url)) as client:
        elector = candidate(client, "a", lost)

        async def work():
            assert elector.leading
            time.sleep(HELD_UP)  # noqa: ASYNC251  what a long freeze does
            assert elector.leading
            await asyncio.sleep(0)
            return (await client.get(LEASES, "kai", namespace="kube-system")).spec.holder_identity

        assert await elector.lead(work) == "a"
        assert not lost
        assert not elector.leading
        lease = await client.get(LEASES, "kai", namespace="kube-system")
        assert lease.spec.holder_identity == "", "released at the end"


async def test_a_lease_that_is_lost_is_told_while_the_loop_is_held_up(cluster):
    lost = []
    async with connect(Anonymous(cluster.url)) as client:
        elector = candidate(client, "a", lost)
        reached = []

        async def work():
            for verb in ("get", "patch"):
                cluster.faults.add(Fault(effect=Refuse(code=500), verb=verb, times=None))
            until = time.monotonic() + patience(HELD_UP)
            while not lost and time.monotonic() < until:
                time.sleep(0.05)  # noqa: ASYNC251
            reached.append(list(lost))
            assert not elector.leading
            await asyncio.sleep(3600)

        with pytest.raises(LeadershipLostError):
            await elector.lead(work)
        assert reached == [[1]], "the thread did not wait for the loop"

        async def problem() -> str:
            return elector.problems()[0]

        said = await eventually(problem, what="failing for long enough to be a problem")
        assert said.startswith("cannot take or renew lease kube-system/kai")


async def test_a_candidate_that_is_stopped_before_it_leads_ends(cluster):
    lost = []
    async with connect(Anonymous(cluster.url)) as client:
        leader, standby = candidate(client, "a", lost), candidate(client, "b", lost)
        leads = asyncio.create_task(leader.lead(asyncio.Event().wait))
        while not leader.leading:  # noqa: ASYNC110  it leads in another thread
            await asyncio.sleep(0.02)
        waits = asyncio.create_task(standby.lead(asyncio.Event().wait))
        await asyncio.sleep(0.5)
        assert not standby.leading
        for task in (waits, leads):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert not lost


async def test_what_the_work_raises_is_raised(cluster):
    async with connect(Anonymous(cluster.url)) as client:

        async def work():
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await candidate(client, "a", []).lead(work)
