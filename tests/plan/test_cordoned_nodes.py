"""What is shared of cordoned nodes: only what pods of queues have there."""

import pytest

from kai_py.policy.fairness_rules import KAI, NATIVE
from tests.support.records import replace
from tests.support.scenario import (
    GPU_DRIVER,
    claim,
    claiming,
    claiming_job,
    cluster,
    device_class,
    evicted,
    gpu_slice,
    node,
    pod,
    queue,
)

PRODUCT = {"attribute": f"{GPU_DRIVER}/productName", "values": ["NVIDIA H100 80GB HBM3"]}


def on(name: str, of: str, count: int) -> list:
    return [pod(f"{of}-{name}-{i}", queue=of, node=name) for i in range(count)]


def waiting(of: str, count: int) -> list:
    return [pod(f"{of}-{i}", queue=of) for i in range(count)]


def shares(plan) -> dict[str, float]:
    return {each.queue: each.fair_share["gpu"] for each in plan.queues}


@pytest.mark.parametrize("rules", [NATIVE, KAI])
@pytest.mark.parametrize("of_cordoned", [0, 2])
def test_an_idle_part_of_a_cordoned_node_keeps_no_queue_from_its_share(rules, of_cordoned) -> None:
    cordoned = node("m", 4, unschedulable=True)
    on_it = on("m", "a", of_cordoned)
    objects = node("n", 4), cordoned, queue("a"), queue("b"), on("n", "a", 4), on_it
    plan = cluster(*objects, waiting("b", 4), rules=rules).plan()
    half = (4 + of_cordoned) / 2
    assert shares(plan) == {"a": half, "b": half}
    assert len(evicted(plan)) == half
    assert not any("-m-" in name for name in evicted(plan)), "that would free nothing"


def test_a_node_counts_again_when_it_is_uncordoned() -> None:
    objects = node("n", 4), node("m", 4, unschedulable=True), queue("a"), on("n", "a", 4)
    world = cluster(*objects, waiting("a", 6))
    assert shares(world.plan()) == {"a": 4.0}
    world.remove(node("m", 4)).add(node("m", 4))
    assert shares(world.plan(1001)) == {"a": 8.0}


@pytest.mark.parametrize("of_cordoned", [0, 2])
def test_devices_of_a_cordoned_node_count_as_far_as_they_are_allocated(of_cordoned) -> None:
    nodes = node("n", 0), node("m", 0, unschedulable=True)
    devices = gpu_slice("n", 4), gpu_slice("m", 4), device_class()
    claims = [
        claim(f"c{i}", owner=f"p{i}", held_by=[f"p{i}"], on=[("m", f"gpu-{i}")])
        for i in range(of_cordoned)
    ]
    pods = [claiming(pod(f"p{i}", 0, queue="a", node="m"), f"c{i}") for i in range(of_cordoned)]
    jobs = [each for i in range(8) for each in claiming_job(f"j{i}", 1, queue="a")]
    plan = cluster(*nodes, *devices, queue("a"), *claims, *pods, *jobs).plan()
    assert shares(plan) == {"a": 4.0 + of_cordoned}


@pytest.mark.parametrize("limit", [{"deviceClassName": GPU_DRIVER}, PRODUCT], ids=["class", "attr"])
@pytest.mark.parametrize("gone", [{"unschedulable": True}, {}], ids=["cordoned", "not ready"])
def test_devices_of_nodes_that_take_no_pods_are_not_shared(limit, gone) -> None:
    lost = node("m", 0, **gone)
    if not gone:
        lost = replace(lost, status=replace(lost.status, conditions=()))
    objects = node("n", 0), lost, gpu_slice("n", 4), gpu_slice("m", 4), device_class()
    entitled = [{"name": "h100", "deserved": 8, **limit}]
    jobs = [each for i in range(8) for each in claiming_job(f"j{i}", 1, queue="a")]
    plan = cluster(*objects, queue("a", devices=entitled), *jobs).plan()
    (share,) = plan.queues
    (row,) = (name for name in share.fair_share if "h100" in name or GPU_DRIVER in name)
    assert share.fair_share[row] == 4.0


def test_what_pods_have_of_a_cordoned_node_follows_them() -> None:
    objects = node("n", 4), node("m", 4, unschedulable=True), queue("a"), on("n", "a", 4)
    leaving = on("m", "a", 3)
    world = cluster(*objects, leaving, waiting("a", 6))
    assert shares(world.plan()) == {"a": 7.0}
    world.remove(*leaving[:2])
    assert shares(world.plan(1001)) == {"a": 5.0}
    world.add(node("n", 4, unschedulable=True))
    assert shares(world.plan(1002)) == {"a": 5.0}
    world.add(node("m", 4))
    assert shares(world.plan(1003)) == {"a": 8.0}
