"""Claims in a cycle: allocated with the placement, whole gangs, freed by victims, never twice."""

import pytest
from msgspec.structs import replace

from kai_py.api.records.core import PodStatus
from kai_py.plan.plan import Stage
from tests.support.scenario import (
    at,
    claim,
    claim_of,
    claiming,
    claiming_job,
    cluster,
    device_class,
    device_slice,
    evicted,
    gpu_slice,
    job,
    node,
    placed,
    pod,
    queue,
)


def hardware(nodes: int = 1, gpus: int = 8):
    made = [device_class()]
    for i in range(nodes):
        made += [node(f"n{i}", 0), gpu_slice(f"n{i}", gpus)]
    return made


def devices(plan) -> list[tuple[str, str]]:
    return [
        (result.pool, result.device)
        for gang in plan.placements
        for each in gang.pods
        for found in each.allocate
        for result in found.allocation.devices.results
    ]


def test_a_gang_gets_distinct_devices_on_the_fewest_nodes():
    plan = cluster(*hardware(3), queue("team", 8), claiming_job("train", 8, queue="team")).plan()
    assert len(placed(plan)) == 8
    assert len(set(placed(plan).values())) == 1
    assert len(set(devices(plan))) == 8


def test_with_one_device_too_few_nothing_is_allocated():
    world = cluster(*hardware(1, 7), queue("team", 8), claiming_job("train", 8, queue="team"))
    plan = world.plan()
    assert placed(plan) == {}
    [unplaced] = plan.unplaced
    assert unplaced.stage is Stage.DEVICES
    assert unplaced.is_infeasible
    assert " 8 pods must start together but only 7" in unplaced.message
    assert "cannot allocate all claims" in unplaced.message
    assert world.devices.state.pools == {}, "a trial leaves nothing behind"


def test_claims_count_in_the_queue():
    plan = cluster(
        *hardware(1),
        queue("team", 2, 4),
        claiming_job("big", 5, queue="team"),
        claiming_job("small", 4, queue="team", created=1),
    ).plan()
    assert sorted(placed(plan)) == [f"small-{i}" for i in range(4)]
    assert plan.unplaced[0].stage is Stage.QUEUE_MAX
    [share] = plan.queues
    assert share.allocated["gpu"] == 4


def test_devices_that_others_hold_are_not_given_again():
    held = claim("theirs", 3, held_by=["other"], on=[("n0", f"gpu-{i}") for i in range(3)])
    plan = cluster(
        *hardware(1, 4),
        queue("team", 8),
        held,
        claiming_job("two", 2, queue="team"),
        claiming_job("one", 1, queue="team", created=1),
    ).plan()
    assert placed(plan) == {"one-0": "n0"}
    assert devices(plan) == [("n0", "gpu-3")]


def test_a_pod_with_an_allocated_claim_goes_where_the_claim_is():
    mine = claim("mine", held_by=["p"], on=[("n1", "gpu-5")])
    plan = cluster(
        *hardware(3),
        queue("team", 8),
        mine,
        claiming(pod("p", 0, queue="team"), "mine", template=False),
    ).plan()
    assert placed(plan) == {"p": "n1"}
    assert devices(plan) == []
    assert [str(ref) for ref in plan.placements[0].pods[0].reserve] == ["default/mine"]


def test_sharers_of_a_claim_are_placed_together_and_pay_once():
    world = cluster(*hardware(3), queue("team", 1, 1), claim("shared"))
    for i in range(3):
        world.add(claiming(pod(f"p{i}", 0, queue="team"), "shared", template=False))
    plan = world.plan()
    assert len(placed(plan)) == 3
    assert len(set(placed(plan).values())) == 1
    assert len(devices(plan)) == 1


def test_a_selector_that_matches_nothing_says_so():
    lonely = claim("c", owner="p", selector='device.attributes["gpu.nvidia.com"].type == "tpu"')
    plan = cluster(
        *hardware(2),
        queue("team", 8),
        lonely,
        claiming(pod("p", 0, queue="team"), "c"),
    ).plan()
    [unplaced] = plan.unplaced
    assert unplaced.stage is Stage.DEVICES
    assert "no device matches selector" in unplaced.message


def test_a_broken_selector_names_itself_and_stops_no_other():
    broken = claim("c", owner="bad", selector="device.driver ==")
    plan = cluster(
        *hardware(1),
        queue("team", 8),
        broken,
        claiming(pod("bad", 0, queue="team"), "c"),
        claiming_job("good", 2, queue="team"),
    ).plan()
    assert sorted(placed(plan)) == ["good-0", "good-1"]
    assert "CEL compile error" in plan.unplaced[0].message


def test_a_claim_that_is_not_there_yet_is_waited_for():
    plan = cluster(
        *hardware(1), queue("team", 8), claiming(pod("p", 0, queue="team"), "missing")
    ).plan()
    assert plan.unplaced[0].stage is Stage.CLAIMS_NOT_READY
    assert 'resourceclaim "missing" not found' in plan.unplaced[0].message


