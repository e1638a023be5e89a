"""Victims free the devices of their claims, shared claims only with their last user."""

import numpy as np

from kai_py.plan.plan import Action
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.devices import CycleDevices
from tests.support.scenario import (
    claim,
    claim_of,
    claiming,
    claiming_job,
    cluster,
    device_class,
    evicted,
    gpu_slice,
    job,
    node,
    partitions,
    placed,
    pod,
    queue,
)


def hardware(*gpus: int):
    made = [device_class()]
    for i, count in enumerate(gpus):
        made += [node(f"n{i}", 0), gpu_slice(f"n{i}", count)]
    return made


def holder(name: str, gpu: int, *, team: str = "team", priority: int = 0, on: str = "n0"):
    """A running pod with a claim of its own."""
    running = pod(name, 0, queue=team, node=on, priority=priority, created=gpu)
    held = claim(f"{name}-gpu", owner=name, held_by=[name], on=[(on, f"gpu-{gpu}")])
    return [held, claiming(running, f"{name}-gpu")]


def sharers(*names: str, team: str = "team", priority: int = 0):
    """Running pods of one shared claim."""
    made = [claim("shared", held_by=names, on=[("n0", "gpu-0")])]
    for name in names:
        running = pod(name, 0, queue=team, node="n0", priority=priority)
        made.append(claiming(running, "shared", template=False))
    return made


def high(pods: int = 1, **options):
    return claiming_job("high", pods, queue="team", priority=10, created=50, **options)


def test_a_shared_claim_frees_its_devices_when_all_its_users_go():
    world = cluster(*hardware(1), queue("team", 4), *sharers("s0", "s1"), high())
    plan = world.plan()
    assert evicted(plan) == ["s0", "s1"]
    assert [nomination.pod.name for nomination in plan.nominations] == ["high-0"]


def test_a_user_that_may_not_be_evicted_keeps_the_shared_devices():
    mixed = sharers("s0", "s1")
    mixed[2] = claiming(
        pod("s1", 0, queue="team", node="n0", priority=20), "shared", template=False
    )
    plan = cluster(*hardware(1), queue("team", 4), *mixed, high()).plan()
    assert evicted(plan) == []
    assert plan.nominations == ()
    assert "in use" in plan.unplaced[0].message


def test_a_pod_that_joined_a_claim_in_this_cycle_keeps_its_devices():
    """The holder could be evicted, but the one that joins now has the higher priority."""
    joins = claiming(pod("joins", 0, queue="team", priority=20), "shared", template=False)
    world = cluster(*hardware(1), queue("team", 4), *sharers("s0"), joins, high())
    plan = world.plan()
    assert placed(plan) == {"joins": "n0"}
    assert evicted(plan) == []
    assert plan.nominations == ()


def test_a_pod_may_join_a_claim_whose_user_is_leaving_and_keeps_it_from_others():
    [held, leaving] = sharers("s0")
    leaving = claiming(
        pod("s0", 0, queue="team", node="n0", leaving=True), "shared", template=False
    )
    joins = claiming(pod("joins", 0, queue="team", priority=20), "shared", template=False)
    gone = holder("other", 1)
    gone[1] = claiming(pod("other", 0, queue="team", node="n0", leaving=True), "other-gpu")
    world = cluster(*hardware(2), queue("team", 4), held, leaving, *gone, joins, high(2))
    plan = world.plan()
    assert placed(plan) == {"joins": "n0"}
    assert plan.nominations == (), "only one of the two devices will be free"


def test_a_claim_whose_devices_were_promised_to_others_cannot_be_joined():
    joins = claiming(pod("joins", 0, queue="team"), "shared", template=False)
    world = cluster(*hardware(1), queue("team", 4), *sharers("s0"), joins, high())
    snapshot = world.snapshot()
    world.devices.sync(snapshot.devices)
    devices = CycleDevices(world.devices, snapshot)
    members = {m.pod.name: m for gang in snapshot.gangs.values() for m in gang.members}
    everywhere = np.ones(1, dtype=bool)
    shape = members["joins"].shape
    devices.release(members["s0"])
    taken = devices.allocate(members["high-0"], 0, Capacity.FUTURE_IDLE)
    assert devices.replicas(shape, everywhere, 1, Capacity.FUTURE_IDLE).tolist() == [0]
    assert devices.allocate(members["joins"], 0, Capacity.FUTURE_IDLE) is None
    [(reason, _)] = devices.unschedulable_reasons(shape, everywhere)
    assert "is being deallocated" in reason
    taken.undo()
    assert devices.replicas(shape, everywhere, 1, Capacity.FUTURE_IDLE).tolist() == [1]
    assert devices.allocate(members["joins"], 0, Capacity.FUTURE_IDLE) is not None
    assert devices.allocate(members["high-0"], 0, Capacity.FUTURE_IDLE) is None


