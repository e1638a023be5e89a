"""Claims that are allocated for pods on no node: a bind was lost, a scheduler has ended."""

import pytest

from tests.simulate.manifests import (
    ANY_DEVICE,
    QUEUE,
    allocated,
    gpus_of,
    node,
    placed_on,
    plan,
    pod,
)

HIGH_PRIORITY = 1000


def user(name, gpus=3, **spec):
    claims = [{"name": "gpu", "resourceClaimName": "left"}]
    found = pod(name, gpus=gpus, resourceClaims=claims, **spec)
    found["metadata"]["uid"] = f"uid-{name}"
    return found


def cluster(claim, *pods, idle=3):
    """Two nodes: on ``full``, where the claim's device is, stands a pod with all 4 GPUs."""
    running = pod("running", gpus=4, node="full", priority=0)
    nodes = [node("full"), *([node("idle", idle)] if idle else [])]
    slices = [gpus_of(each["metadata"]["name"]) for each in nodes]
    return (*nodes, *slices, ANY_DEVICE, QUEUE, running, claim, *pods)


@pytest.mark.parametrize("users", [("a",), (), ("a", "gone")])
def test_a_claim_that_only_waiting_pods_have_is_released(users):
    given = cluster(allocated("left", "full", *users), user("a"))
    found = plan(*given, until_rest=True)
    assert placed_on(found) == {"default/a": "idle"}
    assert found["evictions"] == []


@pytest.mark.parametrize("priority", [0, HIGH_PRIORITY])
@pytest.mark.parametrize("gpus", [3, 4])
def test_no_pod_is_evicted_or_moved_to_get_to_the_devices_of_such_a_claim(gpus, priority):
    given = cluster(allocated("left", "full", "a"), user("a", gpus, priority=priority), idle=4)
    found = plan(*given)
    assert (found["evictions"], found["nominations"]) == ([], [])
    [waits] = found["pending"]
    assert 'Resourceclaim "left" was allocated for it' in waits["message"]
    assert not found["rest"]


def test_once_it_is_released_pods_may_be_evicted():
    given = cluster(allocated("left", "full", "a"), user("a", priority=HIGH_PRIORITY), idle=0)
    found = plan(*given, until_rest=True)
    assert [(each["pod"], each["cycle"]) for each in found["evictions"]] == [("default/running", 2)]
    assert placed_on(found) == {"default/a": "full"}


@pytest.mark.parametrize("listed", [("a", "b"), ("b",), ("a",)])
def test_a_claim_that_a_pod_on_a_node_uses_keeps_its_devices(listed):
    given = cluster(allocated("left", "full", *listed), user("a"), user("b", 0, nodeName="full"))
    found = plan(*given, until_rest=True)
    assert placed_on(found) == {}
    [waits] = found["pending"]
    assert 'resourceclaim "gpu" is allocated on another node' in waits["message"]
    assert "Resourceclaim" not in waits["message"]


def test_a_claim_that_a_pod_of_another_scheduler_waits_with_is_left_to_that_scheduler():
    other = user("b", 0, schedulerName="default-scheduler")
    given = cluster(allocated("left", "full", "a", "b"), user("a"), other)
    assert placed_on(plan(*given, until_rest=True)) == {}


def test_it_is_used_as_it_is_where_the_pod_fits():
    given = cluster(allocated("left", "idle", "a"), user("a"))
    found = plan(*given, until_rest=True)
    assert [(each["node"], each["cycle"]) for each in found["placements"]] == [("idle", 1)]