def test_preemption_frees_the_devices_of_its_victims():
    world = cluster(*hardware(1, 4), queue("team", 4))
    for i in range(4):
        on = [("n0", f"gpu-{i}")]
        world.add(claim(f"low{i}-gpu", owner=f"low{i}", held_by=[f"low{i}"], on=on))
        running = pod(f"low{i}", 0, queue="team", node="n0", created=i)
        world.add(claiming(running, f"low{i}-gpu"))
    world.add(claiming_job("high", 2, queue="team", priority=10, created=50))
    plan = world.plan()
    assert evicted(plan) == ["low2", "low3"]
    assert len(plan.nominations) == 2
    assert placed(plan) == {}, "nothing starts before the victims have left"


def test_devices_of_victims_that_have_ended_are_waited_for_until_their_claims_are_free():
    world = cluster(*hardware(1, 4), queue("team", 4))
    running = []
    for i in range(4):
        name, on = f"low{i}", [("n0", f"gpu-{i}")]
        world.add(claim(f"{name}-gpu", owner=name, held_by=[name], on=on))
        running.append(claiming(pod(name, 0, queue="team", node="n0", created=i), f"{name}-gpu"))
    world.add(running)
    world.add(claiming_job("high", 2, queue="team", priority=10, created=50))
    assert evicted(world.plan()) == ["low2", "low3"]
    world.remove(running[2])
    world.add(replace(running[3], status=PodStatus(phase="Failed")))
    plan = world.plan()
    assert evicted(plan) == [], "the capacity of those that have gone is enough"
    assert len(plan.nominations) == 2
    assert placed(plan) == {}, "their claims still hold the devices"
    for i in (2, 3):
        world.add(claim(f"low{i}-gpu", owner=f"low{i}"))
    plan = world.plan()
    assert sorted(placed(plan)) == ["high-0", "high-1"]
    assert devices(plan) == [("n0", "gpu-2"), ("n0", "gpu-3")]


def test_a_claim_is_free_when_the_last_that_shares_it_has_ended():
    on = [("n0", "gpu-0")]
    shared = claim("shared", held_by=["a", "b"], on=on)
    a, b = (claiming(pod(x, 0, queue="team", node="n0"), "shared", template=False) for x in "ab")
    waiting = claiming_job("next", 1, queue="team", created=50)
    world = cluster(*hardware(1, 1), queue("team", 4), shared, a, b, waiting)
    world.remove(a)
    assert world.plan().nominations == (), "b is still there"
    world.add(replace(b, metadata=replace(b.metadata, deletion_timestamp=at(1000))))
    assert [n.pod.name for n in world.plan().nominations] == ["next-0"]


@pytest.mark.parametrize("fabric", ["a-pool", "z-pool"])
@pytest.mark.parametrize("first", ["n0", "n1"])
@pytest.mark.parametrize("by_selector", [False, True])
def test_devices_of_few_nodes_go_before_those_that_others_can_use(fabric, first, by_selector):
    """Whichever pool comes first in order: the pod on the other node needs the shared device."""
    gpu, nic = ({"name": kind, "attributes": {"type": {"string": kind}}} for kind in ("gpu", "nic"))
    classes = [
        device_class(kind, f'device.attributes["gpu.nvidia.com"].type == "{kind}"')
        for kind in ("gpu", "nic")
    ]
    only = {"key": "kubernetes.io/hostname", "operator": "In", "values": [first]}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [only]}]}
    reach = {"nodeName": "", "nodeSelector": selector} if by_selector else {"nodeName": first}
    world = cluster(*classes, queue("team", 8), job("pair", 2, "team"))
    world.add(device_slice(fabric, [nic], nodeName="", allNodes=True))
    world.add(device_slice("m-pool", [nic], **reach))
    for name in ("n0", "n1"):
        world.add(node(name, 0), device_slice(name, [gpu]))
    requests = [{"name": k, "exactly": {"deviceClassName": k}} for k in ("gpu", "nic")]
    for each in ("p0", "p1"):
        made = pod(each, 0, owner=world.get("jobs", "pair"))
        world.add(claim_of(each, *requests, owner=each), claiming(made, each))
    used = [("n0", "gpu"), ("n1", "gpu"), ("m-pool", "nic"), (fabric, "nic")]
    assert sorted(devices(world.plan())) == sorted(used)


def test_device_plugin_and_claims_never_share_a_card():
    both = [device_class(), node("n0", 8), gpu_slice("n0", 8)]
    plan = cluster(
        *both,
        queue("team", 16),
        [pod(f"plugin{i}", 1, queue="team", node="n0") for i in range(5)],
        [c for i in range(5) for c in claiming_job(f"claim{i}", 1, queue="team", created=i)],
    ).plan()
    assert len(placed(plan)) == 3
    [share] = plan.queues
    assert share.allocated["gpu"] == 8


def test_claims_of_running_pods_close_cards_to_the_device_plugin():
    world = cluster(device_class(), node("n0", 8), gpu_slice("n0", 8), queue("team", 16))
    for i in range(6):
        world.add(claim(f"c{i}", owner=f"p{i}", held_by=[f"p{i}"], on=[("n0", f"gpu-{i}")]))
        world.add(claiming(pod(f"p{i}", 0, queue="team", node="n0"), f"c{i}"))
    world.add([pod(f"plugin{i}", 1, queue="team", created=i) for i in range(4)])
    assert len(placed(world.plan())) == 2


