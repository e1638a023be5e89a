"""Impossible is told apart from not now, and every node is counted once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kai_py.grouping.topology_annotations import REQUIRED_LEVEL_KEY
from kai_py.plan.placement.reasons import amount_text
from kai_py.plan.plan import Stage
from tests.support.scenario import (
    claiming_job,
    cluster,
    device_class,
    gpu_slice,
    job_with_pods,
    node,
    pod,
    queue,
)


def pending(*objects, **settings):
    """The one gang that stays pending."""
    [found] = cluster(*objects, **settings).plan().unplaced
    return found


def test_a_pod_larger_than_every_node_names_the_largest():
    found = pending(node("a", 4), node("b", 8), queue("q", 64), pod("big", 16, queue="q"))
    assert found.is_infeasible
    assert found.stage is Stage.RESOURCES
    assert found.message == (
        "0/2 nodes are available: 2 Insufficient nvidia.com/gpu (16 requested, most free 8 on b). "
        "Infeasible: a pod requests nvidia.com/gpu 16; the largest of 2 nodes has 8."
    )


def test_a_gang_that_its_queue_stops_may_be_too_large_for_every_node_as_well():
    nodes = (node("a", 8), node("b", 8))
    over = pending(*nodes, queue("q", 4, maxGPUs=12), pod("big", 16, queue="q"))
    assert over.stage is Stage.QUEUE_MAX
    assert over.message.endswith(
        " Infeasible: it requests 16 GPUs at once; max of queue q is 12; "
        "a pod requests nvidia.com/gpu 16; the largest of 2 nodes has 8."
    )
    waits = pending(
        *nodes,
        queue("q", 4, maxGPUs=16),
        pod("runs", 4, queue="q", node="a"),
        pod("big", 16, queue="q"),
    )
    assert waits.stage is Stage.QUEUE_MAX
    assert waits.is_infeasible
    assert waits.message.endswith(
        " Infeasible: a pod requests nvidia.com/gpu 16; the largest of 2 nodes has 8."
    )
    later = pending(
        *nodes, queue("q", 4, maxGPUs=8), pod("runs", 4, queue="q", node="a"),
        pod("fits", 8, queue="q"),
    )  # fmt: skip
    assert later.stage is Stage.QUEUE_MAX
    assert not later.is_infeasible


def test_a_pod_that_fits_an_empty_node_only_waits():
    found = pending(
        node("a", 8),
        queue("q", 8),
        pod("runs", 4, queue="q", node="a"),
        pod("waits", 8, queue="q"),
    )
    assert not found.is_infeasible
    assert "Infeasible" not in found.message


def test_a_cordoned_node_may_come_back():
    found = pending(node("a", 8, unschedulable=True), queue("q", 8), pod("waits", 8, queue="q"))
    assert not found.is_infeasible


def test_only_nodes_that_the_selector_admits_count():
    found = pending(
        node("a", 4, labels={"gpu": "small"}),
        node("b", 8),
        queue("q", 8),
        pod("picky", 8, queue="q", node_selector={"gpu": "small"}),
    )
    assert "a pod requests nvidia.com/gpu 8; the only admitted node has 4" in found.message


def test_a_gang_larger_than_the_cluster():
    found = pending(node("a", 8), queue("q", 64), job_with_pods("train", 12, queue="q"))
    assert found.message.endswith(
        " Infeasible: with nothing else on them, the nodes hold 8 of the 12 pods."
    )


def test_a_gang_larger_than_the_max_of_its_queue():
    found = pending(node("a", 8), queue("q", 2, 4), job_with_pods("train", 8, queue="q"))
    assert found.stage is Stage.QUEUE_MAX
    assert found.message.endswith(" Infeasible: it requests 8 GPUs at once; max of queue q is 4.")


def test_a_queue_that_is_full_now_is_no_impossibility():
    found = pending(
        node("a", 8),
        queue("q", 4, 4),
        pod("runs", 4, queue="q", node="a"),
        pod("waits", 4, queue="q"),
    )
    assert found.stage is Stage.QUEUE_MAX
    assert not found.is_infeasible


def test_more_devices_on_one_pod_than_any_node_has():
    hardware = (node("a", 0), gpu_slice("a"), device_class())
    found = pending(*hardware, queue("q", 64), claiming_job("train", 1, 16, queue="q"))
    assert found.is_infeasible
    assert "requested 16 of class gpu.nvidia.com, at most 8 on a node" in found.message


@pytest.mark.parametrize("rack_gpus", [8, 16])
def test_a_gang_larger_than_every_domain(rack_gpus):
    racks = [node(f"{r}-{n}", rack_gpus // 2, labels={"rack": r}) for r in "ab" for n in "01"]
    owner, *pods = job_with_pods("train", 12, queue="q")
    required = {**owner.metadata.annotations, REQUIRED_LEVEL_KEY: "rack"}
    train = [replace(owner, metadata=replace(owner.metadata, annotations=required)), *pods]
    unplaced = cluster(*racks, queue("q", 64), train).plan().unplaced
    if rack_gpus == 16:
        assert unplaced == ()
        return
    [found] = unplaced
    assert found.message.endswith(
        " Infeasible: 12 pods must share one rack; with nothing else on it, the largest, a, "
        "holds 8."
    )


@given(
    sizes=st.lists(st.integers(0, 8), min_size=1, max_size=6),
    cordoned=st.sets(st.integers(0, 5)),
    racks=st.lists(st.sampled_from("ab"), min_size=6, max_size=6),
    gpus=st.integers(1, 9),
    cpu=st.sampled_from(["1", "300"]),
    selector=st.sampled_from([{}, {"rack": "a"}]),
    pods=st.integers(1, 3),
)
def test_every_node_is_in_exactly_one_group(sizes, cordoned, racks, gpus, cpu, selector, pods):
    nodes = [
        node(f"n{i}", size, unschedulable=i in cordoned, labels={"rack": racks[i]})
        for i, size in enumerate(sizes)
    ]
    job = job_with_pods(
        "train", pods, gpus, queue="q", node_selector=selector, requests={"cpu": cpu}
    )
    for found in cluster(*nodes, queue("q", 64), job).plan().unplaced:
        assert found.shortage is not None
        assert sum(int(cause.split()[0]) for cause in found.shortage.causes) == len(nodes)


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("memory", 2 * 1024.0**4, "2Ti"),
        ("memory", 0.9 * 1024.0**4, "922Gi"),
        ("cpu", 500.0, "500m"),
        ("cpu", 16_000.0, "16"),
        ("nvidia.com/gpu", 8.0, "8"),
        ("memory", 2.0**50 * 4096, "4096Pi"),
        ("example.com/x", 1e-7, "0"),
    ],
)
def test_amounts_are_written_as_in_manifests(resource, amount, text):
    assert amount_text(resource, amount) == text


def test_pods_of_a_device_plugin_lack_gpus_where_a_class_could_serve_them_too():
    served = device_class("gpus")
    served = replace(served, spec=replace(served.spec, extended_resource_name="nvidia.com/gpu"))
    ours = cluster(node("a", 8), queue("q", 8), served, job_with_pods("train", 9, queue="q"))
    [found] = ours.plan().unplaced
    assert found.message == (
        "9 pods must start together but only 8 can be scheduled: 1 Insufficient nvidia.com/gpu "
        "(1 requested). Infeasible: with nothing else on them, the nodes hold 8 of the 9 pods."
    )
    large = cluster(node("a", 8), queue("q", 8), served, pod("huge", 9, queue="q"))
    [found] = large.plan().unplaced
    assert "Infeasible: a pod requests nvidia.com/gpu 9; the only admitted node has 8." in (
        found.message
    )
