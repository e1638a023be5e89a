"""The process ends at any call; whoever comes next completes the gang or gives everything back."""

import asyncio

import pytest

from kai_py.commit.claims.recovery import LeftoverTracker, find_leftover_claims, planned_pods
from kai_py.plan.plan import GangPlacement, Placement, Plan
from tests.commit.assume_cache import RecordingAssumeCache
from tests.commit.cluster import SCHEDULER, Cluster, Crashed, device, gang_of, gang_with_claims

SIZE = 3
CALLS = 3 * SIZE


class Mortal:
    """Passes calls on until the last one of its life, which may or may not reach the server."""

    def __init__(self, cluster: Cluster, calls: int, *, last_arrives: bool) -> None:
        self.cluster = cluster
        self.left = calls
        self.last_arrives = last_arrives

    async def send(self, call, *, timeout_seconds=None):
        self.left -= 1
        if self.left > 0:
            return await self.cluster.send(call)
        if self.left == 0 and self.last_arrives:
            await self.cluster.send(call)
        raise Crashed


async def live_and_die(cluster: Cluster, gang: GangPlacement, calls: int, *, last_arrives: bool):
    transport = Mortal(cluster, calls, last_arrives=last_arrives)
    committer = cluster.committer(RecordingAssumeCache(), transport=transport)
    committer.commit(Plan(placements=(gang,)), now=0.0)
    deaths = await asyncio.gather(*committer.tasks, return_exceptions=True)
    assert all(isinstance(death, Crashed) for death in deaths)


def plan_again(cluster: Cluster, gang: GangPlacement) -> Plan:
    """What the next cycle sees: allocated claims are used where they are."""
    waiting = [p for p in gang.pods if p.pod.name not in cluster.nodes()]
    placements = [
        Placement(
            p.pod, p.node, () if p.reserve[0].name in cluster.devices() else p.allocate, p.reserve
        )
        for p in waiting
    ]
    return Plan(placements=(gang_of(*placements),)) if placements else Plan()


async def follow(cluster: Cluster, plan: Plan) -> None:
    committer = cluster.committer(RecordingAssumeCache())
    committer.commit(plan, now=0.0)
    leftovers = find_leftover_claims(
        cluster.claims(), cluster.pods(), {SCHEDULER}, planned_pods(plan)
    )
    committer.release_leftovers(LeftoverTracker(0.0).due(leftovers, 0.0))
    assert await committer.drain(5.0)


points = pytest.mark.parametrize(
    ("calls", "last_arrives"),
    [(calls, arrives) for calls in range(1, CALLS + 1) for arrives in (False, True)],
)


@points
async def test_the_next_scheduler_completes_the_gang(calls, last_arrives):
    cluster = Cluster()
    gang = gang_with_claims(cluster, SIZE)
    await live_and_die(cluster, gang, calls, last_arrives=last_arrives)
    await follow(cluster, plan_again(cluster, gang))
    assert cluster.nodes() == {f"worker-{i}": "node-a" for i in range(SIZE)}
    assert cluster.devices() == {f"gpu-{i}": (f"gpu-{i}",) for i in range(SIZE)}


@points
async def test_a_gang_that_is_not_placed_again_holds_no_device(calls, last_arrives):
    cluster = Cluster()
    gang = gang_with_claims(cluster, SIZE)
    await live_and_die(cluster, gang, calls, last_arrives=last_arrives)
    await follow(cluster, Plan())
    bound = {int(name.removeprefix("worker-")) for name in cluster.nodes()}
    assert cluster.devices() == {f"gpu-{i}": (f"gpu-{i}",) for i in bound}


@points
async def test_the_next_scheduler_dies_too(calls, last_arrives):
    cluster = Cluster()
    gang = gang_with_claims(cluster, SIZE)
    await live_and_die(cluster, gang, calls, last_arrives=last_arrives)
    again = plan_again(cluster, gang)
    if again.placements:
        transport = Mortal(cluster, calls, last_arrives=not last_arrives)
        committer = cluster.committer(RecordingAssumeCache(), transport=transport)
        committer.commit(again, now=0.0)
        await asyncio.gather(*committer.tasks, return_exceptions=True)
    await follow(cluster, plan_again(cluster, gang))
    assert cluster.nodes() == {f"worker-{i}": "node-a" for i in range(SIZE)}
    assert cluster.devices() == {f"gpu-{i}": (f"gpu-{i}",) for i in range(SIZE)}


@pytest.mark.parametrize("calls", range(1, CALLS + 8))
@pytest.mark.parametrize("last_arrives", [False, True])
async def test_dying_while_undoing_leaves_no_device_held(calls, last_arrives):
    cluster = Cluster()
    gang = gang_with_claims(cluster, SIZE)
    stranger = cluster.add_pod("stranger", schedulerName="default-scheduler")
    cluster.add_claim("foreign")
    cluster.allocate("foreign", device("gpu-2", "node-a"), stranger)
    transport = Mortal(cluster, calls, last_arrives=last_arrives)
    committer = cluster.committer(RecordingAssumeCache(), transport=transport)
    committer.commit(Plan(placements=(gang,)), now=0.0)
    await asyncio.gather(*committer.tasks, return_exceptions=True)
    await follow(cluster, Plan())
    assert cluster.nodes() == {}
    assert cluster.devices() == {"foreign": ("gpu-2",)}
