"""A gang that is being bound is withdrawn, not evicted; its nodes are looked at before that."""

import asyncio

import pytest

from kai_py.api.records.node import Taint
from kai_py.commit.claims.binding_conditions import ReadinessPolicy
from kai_py.embedded.resources import PODS
from kai_py.plan.plan import Plan
from tests.commit.assume_cache import RecordingAssumeCache
from tests.commit.cluster import (
    NAMESPACE,
    SETTINGS,
    Cluster,
    assert_nothing_held,
    eviction_of,
    first,
    gang_with_claims,
    ready_node,
    refuse,
)
from tests.support.records import replace


@pytest.mark.parametrize("suspend", [False, True])
@pytest.mark.parametrize("steps", range(0, 12, 2))
async def test_pods_that_never_ran_are_not_deleted(steps, suspend):
    cluster, cache = Cluster(), RecordingAssumeCache()
    gang = gang_with_claims(cluster, 2)
    committer = cluster.committer(cache)
    committer.commit(Plan(placements=(gang,)), now=0.0)
    for _ in range(steps):
        await asyncio.sleep(0)
    evictions = tuple(eviction_of(placement.pod, suspend=suspend) for placement in gang.pods)
    committer.commit(Plan(evictions=evictions), now=0.0)
    assert await committer.drain(5.0)
    assert len(cluster.pods()) == 2, "a pod that never ran was deleted"
    assert cluster.made("create", "Pod/eviction") == 0
    assert cluster.made("patch", "Job") == 0
    assert cache.leaving == set()
    if cluster.nodes():
        assert len(cluster.nodes()) == 2, "half of the gang was bound"
        assert len(cluster.devices()) == 2
    else:
        assert_nothing_held(cluster)
        assert cache.assumed == {}


async def test_a_gang_that_waits_for_its_devices_is_withdrawn_at_once(cluster):
    cache, gang = RecordingAssumeCache(), gang_with_claims(cluster, 1)
    result = gang.pods[0].allocate[0].allocation.devices.results[0]
    slow = replace(result, binding_conditions=("Attached",))
    gang = _with_result(gang, slow)
    patient = replace(SETTINGS, readiness=ReadinessPolicy(interval=60.0, timeout=600.0))
    committer = cluster.committer(cache, settings=patient)
    committer.commit(Plan(placements=(gang,)), now=0.0)
    for _ in range(100):
        await asyncio.sleep(0)
    assert cluster.devices() == {"gpu-0": ("gpu-0",)}
    committer.commit(Plan(evictions=(eviction_of(gang.pods[0].pod),)), now=0.0)
    assert await committer.drain(30.0), "it still waits for its devices"
    assert_nothing_held(cluster)
    assert len(cluster.pods()) == 1


def _with_result(gang, result):
    placement = gang.pods[0]
    new = placement.allocate[0]
    devices = replace(new.allocation.devices, results=(result,))
    allocation = replace(new.allocation, devices=devices)
    allocated = replace(new, allocation=allocation)
    return replace(gang, pods=(replace(placement, allocate=(allocated,)),))


async def test_a_victim_that_is_on_no_node_stays(cluster):
    pod = cluster.add_pod("worker-0")
    committer = cluster.committer(RecordingAssumeCache())
    committer.commit(Plan(evictions=(eviction_of(pod),)), now=0.0)
    assert await committer.drain(5.0)
    assert cluster.pod("worker-0").metadata.deletion_timestamp is None
    assert cluster.metrics.evictions.labels("preempt", "unbound")._value.get() == 1


@pytest.mark.parametrize("code", [401, 403, 404, 410, 500, 503])
async def test_a_victim_that_cannot_be_read_stays(cluster, code):
    pod, cache = cluster.add_pod("victim"), RecordingAssumeCache()
    await cluster.access().client.bind(
        namespace=NAMESPACE, pod="victim", uid=pod.uid, node="node-a"
    )
    committer = cluster.committer(cache)
    for _ in range(4):
        cluster.fail_once("get", "Pod", refuse(code))
    committer.commit(Plan(evictions=(eviction_of(pod),)), now=0.0)
    assert await committer.drain(5.0)
    assert cluster.pod("victim").metadata.deletion_timestamp is None
    assert cache.leaving == set(), "it counts as staying"


TAINT = Taint(key="maintenance", effect="NoSchedule")
SOFT = Taint(key="busy", effect="PreferNoSchedule")


@pytest.mark.parametrize(
    ("change", "bound"),
    [
        (None, False),
        (ready_node("node-a", uid="another"), False),
        (ready_node("node-a", ready="Unknown"), False),
        (ready_node("node-a", unschedulable=True), False),
        (ready_node("node-a", taints=(TAINT,)), False),
        (ready_node("node-a", taints=(SOFT,)), True),
    ],
    ids=["gone", "recreated", "not ready", "cordoned", "tainted", "soft taint"],
)
async def test_nodes_are_looked_at_before_the_first_binding(cluster, change, bound):
    gang = gang_with_claims(cluster, 2)

    def happen():
        cluster.shown_nodes["node-a"] = change

    cluster.fail_once("patch", "ResourceClaim/status", first(happen))
    committer = cluster.committer(RecordingAssumeCache())
    committer.commit(Plan(placements=(gang,)), now=0.0)
    assert await committer.drain(5.0)
    if bound:
        assert len(cluster.nodes()) == 2
    else:
        assert_nothing_held(cluster)
    assert len(cluster.api.list(PODS)) == 2
