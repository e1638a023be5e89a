import asyncio
import time

import pytest
from msgspec.structs import replace

from kai_py.api.gpu_reservation import GpuGroup
from kai_py.api.gpu_share import SharedGpu
from kai_py.api.references import ClaimRef, PodRef
from kai_py.commit.claims.recovery import LeftoverClaim
from kai_py.commit.settings import CommitSettings
from kai_py.embedded.deletion import DeleteOptions, delete
from kai_py.embedded.resources import BUDGETS, PODS
from kai_py.plan.plan import Nomination, Plan
from tests.commit.assume_cache import RecordingAssumeCache
from tests.commit.cluster import (
    NAMESPACE,
    NO_ROLE,
    QUICK,
    carry_out,
    count,
    eviction_of,
    first,
    gang_of,
    gang_with_claims,
    placed,
    refuse,
)


@pytest.fixture
def assume_cache():
    return RecordingAssumeCache()


async def test_a_gang_is_assumed_at_once_and_stays_so_when_bound(cluster, assume_cache):
    gang = gang_with_claims(cluster, 2)
    committer = cluster.committer(assume_cache)
    committer.commit(Plan(placements=(gang,)), now=0.0)
    assert assume_cache.assumed == {placement.pod.uid: "node-a" for placement in gang.pods}
    assert cluster.calls == []
    assert committer.pods_in_flight == assume_cache.assumed.keys()
    assert committer.is_committing(gang.pods[0].reserve[0].uid)
    assert await committer.drain(5.0)
    assert assume_cache.forgotten == []
    assert committer.pods_in_flight == frozenset()
    assert not committer.is_committing(gang.pods[0].reserve[0].uid)
    assert count(cluster.metrics.bindings, "bound") == 2
    assert count(cluster.metrics.gangs, "allocate", "bound") == 1


async def test_a_gang_under_way_is_not_started_twice(cluster, assume_cache):
    plan = Plan(placements=(gang_with_claims(cluster, 2),))
    committer = cluster.committer(assume_cache)
    committer.commit(plan, now=0.0)
    await carry_out(committer, plan)
    assert cluster.made("create", "Pod/binding") == 2


@pytest.mark.parametrize("what", ["claim", "GPU"])
async def test_a_gang_waits_until_what_it_would_get_is_released(cluster, assume_cache, what):
    gang = gang_with_claims(cluster, 2)
    shared = replace(gang.pods[1], gpus=(SharedGpu("g", 0),))
    gang = replace(gang, pods=(gang.pods[0], shared))
    committer = cluster.committer(assume_cache)
    released = committer.releasing if what == "claim" else committer.releasing_gpus
    released.add(gang.pods[0].reserve[0].uid if what == "claim" else GpuGroup("node-a", "g"))
    committer.commit(Plan(placements=(gang,)), now=0.0)
    assert committer.pods_in_flight == frozenset()
    released.clear()
    released.add("another" if what == "claim" else GpuGroup("node-b", "g"))
    committer.commit(Plan(placements=(gang,)), now=0.0)
    assert len(committer.pods_in_flight) == 2
    await committer.drain(5.0)


@pytest.mark.parametrize("busy", ["", "claim", "pod", "released already"])
async def test_a_leftover_claim_that_is_written_to_is_not_released(
    cluster, assume_cache, busy, monkeypatch
):
    pod, other = (PodRef("ns", name, name) for name in ("p", "other"))
    leftover = LeftoverClaim(ClaimRef("ns", "c", "c"), frozenset(), frozenset((pod, other)))
    committer, released = cluster.committer(assume_cache), []

    async def release(each):
        released.append(each)

    monkeypatch.setattr(committer, "_release", release)
    monkeypatch.setattr(committer, "is_committing", {"claim": "c", "pod": "p"}.get(busy, "").__eq__)
    if busy == "released already":
        committer.releasing.add("c")
    committer.release_leftovers([leftover])
    await committer.drain(5.0)
    assert released == ([] if busy else [leftover])


async def test_an_undone_gang_is_forgotten_and_tried_again_after_its_backoff(cluster, assume_cache):
    gang = gang_with_claims(cluster, 2)
    plan = Plan(placements=(gang,))
    slow = CommitSettings(retry=QUICK, mirror_timeout=0.2)
    committer = cluster.committer(assume_cache, settings=slow)
    cluster.fail_once("patch", "ResourceClaim/status", refuse(403, "Forbidden"))
    await carry_out(committer, plan)
    assert assume_cache.assumed == {}
    assert sorted(assume_cache.forgotten) == sorted(placement.pod.uid for placement in gang.pods)
    assert 0.2 < cluster.wakes[0] <= slow.backoff.base
    made = len(cluster.calls)
    await carry_out(committer, plan)
    assert len(cluster.calls) == made, "the gang was tried again before its backoff had passed"
    assert count(cluster.metrics.gangs, "allocate", "rolled_back") == 1


