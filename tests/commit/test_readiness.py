"""Drivers make devices ready before anybody is bound, or the gang is undone."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from kai_py.api.records.record import convert_record
from kai_py.api.records.resource import ResourceClaim
from kai_py.commit.claims.binding_conditions import (
    Readiness,
    ReadinessPolicy,
    never_ready,
    readiness,
)
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

GPU = {"driver": "d", "pool": "p", "device": "gpu", "shareID": "s"}
ALLOCATED = datetime(2027, 1, 1, tzinfo=UTC)


def claim_with(conditions, of=GPU, **allocated):
    """A claim with a device that has binding conditions, as its driver reports it."""
    result = GPU | {"bindingConditions": ["A", "B"], "bindingFailureConditions": ["F"]}
    allocation = {"devices": {"results": [result]}, **allocated}
    listed = [{"type": name, "status": status} for name, status in conditions.items()]
    status = {"allocation": allocation, "devices": [{**of, "conditions": listed}]}
    return convert_record({"metadata": {"name": "c", "uid": "u"}, "status": status}, ResourceClaim)


@pytest.mark.parametrize(
    ("conditions", "of", "missing", "failed"),
    [
        ({"A": "True", "B": "True"}, {}, "", ""),
        ({"A": "True", "B": "False"}, {}, "B", ""),
        ({"A": "True", "B": "Unknown"}, {}, "B", ""),
        ({}, {}, "AB", ""),
        ({"A": "True", "B": "True", "F": "True"}, {}, "", "F"),
        ({"A": "True", "B": "True", "F": "False"}, {}, "", ""),
        *(({"A": "True", "B": "True", "F": "True"}, {key: "x"}, "AB", "") for key in GPU),
    ],
)
def test_only_what_its_driver_says_of_the_device_itself_counts(conditions, of, missing, failed):
    found = readiness(claim_with(conditions, GPU | of))
    device = ("d", "p", "gpu")
    assert found.missing == tuple((device, each) for each in missing)
    assert found.failed == tuple((device, each) for each in failed)


@pytest.mark.parametrize(
    ("conditions", "seconds", "reason"),
    [
        ({"A": "True"}, 60.9, ""),
        ({"A": "True"}, 61.0, "claim /c: not ready within 60 s: gpu: B"),
        ({"A": "True", "B": "True"}, 99.0, ""),
        ({"A": "True", "F": "True"}, 0.0, "claim /c: binding failed: gpu: F"),
        ({}, -500.0, ""),
    ],
)
def test_waiting_ends_after_a_failure_or_too_long_after_the_allocation(conditions, seconds, reason):
    claim = claim_with(conditions, allocationTimestamp=ALLOCATED.isoformat())
    found = never_ready(claim, 60.0, ALLOCATED + timedelta(seconds=seconds))
    assert (found.reason if found else "") == reason
    assert never_ready(claim_with({}), 60.0, ALLOCATED) is None, "the time is not known"
    assert readiness(ResourceClaim()) == Readiness()


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