def test_reclaim_frees_exactly_the_devices_that_are_needed():
    world = cluster(*hardware(4, 4), queue("team", 4), queue("other", 4))
    for i in range(8):
        world.add(holder(f"o{i}", i % 4, team="other", on=f"n{i // 4}"))
    world.add(claiming_job("mine", 1, 3, queue="team", created=50))
    plan = world.plan()
    assert len(plan.evictions) == 3
    assert {eviction.action for eviction in plan.evictions} == {Action.RECLAIM}
    [nomination] = plan.nominations
    assert {int(name[1:]) // 4 for name in evicted(plan)} == {int(nomination.node[1:])}


def test_no_pod_is_tried_as_a_victim_for_devices_that_no_node_has():
    world = cluster(*hardware(2, 2), queue("team", 8), holder("low0", 0), high(1, count=3))
    snapshot = world.snapshot()
    world.devices.sync(snapshot.devices)
    devices = CycleDevices(world.devices, snapshot)
    shapes = {m.pod.name: m.shape for g in snapshot.gangs.values() for m in g.members}
    assert not devices.fits_empty_cluster(shapes["high-0"])
    world = cluster(*hardware(3), queue("team", 8), holder("low0", 0), high(1, count=3))
    assert evicted(world.plan()) == ["low0"]


def test_what_victims_free_is_promised_once():
    world = cluster(*hardware(2), queue("team", 8), holder("low0", 0), holder("low1", 1))
    world.add(high(2))
    world.add(claiming_job("later", 1, queue="team", priority=5, created=60))
    plan = world.plan()
    assert evicted(plan) == ["low0", "low1"]
    assert sorted(n.pod.name for n in plan.nominations) == ["high-0", "high-1"]
    assert [u.gang for u in plan.unplaced if "later" in u.gang]


def test_a_trial_with_victims_leaves_the_cluster_state_alone():
    world = cluster(*hardware(2), queue("team", 4), holder("low0", 0), high(3))
    first, second = world.plan(), world.plan()
    assert first.nominations == second.nominations == ()
    assert first.unplaced == second.unplaced
    [usage] = world.devices.state.pools.values()
    assert list(usage.devices) == ["gpu-0"]


def test_sharers_start_where_all_of_them_have_capacity():
    """The fuller node would be packed first, but has capacity for one of them only."""
    world = cluster(device_class(), queue("team", 4), claim("shared"))
    for name, cpu in (("n0", "1"), ("n1", "4")):
        world.add(node(name, 0, cpu=cpu), gpu_slice(name, 1))
    owner = job("train", 3, "team")
    world.add(owner)
    for i in range(3):
        world.add(claiming(pod(f"p{i}", 0, owner=owner), "shared", template=False))
    assert set(placed(world.plan()).values()) == {"n1"}
    assert len(placed(world.plan())) == 3


def consolidating(*objects):
    return cluster(*objects, actions=(Action.ALLOCATE, Action.CONSOLIDATE)).plan()


def test_pods_with_claims_of_their_own_are_moved_together():
    plan = consolidating(
        *hardware(2, 2),
        queue("team", 4),
        holder("a", 0, on="n0"),
        holder("b", 0, on="n1"),
        claiming_job("wide", 1, 2, queue="team", created=50),
    )
    (moved,) = plan.evictions
    assert moved.relocated_to == {"n0": "n1", "n1": "n0"}[moved.node]
    assert [(n.pod.name, n.node) for n in plan.nominations] == [("wide-0", moved.node)]


def test_pods_are_not_moved_where_devices_would_be_lacking():
    plan = consolidating(
        *hardware(2, 2),
        queue("team", 4),
        [each for i in range(2) for each in holder(f"a{i}", i, on="n0")],
        holder("b", 0, on="n1"),
        claiming_job("wide", 1, 2, queue="team", created=50),
    )
    assert plan.evictions == ()
    assert plan.nominations == ()


def test_pods_that_share_a_claim_are_not_moved():
    plan = consolidating(
        *hardware(2, 2),
        queue("team", 4),
        sharers("s0"),
        claim("other", held_by=["s1"], on=[("n1", "gpu-0")]),
        claiming(pod("s1", 0, queue="team", node="n1"), "other", template=False),
        claiming_job("wide", 1, 2, queue="team", created=50),
    )
    assert plan.evictions == ()
    assert plan.nominations == ()


def test_a_pod_whose_devices_no_other_takes_stays_as_it_is():
    plan = consolidating(
        *hardware(3, 2),
        queue("team", 5),
        holder("a", 0, on="n0"),
        holder("b", 0, on="n1"),
        claiming_job("wide", 1, 3, queue="team", created=50),
    )
    assert evicted_to(plan) == {"a": "n1"}


def evicted_to(plan):
    return {each.pod.name: each.relocated_to for each in plan.evictions}


def test_what_admin_access_needs_is_not_given_back_to_the_victims():
    """A partition must be possible beside what is allocated, although it is not allocated."""
    draws = [{"counterSet": "gpu", "counters": {"slices": {"value": "1"}}}]
    type_of = {"whole": "gpu", "part": "mig"}
    devices = [
        {"name": name, "attributes": {"type": {"string": kind}}, "consumesCounters": draws}
        for name, kind in type_of.items()
    ]
    slices = partitions("n0", devices, {"gpu": {"slices": 1}})
    held = claim("low-gpu", owner="low", held_by=["low"], on=[("n0", "whole")])
    low = claiming(pod("low", 0, queue="team", node="n0"), "low-gpu")
    part = {"deviceClassName": "mig", "adminAccess": True}
    asked = claim_of("high-gpu", {"name": "part", "exactly": part}, owner="high")
    high = claiming(pod("high", 0, queue="team", priority=10, created=50), "high-gpu")
    mig = device_class("mig", 'device.attributes["gpu.nvidia.com"].type == "mig"')
    world = cluster(device_class(), mig, node("n0", 0), *slices, queue("team", 4), held, low)
    plan = world.add(asked, high).plan()
    assert evicted(plan) == ["low"]
    assert [nomination.pod.name for nomination in plan.nominations] == ["high"]
    assert placed(world.remove(low, held).plan()) == {"high": "n0"}
