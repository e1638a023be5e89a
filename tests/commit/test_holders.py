import asyncio

from msgspec.structs import replace

from kai_py.commit.claims.device_holders import DeviceHolders
from tests.commit.cluster import Cluster, device


def doubles(cluster, claim, allocation):
    return [double.holder.name for double in cluster.holders.other_holders(claim, allocation)]


def test_a_device_allocated_twice_is_found(cluster):
    ours, theirs = cluster.add_claim("ours"), cluster.add_claim("theirs")
    cluster.allocate("ours", device("gpu-0", "node-a"))
    assert doubles(cluster, ours, device("gpu-0", "node-a")) == []
    cluster.allocate("theirs", device("gpu-0", "node-a"))
    assert doubles(cluster, ours, device("gpu-0", "node-a")) == ["theirs"]
    assert doubles(cluster, theirs, device("gpu-0", "node-a")) == ["ours"]
    assert doubles(cluster, ours, device("gpu-0", "node-b")) == []


def test_admin_access_and_shares_exclude_no_pod(cluster):
    ours = cluster.add_claim("ours")
    for name, fields in (("admin", {"admin_access": True}), ("share", {"share_id": "s-1"})):
        cluster.add_claim(name)
        cluster.allocate(name, device("gpu-0", "node-a", **fields))
    assert doubles(cluster, ours, device("gpu-0", "node-a", share_id="s-2")) == []
    assert doubles(cluster, ours, device("gpu-0", "node-a")) == ["share"]
    assert doubles(cluster, ours, device("gpu-0", "node-a", admin_access=True)) == []


def test_a_share_is_excluded_by_a_whole_allocation(cluster):
    ours, _ = cluster.add_claim("ours"), cluster.add_claim("whole")
    cluster.allocate("whole", device("gpu-0", "node-a"))
    assert doubles(cluster, ours, device("gpu-0", "node-a", share_id="s-1")) == ["whole"]


def test_a_device_given_back_is_free(cluster):
    ours, theirs = cluster.add_claim("ours"), cluster.add_claim("theirs")
    cluster.allocate("theirs", device("gpu-0", "node-a"))
    claim = cluster.claim("theirs")
    cluster.holders.apply(claim, None)
    assert doubles(cluster, ours, device("gpu-0", "node-a")) == []
    assert cluster.holders._holders == {}
    assert theirs.uid not in cluster.holders._claims


async def test_waiting_ends_when_the_mirror_shows_it(cluster):
    claim = cluster.add_claim("ours")
    wanted = device("gpu-0", "node-a")
    waits = [
        asyncio.create_task(cluster.holders.wait_until_seen(claim, wanted, 5.0)) for _ in range(2)
    ]
    await asyncio.sleep(0)
    cluster.allocate("ours", wanted)
    assert await asyncio.gather(*waits) == [True, True]


async def test_waiting_ends_without_an_answer():
    cluster = Cluster()
    claim = cluster.add_claim("ours")
    cluster.allocate("ours", device("gpu-1", "node-a"))
    assert not await cluster.holders.wait_until_seen(claim, device("gpu-0", "node-a"), 0.01)


async def test_what_is_seen_already_is_not_waited_for():
    holders = DeviceHolders()
    cluster = Cluster()
    claim = cluster.add_claim("ours")
    cluster.allocate("ours", device("gpu-0", "node-a"))
    holders.apply(None, cluster.claim("ours"))
    assert await holders.wait_until_seen(claim, device("gpu-0", "node-a"), 0.0)


def test_what_a_claim_lost_is_known_until_it_is_allocated_or_deleted(cluster):
    holders, uid = cluster.holders, cluster.add_claim("ours").uid
    cluster.allocate("ours", device("gpu-0", "node-a"))
    allocated = cluster.claim("ours")
    cleared = replace(allocated, status=replace(allocated.status, allocation=None))
    lost = allocated.status.allocation
    assert holders.lost_allocation(uid) is None
    for before in (allocated, cleared):
        holders.apply(before, cleared)
        assert holders.lost_allocation(uid) == lost
    holders.apply(cleared, allocated)
    assert holders.lost_allocation(uid) is None
    holders.apply(allocated, cleared)
    holders.apply(cleared, None)
    assert holders.lost_allocation(uid) is None
