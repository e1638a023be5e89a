"""Drivers make devices ready before anybody is bound, or the gang is undone."""

import asyncio
from datetime import UTC, datetime, timedelta

from kai_py.commit.claims.binding_conditions import ReadinessPolicy
from kai_py.embedded.resources import CLAIMS
from kai_py.plan.plan import Plan
from tests.commit.assume_cache import RecordingAssumeCache
from tests.commit.cluster import (
    NAMESPACE,
    SETTINGS,
    assert_nothing_held,
    device,
    first,
    gang_of,
    placed,
    run,
    transaction,
)
from tests.support.patience import patience
from tests.support.records import replace


async def test_devices_with_binding_conditions_are_waited_for(cluster):
    pod = cluster.add_pod("worker-0")
    claim = cluster.add_claim("gpu-0")
    allocation = device("gpu-0", "node-a", binding_conditions=("Attached",))
    gang = gang_of(placed(pod, "node-a", claim, allocation))

    def attach():
        condition = {"type": "Attached", "status": "True"}
        status = {"driver": "gpu.example.com", "pool": "node-a", "device": "gpu-0"}
        document = cluster.api.find(CLAIMS, "gpu-0", NAMESPACE)
        cluster.api.patch_status(
            CLAIMS, document, {"devices": [status | {"conditions": [condition]}]}
        )

    cluster.fail_once("get", "ResourceClaim", first(lambda: None))
    cluster.fail_once("get", "ResourceClaim", first(attach))
    patient = ReadinessPolicy(interval=0.001, timeout=patience(5))
    outcome = await run(cluster, gang, replace(SETTINGS, readiness=patient))
    assert len(outcome.bound) == 1
    assert cluster.made("get", "ResourceClaim") == 2


async def until_waiting(cluster, gang, settings):
    """A transaction that waits for drivers, and what it told of that."""
    notes, waits = [], asyncio.Event()

    def tell(*told):
        notes.append(told)
        waits.set()

    begun = transaction(cluster, gang, settings, report_waiting=tell)
    running = asyncio.create_task(begun.run())
    await waits.wait()
    return running, notes


async def test_how_long_drivers_take_counts_from_the_allocation(cluster):
    pod = cluster.add_pod("worker-0")
    claim = cluster.add_claim("gpu-0")
    allocation = device("gpu-0", "node-a", binding_conditions=("Attached",))
    gang = gang_of(placed(pod, "node-a", claim, allocation))
    waiting, [(told, note)] = await until_waiting(cluster, gang, SETTINGS)
    assert told == pod
    assert note == "waiting for binding conditions for device on node node-a: gpu-0: Attached"
    written = cluster.claim("gpu-0").status.allocation.allocation_timestamp
    assert abs((datetime.now(UTC) - written).total_seconds()) < 5
    await waiting
    old = replace(allocation, allocation_timestamp=datetime.now(UTC) - timedelta(hours=1))
    cluster.allocate("gpu-0", old, pod)
    began = asyncio.get_running_loop().time()
    patient = replace(SETTINGS, readiness=ReadinessPolicy(interval=9, timeout=60))
    late = await transaction(cluster, gang, patient).run()
    assert "not ready within 60 s" in late.reason
    assert asyncio.get_running_loop().time() - began < 5
    assert_nothing_held(cluster)


async def test_a_driver_is_heard_at_once_and_a_lost_allocation_ends_the_wait(cluster):
    patient = replace(SETTINGS, readiness=ReadinessPolicy(interval=60, timeout=60))
    pod = cluster.add_pod("worker-0")
    claim = cluster.add_claim("gpu-0")
    allocation = device("gpu-0", "node-a", binding_conditions=("Attached",))
    gang = gang_of(placed(pod, "node-a", claim, allocation))
    waiting, _ = await until_waiting(cluster, gang, patient)
    await asyncio.sleep(0.01)
    document = cluster.api.find(CLAIMS, "gpu-0", NAMESPACE)
    cluster.api.patch_status(CLAIMS, document, {"allocation": None, "reservedFor": None})
    outcome = await asyncio.wait_for(waiting, patience(5))
    assert "was deallocated" in outcome.reason
    assert cluster.nodes() == {}


async def test_devices_that_are_never_ready_are_given_back(cluster):
    pod = cluster.add_pod("worker-0")
    claim = cluster.add_claim("gpu-0")
    allocation = device("gpu-0", "node-a", binding_conditions=("Attached",))
    outcome = await run(cluster, gang_of(placed(pod, "node-a", claim, allocation)))
    assert "gpu-0: Attached" in outcome.reason
    assert outcome.failed_devices == ((("gpu.example.com", "node-a", "gpu-0"), "Attached"),)
    assert_nothing_held(cluster)


async def test_a_device_that_could_not_be_made_ready_is_left_alone_for_a_while(cluster):
    conditions = {"binding_conditions": ("Attached",), "binding_failure_conditions": ("Broken",)}
    allocation = device("gpu-0", "node-a", **conditions)
    pod, claim = cluster.add_pod("worker-0"), cluster.add_claim("gpu-0")
    broken = {"driver": "gpu.example.com", "pool": "node-a", "device": "gpu-0"}
    broken["conditions"] = [{"type": "Broken", "status": "True"}]

    def fail():
        document = cluster.api.find(CLAIMS, "gpu-0", NAMESPACE)
        cluster.api.patch_status(CLAIMS, document, {"devices": [broken]})

    cluster.fail_once("get", "ResourceClaim", first(fail))
    assume_cache = RecordingAssumeCache()
    committer = cluster.committer(assume_cache)
    committer.commit(Plan(placements=(gang_of(placed(pod, "node-a", claim, allocation)),)), 0.0)
    assert await committer.drain(5.0)
    assert assume_cache.avoided == [(("gpu.example.com", "node-a", "gpu-0"), "Broken", 60.0)]
    # The end of the pause is a deadline of the snapshot; here only the retry is asked for.
    assert 0 < min(cluster.wakes) < 60
    assert_nothing_held(cluster)
