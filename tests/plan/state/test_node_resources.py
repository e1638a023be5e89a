"""Devices that stand for resources of their node, or need some: counted on the node (KEP-5517)."""

import pytest
from msgspec.structs import replace

from kai_py.api.records.core import (
    ContainerResourceClaim,
    NodeAllocatableResourceClaimStatus,
    PodResourceClaim,
    ResourceRequirements,
)
from kai_py.commit.dependencies import assumed_binding
from kai_py.snapshot.requests import claimed_amounts
from tests.support.records import from_json
from tests.support.scenario import (
    claim_of,
    cluster,
    device_class,
    device_slice,
    evicted,
    node,
    placed,
    pod,
    queue,
)

CPU = "dra.cpu"
CLASS = device_class("cpu", f'device.driver == "{CPU}"')


def published(*devices, where="n0"):
    named = [{"name": f"d{i}", **each} for i, each in enumerate(devices)]
    return device_slice(where, named, driver=CPU)


def former(**mappings):
    """The spelling of Kubernetes 1.36."""
    return {"nodeAllocatableResourceMappings": mappings}


def latter(**resources):
    """The spelling from 1.37 on."""
    return {"nodeAllocatableResources": resources}


def claim(name, count=1, *, capacity=None, owner=True, held_by=(), device=""):
    exactly = {"deviceClassName": "cpu", "count": count}
    if capacity:
        exactly["capacity"] = {"requests": capacity}
    request = {"name": "r", "exactly": exactly}
    on = [("n0", device)] if device else ()
    return claim_of(name, request, owner=name if owner else "", driver=CPU, on=on, held_by=held_by)


def user(name, claim_name="", *, referring=1, cpu="1", **options):
    """A pod with a claim, to which so many of its containers refer."""
    made = pod(name, 0, queue="q", requests={"cpu": cpu}, **options)
    entry = PodResourceClaim(name="c", resource_claim_name=claim_name or name)
    [first] = made.spec.containers
    reference = (ContainerResourceClaim(name="c"),)
    containers = [
        replace(
            first,
            name=f"c{i}",
            resources=replace(
                first.resources if i == 0 else ResourceRequirements(),
                claims=reference if i < referring else (),
            ),
        )
        for i in range(max(referring, 1))
    ]
    return replace(
        made, spec=replace(made.spec, containers=tuple(containers), resource_claims=(entry,))
    )


def world(*objects, cpu="10"):
    return cluster(queue("q", 8), node("n0", 0, cpu=cpu), CLASS, *objects)


def taken(plan):
    """By pod, what its claims take on top of its requests."""
    return {p.pod.name: dict(p.node_amounts) for gang in plan.placements for p in gang.pods}


SIZES = [
    (former(cpu={"allocationMultiplier": "4"}), {"cpu": 4000}),
    (latter(cpu={"mapping": {"deviceMultiplier": "4"}}), {"cpu": 4000}),
    (latter(memory={"overhead": {"perPod": "1Gi"}}), {"memory": 2**30}),
    (
        latter(memory={"overhead": {"perPod": "1Gi", "perContainer": "1Gi"}}),
        {"memory": 2 * 2**30},
    ),
    (
        latter(cpu={"mapping": {"deviceMultiplier": "2"}, "overhead": {"perPod": "500m"}}),
        {"cpu": 2500},
    ),
    (former(cpu={"capacityKey": "absent", "allocationMultiplier": "4"}), {}),
    (former(cpu={}), {}),
]


@pytest.mark.parametrize(("device", "expected"), SIZES)
def test_a_device_takes_what_it_says_of_the_node(device, expected):
    plan = world(published(device), claim("p"), user("p")).plan()
    assert taken(plan) == {"p": expected}


SHARED = {
    "allowMultipleAllocations": True,
    "capacity": {"cores": {"value": "8", "requestPolicy": {"default": "8"}}},
}


@pytest.mark.parametrize(
    "device",
    [
        former(cpu={"capacityKey": "cores"}),
        latter(cpu={"mapping": {"capacityKey": "cores", "capacityMultiplier": "1"}}),
    ],
)
def test_consumed_capacity_is_what_counts(device):
    objects = published({**SHARED, **device}), claim("p", capacity={"cores": "3"}), user("p")
    assert taken(world(*objects).plan()) == {"p": {"cpu": 3000}}


@pytest.mark.parametrize(("cpus", "starts"), [("9", True), ("10", False)])
def test_claims_and_requests_together_fit_the_node(cpus, starts):
    device = former(cpu={"allocationMultiplier": cpus})
    plan = world(published(device), claim("p"), user("p")).plan()
    assert bool(placed(plan)) is starts
    if not starts:
        assert "1 Insufficient cpu (the devices of its claims take more than is free)" in (
            plan.unplaced[0].message
        )


def test_two_pods_in_one_cycle_share_what_is_there():
    device = former(cpu={"allocationMultiplier": "5"})
    plan = world(published(device, device), claim("a"), claim("b"), user("a"), user("b")).plan()
    assert len(placed(plan)) == 1


