"""Impossible is told apart from not now, and every node is counted once."""

import re

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from msgspec.structs import replace

from kai_py.api.records.core import (
    Affinity,
    ContainerPort,
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    PodAffinity,
    PodAffinityTerm,
    SelectorRequirement,
    Toleration,
    TopologySpreadConstraint,
)
from kai_py.api.records.node import Taint
from kai_py.api.records.storage import (
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
    VolumeNodeAffinity,
)
from kai_py.api.records.volume import ClaimVolumeSource, Volume
from kai_py.grouping.topology_annotations import REQUIRED_LEVEL_KEY
from kai_py.plan.placement.reasons import amount_text
from kai_py.plan.plan import Stage
from tests.support.scenario import (
    claiming_job,
    cluster,
    device_class,
    gpu_slice,
    job,
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
        "Infeasible: a pod requests nvidia.com/gpu 16; 1 of 2 nodes has 8, the other less. "
        "0/2 nodes are available: 2 Insufficient nvidia.com/gpu (16 requested, most free 8 on b)."
    )


@pytest.mark.parametrize(
    ("requests", "free", "text"),
    [
        ({"cpu": "64001m"}, "", "a pod requests cpu 64001m; the only node has 64000m."),
        ({"cpu": "60001m"}, "4", "1 Insufficient cpu (60001m requested, most free 60000m on n)."),
        ({"cpu": "65"}, "", "a pod requests cpu 65; the only node has 64."),
    ],
)
def test_amounts_that_differ_by_little_are_not_rounded_to_the_same(requests, free, text):
    busy = [pod("busy", 0, queue="q", node="n", requests={"cpu": free}, priority=1)] if free else []
    big = pod("big", 0, queue="q", requests=requests)
    found = pending(node("n", 8), queue("q", 64), *busy, big)
    assert text in found.message


def mixed(*gpus, **spec):
    """A Job with a pod for each number of GPUs."""
    owner = job("mix", len(gpus), "q")
    return [owner, *(pod(f"mix-{i}", n, owner=owner, **spec) for i, n in enumerate(gpus))]


TOGETHER = "with nothing else on them, the nodes have 16."


@pytest.mark.parametrize(
    ("gpus", "text"),
    [
        ((8, 4, 4, 1), f"4 pods request nvidia.com/gpu 17 together; {TOGETHER}"),
        (
            (5, 5, 6),
            "with nothing else on them, the nodes hold 2 of the 3 pods that request as much as "
            "mix-0, or more.",
        ),
    ],
)
def test_pods_that_differ_may_be_too_many_together(gpus, text):
    found = pending(node("a", 8), node("b", 8), queue("q", 64), mixed(*gpus))
    assert found.message.startswith(f"Infeasible: {text}")


@pytest.mark.parametrize("gpus", [(8, 4, 4), (7, 1, 5, 3), (8, 7)])
def test_pods_that_differ_and_fit_on_empty_nodes_only_wait(gpus):
    busy = pod("busy", 8, queue="q", node="a", priority=1000)
    found = pending(node("a", 8), node("b", 8), queue("q", 64), busy, mixed(*gpus))
    assert not found.is_infeasible, found.message


def test_only_nodes_that_admit_a_pod_count_for_pods_that_differ():
    nodes = [node("a", 8, labels={"zone": "x"}), node("b", 8, labels={"zone": "y"})]
    gang = mixed(8, 4, node_selector={"zone": "x"})
    found = pending(*nodes, queue("q", 64), gang)
    assert "2 pods request nvidia.com/gpu 12 together; " in found.message
    assert found.is_infeasible