async def test_a_gang_that_fails_for_the_third_time_leaves_its_capacity_until_it_is_due(
    cluster, assume_cache
):
    gang = gang_with_claims(cluster, 1)
    committer = cluster.committer(assume_cache)
    seen = []
    for _ in range(3):
        cluster.fail_once("patch", "ResourceClaim/status", refuse(403, "Forbidden"))
        await carry_out(committer, Plan(placements=(gang,)))
        seen.append(list(assume_cache.held_back))
        await asyncio.sleep(0.003)
    assert seen == [[], [], [gang.gang]]


async def test_a_failing_gang_does_not_hold_up_another(cluster, assume_cache):
    failing = gang_with_claims(cluster, 1)
    pod = cluster.add_pod("other")
    committer = cluster.committer(assume_cache, settings=CommitSettings(retry=QUICK))
    cluster.fail_once("patch", "ResourceClaim/status", refuse(403, "Forbidden"))
    await carry_out(committer, Plan(placements=(failing,)))
    other = replace(gang_of(placed(pod, "node-b")), gang="team-a/Pod/other")
    await carry_out(committer, Plan(placements=(failing, other)))
    assert cluster.nodes() == {"other": "node-b"}


async def test_a_gang_waits_for_the_allocation_of_a_claim_by_another(cluster, assume_cache):
    gang = gang_with_claims(cluster, 1)
    claim = gang.pods[0].reserve[0]
    other = replace(
        gang_of(placed(cluster.add_pod("other"), "node-a", claim)), gang="team-a/Pod/other"
    )
    committer = cluster.committer(assume_cache)
    await carry_out(committer, Plan(placements=(gang, other)))
    assert cluster.nodes() == {"worker-0": "node-a"}
    assert count(cluster.metrics.gangs, "allocate", "rolled_back") == 0
    await carry_out(committer, Plan(placements=(other,)))
    assert cluster.nodes() == {"worker-0": "node-a", "other": "node-a"}


async def test_only_the_pod_that_vanished_is_forgotten(cluster, assume_cache):
    gang = gang_with_claims(cluster, 3)
    committer = cluster.committer(assume_cache)
    gone = DeleteOptions(grace_seconds=0)
    cluster.fail_once(
        "create",
        "Pod/binding",
        first(lambda: delete(cluster.api, PODS, "worker-1", NAMESPACE, gone)),
    )
    await carry_out(committer, Plan(placements=(gang,)))
    assert assume_cache.forgotten == [gang.pods[1].pod.uid]
    assert count(cluster.metrics.gangs, "allocate", "partial") == 1
    assert cluster.wakes == [0.0]


async def test_a_crash_in_a_transaction_is_logged_and_forgotten(cluster, assume_cache, caplog):
    gang = gang_with_claims(cluster, 1)

    async def explode(_call, _serve):
        raise ZeroDivisionError

    cluster.fail_once("create", "Pod/binding", explode)
    committer = cluster.committer(assume_cache)
    await carry_out(committer, Plan(placements=(gang,)))
    assert "ZeroDivisionError" in caplog.text
    assert assume_cache.forgotten == [gang.pods[0].pod.uid]


async def test_nominations_hold_capacity(cluster, assume_cache):
    pod = cluster.add_pod("worker-0")
    committer = cluster.committer(assume_cache)
    await carry_out(committer, Plan(nominations=(Nomination("g", pod, "node-a"),)))
    assert assume_cache.held == {pod.uid: "node-a"}


async def bound_pod(cluster, name="victim", grace=0, finalizers=()):
    pod = cluster.add_pod(name, finalizers=finalizers, terminationGracePeriodSeconds=grace)
    client = cluster.access().client
    await client.bind(namespace=NAMESPACE, pod=name, uid=pod.uid, node="node-a")
    cluster.api.patch_status(PODS, cluster.api.find(PODS, name, NAMESPACE), {"phase": "Running"})
    cluster.calls.clear()
    return pod


async def test_a_gang_does_not_start_before_the_evictions_for_it_have_been_answered(
    cluster, assume_cache
):
    victim, big = await bound_pod(cluster), cluster.add_pod("big")
    answered = asyncio.Event()

    async def late(_call, serve):
        await answered.wait()
        return await serve()

    cluster.fail_once("create", "Pod/eviction", late)
    committer = cluster.committer(assume_cache)
    evicting = Plan(evictions=(eviction_of(victim),))
    starting = Plan(
        placements=(replace(gang_of(placed(big, "node-b")), gang=evicting.evictions[0].preemptor),)
    )
    committer.commit(evicting, now=0.0)
    committer.commit(starting, now=0.0)
    assert not await committer.drain(0.05)
    assert big.name not in cluster.nodes()
    answered.set()
    assert await committer.drain(5.0)
    assert cluster.wakes == [0.0], "no cycle was requested for the gang that waited"
    await carry_out(committer, starting)
    assert cluster.nodes() == {"big": "node-b"}


