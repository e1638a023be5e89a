"""Claims of a PodGroup are reserved for the group, and given back with the last of its pods."""

import msgspec
from msgspec.structs import replace

from kai_py.api.references import GroupRef
from kai_py.commit.claims.recovery import find_leftover_claims
from kai_py.embedded.resources import CLAIMS
from kai_py.snapshot.gangs import GroupReservation
from tests.commit.cluster import NAMESPACE, SCHEDULER, device, gang_of, placed, refuse, run

GROUP = GroupRef(NAMESPACE, "train", "group-uid")
CONSUMER = ("scheduling.k8s.io", "podgroups", "train", "group-uid")


def grouped(cluster, size, *, allocate=True):
    """Pods worker-i of the group, which all use its one claim."""
    claim = cluster.add_claim("shared")
    found = device("gpu-0", "node-a")
    if not allocate:
        reserve(cluster, found)
    placements = []
    for index in range(size):
        pod = cluster.add_pod(f"worker-{index}", schedulingGroup={"podGroupName": "train"})
        new = found if allocate and not index else None
        each = placed(pod, "node-a", claim, new)
        placements.append(replace(each, group_reservation=GroupReservation(GROUP, (claim,))))
    return gang_of(*placements)


def reserve(cluster, found):
    """What an earlier attempt has written."""
    names = ("apiGroup", "resource", "name", "uid")
    status = {
        "allocation": msgspec.to_builtins(found),
        "reservedFor": [dict(zip(names, CONSUMER, strict=True))],
    }
    cluster.api.patch_status(CLAIMS, cluster.api.find(CLAIMS, "shared", NAMESPACE), status)


def reserved(cluster):
    return [
        (each.api_group, each.resource, each.name, each.uid)
        for each in cluster.claim("shared").status.reserved_for
    ]


async def test_the_group_is_listed_once_for_all_of_its_pods(cluster):
    outcome = await run(cluster, grouped(cluster, 3))
    assert len(outcome.bound) == 3
    assert reserved(cluster) == [CONSUMER]
    assert cluster.made("patch", "ResourceClaim/status") == 1


async def test_a_group_that_cannot_start_gives_its_claim_back(cluster):
    gang = grouped(cluster, 2)
    cluster.fail_once("patch", "ResourceClaim/status", refuse(422, "Invalid"))
    outcome = await run(cluster, gang)
    assert outcome.reason
    assert (cluster.devices(), reserved(cluster)) == ({}, [])


async def test_pods_that_fail_to_bind_leave_the_claim_to_those_that_run(cluster):
    gang = grouped(cluster, 3)
    cluster.fail_once("create", "Pod/binding", refuse(403, "Forbidden"))
    outcome = await run(cluster, gang)
    assert len(outcome.bound) == 2
    assert reserved(cluster) == [CONSUMER]


async def test_a_group_none_of_whose_pods_was_bound_gives_its_claim_back(cluster):
    gang = grouped(cluster, 2)
    for _ in gang.pods:
        cluster.fail_once("create", "Pod/binding", refuse(403, "Forbidden"))
    assert (await run(cluster, gang)).bound == ()
    assert (cluster.devices(), reserved(cluster)) == ({}, [])


async def test_pods_that_come_later_do_not_take_away_what_the_group_had(cluster):
    gang = grouped(cluster, 1, allocate=False)
    cluster.fail_once("create", "Pod/binding", refuse(403, "Forbidden"))
    assert (await run(cluster, gang)).bound == ()
    assert cluster.devices() == {"shared": ("gpu-0",)}
    assert reserved(cluster) == [CONSUMER]


async def test_what_a_dead_scheduler_left_is_given_back_unless_a_pod_of_the_group_runs(cluster):
    grouped(cluster, 2, allocate=False)
    cluster.add_pod("of-no-group")

    def leftovers(*schedulers):
        found = find_leftover_claims(cluster.claims(), cluster.pods(), set(schedulers), set())
        return {left.claim.name: left.consumers for left in found}

    assert leftovers(SCHEDULER) == {"shared": frozenset({"group-uid"})}
    assert leftovers("another") == {}
    await cluster.access().client.bind(
        namespace=NAMESPACE, pod="worker-1", uid=cluster.pod("worker-1").metadata.uid, node="node-a"
    )
    assert leftovers(SCHEDULER) == {}


async def test_a_group_that_lost_all_of_its_pods_gives_its_claim_back_if_it_is_ours(cluster):
    grouped(cluster, 2, allocate=False)

    def leftovers(pods, groups):
        found = find_leftover_claims(cluster.claims(), pods, {SCHEDULER}, set(), groups)
        return {left.claim.name: left.consumers for left in found}

    running = cluster.pods()
    ended = [replace(each, status=replace(each.status, phase="Succeeded")) for each in running]
    for pods in (ended, []):
        assert leftovers(pods, {(NAMESPACE, "train")}) == {"shared": frozenset({"group-uid"})}
        assert leftovers(pods, ()) == {}