def test_a_gang_that_its_queue_stops_may_be_too_large_for_every_node_as_well():
    nodes = (node("a", 8), node("b", 8))
    over = pending(*nodes, queue("q", 4, maxGPUs=12), pod("big", 16, queue="q"))
    assert over.stage is Stage.QUEUE_MAX
    assert over.message.startswith(
        "Infeasible: it requests 16 GPUs at once; max of queue q is 12; "
        "a pod requests nvidia.com/gpu 16; each of 2 nodes has 8. q quota has reached"
    )
    waits = pending(
        *nodes,
        queue("q", 4, maxGPUs=16),
        pod("runs", 4, queue="q", node="a"),
        pod("big", 16, queue="q"),
    )
    assert waits.stage is Stage.QUEUE_MAX
    assert waits.is_infeasible
    assert waits.message.startswith(
        "Infeasible: a pod requests nvidia.com/gpu 16; each of 2 nodes has 8. q quota"
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
    assert found.message.startswith(
        "Infeasible: with nothing else on them, the nodes hold 8 of the 12 pods. "
    )
    taken = pod("taken", 8, queue="q", node="a")
    found = pending(node("a", 8), queue("q", 64), taken, job_with_pods("train", 8, queue="q"))
    assert not found.is_infeasible


def test_a_gang_larger_than_the_max_of_its_queue():
    found = pending(node("a", 8), queue("q", 2, 4), job_with_pods("train", 8, queue="q"))
    assert found.stage is Stage.QUEUE_MAX
    assert found.message.startswith("Infeasible: it requests 8 GPUs at once; max of queue q is 4. ")


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
    assert found.message == (
        "Infeasible: claim gpu, request gpu: insufficient allocatable devices: requested 16 of "
        "class gpu.nvidia.com, at most 8 on a node; 8 devices. 0/1 nodes are available: 1 cannot "
        "allocate all claims."
    )


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
    assert found.message.startswith(
        "Infeasible: 12 pods must share one rack; with nothing else on it, the largest, a, "
        "holds 8. "
    )


SPOT = Taint(key="spot", value="true", effect="NoSchedule")
OTHER_RACK = {"node_selector": {"rack": "b"}}


@pytest.mark.parametrize(
    ("nodes", "options", "problem"),
    [
        ([{}], OTHER_RACK, "no node matches the node selector or affinity of a pod"),
        ([{"taints": (SPOT,)}], {}, "every node has a taint that a pod does not tolerate"),
        (
            [{"taints": (SPOT,), "labels": {"rack": "b"}}, {}],
            OTHER_RACK,
            "every node that matches its node selector has a taint that a pod does not tolerate",
        ),
        ([{"unschedulable": True, "labels": {"rack": "b"}}, {}], OTHER_RACK, ""),
        ([{"taints": (Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule"),)}], {}, ""),
    ],
)
def test_a_pod_that_no_node_admits(nodes, options, problem):
    named = [node(f"n{i}", 8, **each) for i, each in enumerate(nodes)]
    found = pending(*named, queue("q", 8), pod("lost", 1, queue="q", **options))
    assert found.stage is Stage.NODE_FILTERS
    assert found.is_infeasible == bool(problem)
    begin = f"Infeasible: {problem}. " if problem else ""
    assert found.message.startswith(f"{begin}0/{len(nodes)} nodes are available: ")


def test_without_nodes_nothing_is_infeasible_or_misspelt():
    chosen = pod("p", 1, queue="q", node_selector={"gpu": "h100"})
    found = pending(queue("q", 8), chosen)
    assert found.message == "0/0 nodes are available: the node pool of this scheduler has no nodes."
    assert not found.is_infeasible


def test_a_volume_that_no_node_reaches():
    lost = pod("lost", 1, queue="q", **DISKS)
    found = pending(node("a", 8), queue("q", 8), *disk_on("elsewhere"), lost)
    assert found.message.startswith(
        "Infeasible: no node that a pod may use reaches its volumes "
        "(kubernetes.io/hostname=elsewhere). 0/1 nodes"
    )


def test_what_others_may_keep_is_no_reason_where_a_gang_is_infeasible():
    labels = {"rack": "a"}
    hardware = (
        node("small", 0, labels=labels),
        gpu_slice("small", 4),
        node("large", 0),
        gpu_slice("large", 8),
        device_class(),
    )
    running = claiming_job("theirs", 1, 4, queue="other", node="small")
    large = claiming_job("train", 1, 8, queue="q", node_selector=labels)
    found = pending(*hardware, queue("q", 6), queue("other", 6), running, large)
    assert found.stage is Stage.DEVICES
    assert found.protections == ()


NAMED_AMOUNTS = re.compile(r"Insufficient \S+ \((?!\S+ requested)")
HOST, RACK = "kubernetes.io/hostname", "rack"
OWN = LabelSelector(match_labels={"app": "train"})
PORTS = (ContainerPort(host_port=9000),)


def affinity(kind, key):
    return Affinity(**{kind: PodAffinity(required=(PodAffinityTerm(OWN, topology_key=key),))})


DISKS = {
    "volumes": (Volume(name="d", persistent_volume_claim=ClaimVolumeSource(claim_name="data")),)
}
RULES = st.sampled_from(
    [
        {},
        {"node_selector": {RACK: "a"}},
        {"tolerations": (Toleration(key="spot", operator="Exists"),)},
        {"affinity": affinity("pod_anti_affinity", HOST)},
        {"affinity": affinity("pod_anti_affinity", RACK)},
        {"affinity": affinity("pod_affinity", RACK)},
        {
            "topology_spread_constraints": (
                TopologySpreadConstraint(topology_key=RACK, label_selector=OWN),
            )
        },
        DISKS,
    ]
)


@st.composite
def worlds(draw):
    """Nodes with GPUs of either kind, some unusable or in use, and a Job with some rule."""
    count = draw(st.integers(1, 5))
    objects: list = [queue("q", 64), device_class(), *disk_on(f"n{draw(st.integers(0, 5))}")]
    for i in range(count):
        plugin, published = draw(st.sampled_from([(0, 0), (4, 0), (8, 0), (0, 4), (0, 8)]))
        labels = {RACK: draw(st.sampled_from("ab"))} if draw(st.booleans()) else {}
        state = draw(st.sampled_from([{}, {}, {"unschedulable": True}, {"taints": (SPOT,)}]))
        objects.append(node(f"n{i}", plugin, labels=labels, **state))
        objects += [gpu_slice(f"n{i}", published)] if published else []
        if draw(st.booleans()):
            used = draw(st.integers(0, plugin))
            objects.append(serving(pod(f"old-{i}", used, queue="q", node=f"n{i}")))
    options = draw(RULES) | {"labels": {"app": "train"}}
    options |= {"requests": {"cpu": draw(st.sampled_from(["1", "300"]))}}
    pods, wanted = draw(st.integers(1, 4)), draw(st.integers(0, 9))
    make = claiming_job if wanted and draw(st.booleans()) else job_with_pods
    job, *rest = make("train", pods, wanted, queue="q", **options)
    if draw(st.integers(0, 9)) == 0:
        job = replace(
            job,
            metadata=replace(
                job.metadata,
                annotations={**job.metadata.annotations, REQUIRED_LEVEL_KEY: RACK},
            ),
        )
    uses_port = draw(st.booleans())
    return count, [*objects, job, *(serving(e) if uses_port and is_pod(e) else e for e in rest)]


def is_pod(each):
    return type(each).__name__ == "Pod"


def serving(each):
    """The pod with a port of its host."""
    [container] = each.spec.containers
    return replace(each, spec=replace(each.spec, containers=(replace(container, ports=PORTS),)))


def disk_on(host):
    """A claim with a volume that only one node reaches, which may not exist."""
    field = SelectorRequirement(key=HOST, operator="In", values=(host,))
    reached = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(field,)),))
    modes = ("ReadWriteMany",)
    affinity = VolumeNodeAffinity(required=reached)
    volume = PersistentVolumeSpec(node_affinity=affinity, access_modes=modes)
    claim = PersistentVolumeClaimSpec(volume_name="disk", access_modes=modes)
    meta = ObjectMeta(name="data", namespace="default", uid="data")
    return [
        PersistentVolume(metadata=ObjectMeta(name="disk", uid="disk"), spec=volume),
        PersistentVolumeClaim(metadata=meta, spec=claim),
    ]


@given(worlds())
def test_every_node_is_in_exactly_one_group_and_amounts_are_said(given_world):
    count, objects = given_world
    for found in cluster(*objects).plan().unplaced:
        event(found.stage.value)
        if found.shortage is None:  # of domains, not of nodes
            assert found.stage in (Stage.TOPOLOGY, Stage.NOMINATED)
            continue
        counts = [int(cause.split()[0]) for cause in found.shortage.causes]
        assert min(counts) > 0
        assert sum(counts) == count, found.message
        assert NAMED_AMOUNTS.search(found.message) is None, found.message
        assert "not available to this gang" not in found.message, objects


def test_claims_on_nodes_of_a_device_plugin_lack_what_it_reports():
    job = claiming_job("train", 1, 9, queue="q")
    found = pending(node("a", 8), node("b", 4), device_class(), queue("q", 64), job)
    assert found.message == (
        "Infeasible: a pod requests nvidia.com/gpu 9; 1 of 2 nodes has 8, the other less. 0/2 "
        "nodes are available: 2 Insufficient nvidia.com/gpu (9 requested, most free 8 on a)."
    )


def test_nodes_of_a_device_plugin_have_no_devices_for_claims():
    nodes = [node("dra", 0), gpu_slice("dra", 2), node("plugin", 8), device_class()]
    found = pending(*nodes, queue("q", 64), *claiming_job("train", 2, 2, queue="q"))
    assert "2 cannot allocate all claims" in found.message
    assert "Insufficient nvidia.com/gpu" not in found.message

    jobs = [*claiming_job("first", 1, 2, queue="q"), *claiming_job("second", 1, 2, queue="q")]
    found = pending(*nodes, queue("q", 64), *jobs)
    assert "2 cannot allocate all claims" in found.message
    assert "Insufficient nvidia.com/gpu" not in found.message


def test_pods_of_a_device_plugin_take_what_it_reports_from_claims():
    nodes = [node("both", 4), gpu_slice("both", 4), device_class()]
    busy = pod("busy", 3, queue="q", node="both")
    found = pending(*nodes, queue("q", 64), busy, *claiming_job("train", 2, 1, queue="q"))
    assert "only 1 can be scheduled: 1 Insufficient nvidia.com/gpu (1 requested)" in found.message


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
    served = device_class("gpus", resource="nvidia.com/gpu")
    ours = cluster(node("a", 8), queue("q", 8), served, job_with_pods("train", 9, queue="q"))
    [found] = ours.plan().unplaced
    assert found.message == (
        "Infeasible: with nothing else on them, the nodes hold 8 of the 9 pods. 9 pods must start "
        "together but only 8 can be scheduled: 1 Insufficient nvidia.com/gpu (1 requested)."
    )
    large = cluster(node("a", 8), queue("q", 8), served, pod("huge", 9, queue="q"))
    [found] = large.plan().unplaced
    assert found.message.startswith(
        "Infeasible: a pod requests nvidia.com/gpu 9; the only node has 8. 0/1 nodes"
    )
