"""Requests that the cluster can never serve are no demand: fair shares are as without them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kai_py.grouping.topology_annotations import REQUIRED_LEVEL_KEY
from kai_py.plan.state.empty_nodes import replicas_on_empty
from kai_py.policy.fairness_rules import KAI
from kai_py.snapshot.accounting import GPU
from tests.support.examples import examples
from tests.support.scenario import (
    claim,
    claiming,
    claiming_job,
    cluster,
    device_class,
    gpu_slice,
    job_with_pods,
    node,
    placed,
    pod,
    queue,
    shared,
)

QUEUES = [queue("big"), queue("small")]
"""Neither deserves anything: all is divided by demand."""
RACKS = [node(f"n{i}", labels={"rack": f"r{i // 2}"}) for i in range(4)]
DEVICES = [device_class(), *(gpu_slice(f"n{i}") for i in range(4))]
MODEST = job_with_pods("modest", 32, queue="small")


def in_one_rack(size):
    owner, *pods = job_with_pods("train", size, queue="big")
    noted = {**owner.metadata.annotations, REQUIRED_LEVEL_KEY: "rack"}
    return [replace(owner, metadata=replace(owner.metadata, annotations=noted)), *pods]


INFEASIBLE = {
    "pod larger than any node": [pod("huge", 9, queue="big")],
    "memory": [pod("huge", 8, queue="big", requests={"memory": "2Ti"})],
    "no node of the label": [pod("lost", 8, queue="big", node_selector={"rack": "r9"})],
    "memory of GPUs whose memory no node states": [
        shared(pod("lost", 0, queue="big"), gpu_memory="12000")
    ],
    "parts of more GPUs than a node has": [
        shared(pod("wide", 0, queue="big"), "0.5", gpu_fraction_num_devices="9")
    ],
    "gang larger than the cluster": job_with_pods("train", 33, queue="big"),
    "gang larger than a domain": in_one_rack(17),
    "nodes of the label too few": job_with_pods(
        "train", 17, queue="big", node_selector={"rack": "r0"}
    ),
}
FEASIBLE = {
    "fills the cluster": job_with_pods("train", 32, queue="big"),
    "fills a domain": in_one_rack(16),
    "largest pod": [pod("large", 8, queue="big")],
    "parts of GPUs": [shared(pod(f"half-{i}", 0, queue="big"), "0.5") for i in range(4)],
    "parts of all GPUs of a node": [
        shared(pod("wide", 0, queue="big"), "0.5", gpu_fraction_num_devices="8")
    ],
}


def shares(*objects, **options):
    plan = cluster(*QUEUES, *RACKS, *objects, **options).plan()
    return {share.queue: share for share in plan.queues}


@pytest.mark.parametrize("name", INFEASIBLE)
def test_what_can_never_run_is_no_demand(name):
    found = shares(*INFEASIBLE[name], *MODEST)
    assert found["big"].fair_share[GPU] == 0
    assert found["small"].fair_share[GPU] == 32
    assert found["big"].infeasible[GPU] == found["big"].requested[GPU] > 0
    assert found["small"].infeasible == {}


@pytest.mark.parametrize("name", INFEASIBLE)
def test_kai_counts_it(name):
    found = shares(*INFEASIBLE[name], *MODEST, rules=KAI)
    assert found["big"].fair_share[GPU] > 0
    assert found["big"].infeasible == {}


@pytest.mark.parametrize("name", FEASIBLE)
def test_what_empty_nodes_hold_is_demand(name):
    found = shares(*FEASIBLE[name], *MODEST)
    assert found["big"].infeasible == {}
    assert found["big"].fair_share[GPU] == min(16, found["big"].requested[GPU])


@pytest.mark.parametrize(("count", "pods", "infeasible"), [(9, 1, 9), (8, 4, 0), (8, 5, 40)])
def test_devices_of_claims(count, pods, infeasible):
    nodes = [node(f"n{i}", gpus=0) for i in range(4)]
    waits = claiming_job("train", pods, count, queue="big")
    plan = cluster(*QUEUES, *nodes, *DEVICES, *waits).plan()
    share = next(each for each in plan.queues if each.queue == "big")
    assert share.infeasible.get(GPU, 0.0) == infeasible


@pytest.mark.parametrize(
    ("gpus", "pods", "infeasible"), [(16, 1, 16), (9, 1, 9), (8, 4, 0), (8, 5, 40), (1, 33, 33)]
)
def test_devices_of_a_class_that_serves_a_resource(gpus, pods, infeasible):
    """Three nodes publish GPUs, one reports them: each holds eight, whichever way."""
    nodes = [node("n0"), *(node(f"n{i}", gpus=0) for i in range(1, 4))]
    served = device_class(resource="nvidia.com/gpu")
    slices = [gpu_slice(f"n{i}") for i in range(1, 4)]
    waits = job_with_pods("train", pods, gpus, queue="big")
    plan = cluster(*QUEUES, *nodes, served, *slices, *waits).plan()
    share = next(each for each in plan.queues if each.queue == "big")
    assert share.infeasible.get(GPU, 0.0) == infeasible


def test_a_selector_that_no_device_matches():
    nodes = [node(f"n{i}", gpus=0) for i in range(4)]
    selector = 'device.attributes["gpu.nvidia.com"].productName == "H200"'
    owner, wanted, waiting = claiming_job("train", 1, queue="big")
    request = wanted.spec.devices.requests[0]
    cel = replace(device_class().spec.selectors[0].cel, expression=selector)
    exactly = replace(
        request.exactly, selectors=(replace(device_class().spec.selectors[0], cel=cel),)
    )
    devices = replace(wanted.spec.devices, requests=(replace(request, exactly=exactly),))
    wanted = replace(wanted, spec=replace(wanted.spec, devices=devices))
    plan = cluster(*QUEUES, *nodes, *DEVICES, owner, wanted, waiting).plan()
    share = next(each for each in plan.queues if each.queue == "big")
    assert share.infeasible[GPU] == 1


@pytest.mark.parametrize(("root", "count", "infeasible"), [(0, 4, 0), (1, 4, 0), (1, 5, 5)])
def test_a_selector_that_tells_equal_devices_apart(root, count, infeasible):
    """Four of the GPUs of each node are at each of two PCIe roots."""
    nodes = [node(f"n{i}", gpus=0) for i in range(4)]
    at_root = f'device.attributes["resource.kubernetes.io"].pcieRoot == "pci0000:{root}"'
    wanted = claim("wanted", count, selector=at_root, owner="p")
    waiting = claiming(pod("p", 0, queue="big"), "wanted")
    plan = cluster(*QUEUES, *nodes, *DEVICES, wanted, waiting).plan()
    share = next(each for each in plan.queues if each.queue == "big")
    assert share.infeasible.get(GPU, 0.0) == infeasible
    assert len(placed(plan)) == (not infeasible)


def test_pods_beyond_min_member_count_as_far_as_a_node_could_hold_them():
    marks = {"scheduling.kai.io/pod-group": "g", "scheduling.kai.io/min-available": "1"}
    mixed = [pod(f"p{i}", gpus, queue="big", annotations=marks) for i, gpus in enumerate([1, 9])]
    found = shares(*mixed)["big"]
    assert (found.requested[GPU], found.infeasible[GPU]) == (10, 9)


def test_it_counts_once_a_node_could_hold_it_and_not_when_that_has_gone():
    ours = cluster(*QUEUES, *RACKS, *INFEASIBLE["pod larger than any node"])

    def infeasible():
        return next(each for each in ours.plan().queues if each.queue == "big").infeasible

    assert infeasible()[GPU] == 9
    large = node("large", gpus=16)
    ours.add(large)
    assert infeasible() == {}
    ours.remove(large)
    assert infeasible()[GPU] == 9


def test_a_cordoned_or_unready_node_still_could():
    found = shares(pod("p", 16, queue="big"), node("large", gpus=16, unschedulable=True))
    assert found["big"].infeasible == {}


SIZES = st.lists(st.tuples(st.integers(1, 10), st.integers(1, 12)), min_size=1, max_size=4)


@settings(max_examples=examples(40), deadline=None)
@given(SIZES, SIZES)
def test_shares_are_as_without_what_can_never_run_and_do_not_depend_on_what_runs(ours, theirs):
    def waiting(sizes, name):
        return [
            each
            for index, (pods, gpus) in enumerate(sizes)
            for each in job_with_pods(f"{name}-{index}", pods, gpus, queue=name)
        ]

    def is_feasible(pods, gpus):
        return gpus <= 8 and pods <= 4 * (8 // gpus)

    every = cluster(*QUEUES, *RACKS, *waiting(ours, "big"), *waiting(theirs, "small"))
    first, second = every.plan(), every.plan()
    only = [[size for size in sizes if is_feasible(*size)] for sizes in (ours, theirs)]
    without = cluster(*QUEUES, *RACKS, *waiting(only[0], "big"), *waiting(only[1], "small"))
    expected = {each.queue: each.fair_share for each in without.plan().queues}
    assert {each.queue: each.fair_share for each in first.queues} == expected
    assert {each.queue: each.fair_share for each in second.queues} == expected


def test_a_gang_that_cannot_be_judged_keeps_no_other_from_starting(monkeypatch):
    def judged(gang, _nodes):
        raise ZeroDivisionError(gang.key)

    monkeypatch.setattr("kai_py.plan.cycle.infeasible_demand._infeasible_charge", judged)
    assert placed(cluster(*QUEUES, *RACKS, *FEASIBLE["largest pod"]).plan()) == {"large": "n0"}


def test_a_shape_is_counted_once_on_the_first_nodes_and_once_on_all(monkeypatch):
    counted = []

    def counting(shape, nodes, *rest):
        counted.append(len(nodes))
        return replicas_on_empty(shape, nodes, *rest)

    module = "kai_py.plan.state.empty_nodes"
    monkeypatch.setattr(f"{module}.replicas_on_empty", counting)
    monkeypatch.setattr(f"{module}.FIRST_NODES", 1)
    monkeypatch.setattr(f"{module}.MANY_NODES", 2)
    small = [job_with_pods(f"small-{n}", 1, queue="small") for n in range(5)]
    large = [job_with_pods(f"large-{n}", 9, 2, queue="big") for n in range(5)]
    cluster(*QUEUES, *RACKS, *small, *large).plan()
    assert sorted(counted) == [1, 1, 4]


@pytest.mark.parametrize("first", [1, 2, 3])
@pytest.mark.parametrize(("pods", "infeasible"), [(8, 0), (16, 0), (17, 17)])
def test_domains_are_found_alike_however_many_nodes_are_looked_at_first(
    monkeypatch, first, pods, infeasible
):
    module = "kai_py.plan.state.empty_nodes"
    monkeypatch.setattr(f"{module}.FIRST_NODES", first)
    monkeypatch.setattr(f"{module}.MANY_NODES", 2)
    assert shares(*in_one_rack(pods))["big"].infeasible.get(GPU, 0.0) == infeasible


def test_parts_count_where_some_node_has_gpus_with_that_much_memory():
    large = node("large", 1, labels={"nvidia.com/gpu.memory": "40000"})
    pods = [shared(pod(f"p{i}", 0, queue="big"), gpu_memory="16000") for i in range(2)]
    assert shares(large, *pods)["big"].infeasible == {}
    assert shares(large, shared(pod("p", 0, queue="big"), gpu_memory="41000"))["big"].infeasible
    owner = {"scheduling.kai.io/pod-group": "g", "scheduling.kai.io/min-available": "3"}
    gang = [
        shared(pod(f"p{i}", 0, queue="big", annotations=owner), gpu_memory="16000")
        for i in range(3)
    ]
    assert shares(large, *gang)["big"].infeasible[GPU] == pytest.approx(3 * 0.4)


@pytest.mark.parametrize("mode", ["firstAvailable", "All"])
def test_a_claim_that_can_be_served_in_several_ways_is_demand(mode):
    nodes = [node(f"n{i}", gpus=0) for i in range(4)]
    owner, wanted, waiting = claiming_job("train", 1, 9, queue="big")
    request = wanted.spec.devices.requests[0]
    if mode == "All":
        changed = replace(request, exactly=replace(request.exactly, allocation_mode="All"))
    else:
        changed = replace(request, exactly=None)
    devices = replace(wanted.spec.devices, requests=(changed,))
    wanted = replace(wanted, spec=replace(wanted.spec, devices=devices))
    plan = cluster(*QUEUES, *nodes, *DEVICES, owner, wanted, waiting).plan()
    share = next(each for each in plan.queues if each.queue == "big")
    assert share.infeasible == {}


def test_what_is_known_of_gangs_is_forgotten_with_them():
    ours = cluster(*QUEUES, *RACKS)
    for number in range(12):
        one = pod(f"p{number}", 9, queue="big")
        ours.add(one).plan()
        ours.remove(one)
    assert len(ours.memory.infeasible._by_gang) <= 3


def test_a_gang_of_which_some_pods_can_run_is_not_among_those_that_never_can():
    marks = {"scheduling.kai.io/pod-group": "g", "scheduling.kai.io/min-available": "1"}
    mixed = [pod(f"p{i}", gpus, queue="big", annotations=marks) for i, gpus in enumerate([1, 9])]
    ours = cluster(*QUEUES, *RACKS, *mixed, pod("huge", 9, queue="big"))
    ours.plan()
    assert ours.memory.infeasible.gangs == {"default/Pod/huge"}