def test_an_ordinary_pod_finds_no_capacity_in_what_claims_took():
    device = former(cpu={"allocationMultiplier": "8"})
    running = world(published(device), claim("a"), user("a"))
    [[first]] = [gang.pods for gang in running.plan().placements]
    running.builder.assume(assumed_binding(first))
    running.add(pod("plain", 0, queue="q", requests={"cpu": "2"}))
    assert placed(running.plan()) == {}
    running.builder.forget("pod-a")
    running.remove(running.get("pods", "a"))
    assert placed(running.plan()) == {"plain": "n0"}


STATUSES = [
    {"resources": {"cpu": "8"}},
    {"mapping": [{"name": "cpu", "quantity": "8"}]},
    {"overhead": [{"name": "cpu", "perPod": "4", "perContainer": "2"}], "containers": ["a", "b"]},
]


def with_status(each, status, **options):
    entry = from_json(NodeAllocatableResourceClaimStatus, {"resourceClaimName": "a", **status})
    return replace(
        each, status=replace(each.status, node_allocatable_resource_claim_statuses=(entry,))
    )


@pytest.mark.parametrize("status", STATUSES)
def test_running_pods_count_by_their_status_whoever_wrote_it(status):
    running = with_status(pod("a", 0, node="n0", scheduler_name="default-scheduler"), status)
    assert claimed_amounts(running) == {"cpu": 8000}
    waiting = world(running, pod("plain", 0, queue="q", requests={"cpu": "2"}))
    assert placed(waiting.plan()) == {}
    assert placed(waiting.remove(running).plan()) == {"plain": "n0"}


def test_a_victim_gives_back_what_its_claims_took():
    low = with_status(pod("low", 0, queue="q", node="n0", priority=1), {"resources": {"cpu": "8"}})
    high = pod("high", 0, queue="q", priority=9, created=5, requests={"cpu": "8"})
    plan = world(low, high).plan()
    assert evicted(plan) == ["low"]
    assert [each.pod.name for each in plan.nominations] == ["high"]


MAPPED = former(cpu={"allocationMultiplier": "1"})
OVERHEAD = latter(cpu={"overhead": {"perPod": "1"}})


@pytest.mark.parametrize(("device", "shares"), [(MAPPED, False), (OVERHEAD, True)])
def test_a_claim_with_a_mapped_device_is_not_shared(device, shares):
    shared = claim("common", owner=False)
    plan = world(published(device), shared, user("a", "common"), user("b", "common")).plan()
    assert len(placed(plan)) == (2 if shares else 1)
    if not shares:
        assert "has a mapped device and cannot be shared across pods" in plan.unplaced[0].message


@pytest.mark.parametrize(("device", "shares"), [(MAPPED, False), (OVERHEAD, True)])
def test_nor_with_a_pod_that_runs(device, shares):
    held = claim("common", owner=False, held_by=("a",), device="d0")
    running = user("a", "common", node="n0")
    plan = world(published(device), held, running, user("b", "common")).plan()
    assert bool(placed(plan)) is shares


def test_a_claim_that_no_container_refers_to_is_refused():
    plan = world(published(MAPPED), claim("p"), user("p", referring=0)).plan()
    assert not placed(plan)
    assert "no container refers to it" in plan.unplaced[0].message


@pytest.mark.parametrize(("whole", "starts"), [("6", True), ("4", False)])
def test_what_the_pod_requests_as_a_whole_covers_its_claims(whole, starts):
    device = former(cpu={"allocationMultiplier": "4"})
    asking = user("p")
    asking = replace(
        asking,
        spec=replace(asking.spec, resources=ResourceRequirements(requests={"cpu": whole})),
    )
    plan = world(published(device), claim("p"), asking).plan()
    assert bool(placed(plan)) is starts
    if starts:
        assert taken(plan) == {"p": {}}, "it is part of the six"
    else:
        assert "pod level request for cpu is insufficient" in plan.unplaced[0].message


@pytest.mark.parametrize(
    ("device", "entry"),
    [
        (former(cpu={"allocationMultiplier": "4"}), {"resources": {"cpu": "4"}}),
        (
            latter(cpu={"mapping": {"deviceMultiplier": "4"}}),
            {"mapping": [{"name": "cpu", "quantity": "4"}]},
        ),
        (
            latter(memory={"overhead": {"perPod": "1Gi", "perContainer": "2Gi"}}),
            {"overhead": [{"name": "memory", "perPod": "1Gi", "perContainer": "2Gi"}]},
        ),
    ],
)
def test_the_status_has_the_spelling_of_the_slice(device, entry):
    plan = world(published(device), claim("p"), user("p")).plan()
    [[placement]] = [gang.pods for gang in plan.placements]
    [written] = placement.node_claims
    assert written.entry == "c"
    assert dict(written.status) == {"resourceClaimName": "p", **entry}


def test_without_such_devices_nothing_is_taken():
    plan = world(published({}), claim("p"), user("p")).plan()
    assert taken(plan) == {"p": {}}
    assert all(not p.node_claims for gang in plan.placements for p in gang.pods)