async def test_a_victim_leaves_with_the_reason_in_its_condition(cluster, assume_cache):
    pod = await bound_pod(cluster, grace=30)
    await carry_out(cluster.committer(assume_cache), Plan(evictions=(eviction_of(pod),)))
    victim = cluster.pod("victim")
    assert victim.metadata.deletion_timestamp is not None
    (condition,) = (c for c in victim.status.conditions if c.type == "DisruptionTarget")
    assert (condition.status, condition.reason) == ("True", "PreemptionByScheduler")
    assert condition.message == "preempted by higher priority workload team-a/Job/big"
    assert condition.last_transition_time is not None
    assert count(cluster.metrics.evictions, "preempt", "evicted") == 1


async def test_a_victim_that_leaves_at_once_is_evicted_all_the_same(cluster, assume_cache):
    pod = await bound_pod(cluster)
    await carry_out(cluster.committer(assume_cache), Plan(evictions=(eviction_of(pod),)))
    assert cluster.pod("victim") is None
    assert count(cluster.metrics.evictions, "preempt", "evicted") == 1
    assert cluster.made("patch", "Pod/status") == 0, "nothing is left to write a reason to"


async def test_a_victim_kept_by_a_finalizer_has_the_reason_in_its_condition(cluster, assume_cache):
    pod = await bound_pod(cluster, finalizers=["example.com/keep"])
    await carry_out(cluster.committer(assume_cache), Plan(evictions=(eviction_of(pod),)))
    conditions = cluster.pod("victim").status.conditions
    assert "PreemptionByScheduler" in [each.reason for each in conditions]


@pytest.mark.parametrize(("grace", "left"), [(30, 30), (1800, 1800), (7200, 1800), (2**62, 1800)])
async def test_a_victim_has_no_longer_than_the_longest_grace_period(
    cluster, assume_cache, grace, left
):
    pod = await bound_pod(cluster, grace=grace)
    await carry_out(cluster.committer(assume_cache), Plan(evictions=(eviction_of(pod),)))
    assert cluster.pod("victim").metadata.deletion_grace_period_seconds == left


async def test_the_grace_of_a_victim_that_its_tenant_deleted_is_shortened(cluster, assume_cache):
    pod = await bound_pod(cluster, grace=7 * 86400)
    delete(cluster.api, PODS, "victim", NAMESPACE)
    ends = cluster.pod("victim").metadata.deletion_timestamp
    await carry_out(cluster.committer(assume_cache), Plan(evictions=(eviction_of(pod),)))
    victim = cluster.pod("victim")
    assert victim.metadata.deletion_grace_period_seconds == 1800
    saved = ends - victim.metadata.deletion_timestamp
    assert saved.total_seconds() == 7 * 86400 - 1800
    assert count(cluster.metrics.evictions, "preempt", "evicted") == 1


async def test_a_disruption_budget_says_not_now_and_is_asked_again(cluster, assume_cache):
    pod = await bound_pod(cluster)
    body = {"metadata": {"name": "keep"}, "spec": {"minAvailable": 1, "selector": {}}}
    cluster.api.create(BUDGETS, body, NAMESPACE)
    plan = Plan(evictions=(eviction_of(pod),))
    committer = cluster.committer(assume_cache)
    await carry_out(committer, plan)
    assert cluster.pod("victim").metadata.deletion_timestamp is None
    assert count(cluster.metrics.evictions, "preempt", "blocked") == 1
    assert assume_cache.leaving == set(), "a refused victim stays"
    (until,) = assume_cache.refused.values()
    assert 9.0 < until - time.time() < 70.0, "and is no victim until it is asked again"
    assert min(cluster.wakes) == 0.0, "others are looked for at once"
    assert cluster.made("patch", "Pod/status") == 0, "a refused victim is not marked"
    assert max(cluster.wakes) >= 10.0, "the server's Retry-After must be respected"
    await carry_out(committer, plan)
    assert cluster.made("create", "Pod/eviction") == 1
    budget = cluster.api.find(BUDGETS, "keep", NAMESPACE)
    cluster.api.patch_status(BUDGETS, budget, {"disruptionsAllowed": 1, "observedGeneration": 1})
    await carry_out(cluster.committer(assume_cache), plan)
    assert cluster.pod("victim") is None


async def test_an_eviction_that_is_refused_is_told(cluster, assume_cache, caplog):
    pod = await bound_pod(cluster)
    fault = refuse(403, "Forbidden", message=NO_ROLE)
    cluster.fail_once("create", "Pod/eviction", fault)
    await carry_out(cluster.committer(assume_cache), Plan(evictions=(eviction_of(pod),)))
    assert assume_cache.leaving == set()
    assert count(cluster.metrics.evictions, "preempt", "failed") == 1
    (logged,) = caplog.messages
    assert logged.startswith("pod team-a/victim: not evicted: POST ")
    assert "permission denied" in logged


async def test_another_pod_of_that_name_is_not_evicted(cluster, assume_cache):
    pod = await bound_pod(cluster)
    delete(cluster.api, PODS, "victim", NAMESPACE, DeleteOptions(grace_seconds=0))
    await bound_pod(cluster)
    await carry_out(cluster.committer(assume_cache), Plan(evictions=(eviction_of(pod),)))
    assert cluster.pod("victim").metadata.deletion_timestamp is None
    assert count(cluster.metrics.evictions, "preempt", "deleted") == 1