def test_allocated_claims_take_the_cards_of_their_devices_from_the_device_plugin():
    """The alternative that was allocated counts, not the largest one."""
    alternatives = [
        {"name": f"x{n}", "deviceClassName": "gpu.nvidia.com", "count": n} for n in (1, 8)
    ]
    request = {"name": "gpu", "firstAvailable": alternatives}
    held = claim_of("held", request, on=[("n0", "gpu-0")], of="gpu/x1", held_by=["p"])
    world = cluster(device_class(), node("n0", 8), gpu_slice("n0", 8), queue("team", 16), held)
    world.add(claiming(pod("p", 0, queue="team", node="n0"), "held", template=False))
    world.add([pod(f"plugin{i}", 1, queue="team", created=i) for i in range(8)])
    assert len(placed(world.plan())) == 7


def test_allocated_devices_of_other_drivers_take_no_cards_of_the_device_plugin():
    """The class has GPUs as well; what was allocated is a network card."""
    request = {"name": "any", "exactly": {"deviceClassName": "any"}}
    held = claim_of("held", request, driver="dra.net", on=[("n0", "nic")], held_by=["p"])
    nics = device_slice("n0", [{"name": "nic"}], driver="dra.net", part="nics")
    world = cluster(device_class("any", "true"), node("n0", 8), gpu_slice("n0", 8), nics, held)
    world.add(queue("team", 16), [pod(f"plugin{i}", 1, queue="team", created=i) for i in range(8)])
    world.add(claiming(pod("p", 0, queue="team", node="n0"), "held", template=False))
    assert len(placed(world.plan())) == 8


def test_admin_access_takes_no_card_of_the_device_plugin():
    watcher = {"deviceClassName": "gpu.nvidia.com", "allocationMode": "All", "adminAccess": True}
    request = {"name": "gpu", "exactly": watcher}
    watching = claiming(pod("watch", 0, queue="team"), "all")
    busy = [pod(f"plugin{i}", 1, queue="team", node="n0") for i in range(7)]
    world = cluster(device_class(), node("n0", 8), gpu_slice("n0", 8), queue("team", 16), busy)
    world.add(claim_of("all", request, owner="watch"), watching, pod("last", 1, queue="team"))
    assert placed(world.plan()) == {"watch": "n0", "last": "n0"}


@pytest.mark.slow
def test_ten_thousand_claims_of_one_gang_stop_no_other():
    world = cluster(
        *hardware(4),
        queue("team", 20_000),
        claiming_job("huge", 10_000, queue="team"),
        claiming_job("small", 8, queue="team", created=1),
    )
    plan = world.plan()
    assert len(placed(plan)) == 8
    [waits] = plan.unplaced
    assert " 10000 pods must start together but only 32" in waits.message


def test_a_device_that_could_not_be_made_ready_is_given_to_no_pod_for_a_while():
    world = cluster(*hardware(1, 2), queue("team", 8), claiming_job("one", 1, queue="team"))
    [(_, first)] = devices(world.plan(now=1.0))
    world.builder.avoid_device(("gpu.nvidia.com", "n0", first), "AttachFailed", 60.0)
    [(_, second)] = devices(world.plan(now=2.0))
    assert second != first
    world.builder.avoid_device(("gpu.nvidia.com", "n0", second), "AttachFailed", 60.0)
    [unplaced] = world.plan(now=3.0).unplaced
    assert "2 tainted scheduling.kai.io/binding-failed=AttachFailed:NoSchedule" in unplaced.message
    assert devices(world.plan(now=62.5)) == [("n0", first)]


def choosing(name: str, *counts: int):
    """A pod with a claim of which only the last of its alternatives finds devices."""
    choices = [
        {
            "name": f"choice-{i}",
            "deviceClassName": "gpu.nvidia.com",
            "count": count,
            "selectors": [{"cel": {"expression": "false" if i + 1 < len(counts) else "true"}}],
        }
        for i, count in enumerate(counts)
    ]
    made = claim_of(name, {"name": "gpu", "firstAvailable": choices}, owner=name)
    return [made, claiming(pod(name, 0, queue="team"), name)]


def test_a_placed_pod_is_charged_for_what_it_got_so_that_others_of_the_cycle_find_capacity():
    asks = [each for name in "abcdef" for each in choosing(name, 4, 1)]
    plan = cluster(*hardware(1, 8), queue("team", 0, 5), asks).plan()
    assert sorted(placed(plan)) == ["a", "b", "c", "d", "e"]
    [team] = [each for each in plan.queues if each.queue == "team"]
    assert team.allocated["gpu"] == 5.0


def test_a_trial_that_fails_leaves_no_charge():
    asks = [*claiming_job("train", 9, queue="team"), *choosing("a", 4, 1)]
    plan = cluster(*hardware(1, 8), queue("team", 0, 16), asks).plan()
    [team] = [each for each in plan.queues if each.queue == "team"]
    assert team.allocated["gpu"] == 1.0
