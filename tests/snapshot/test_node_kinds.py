"""Kinds of nodes, from which an administrator chooses more nodes."""

from kai_py.snapshot.node_kinds import node_kinds
from tests.simulate.clusters import simulated
from tests.support import scenario


def test_nodes_that_are_alike_are_one_kind_the_most_frequent_first():
    cluster = scenario.Cluster()
    for index in range(3):
        cluster.add(scenario.node(f"large-{index}", gpus=8))
    cluster.add(scenario.node("a-small", gpus=4))
    large, small = node_kinds(cluster.snapshot())
    assert (large.example, large.count, large.amounts["nvidia.com/gpu"]) == ("large-0", 3, "8")
    assert (small.example, small.count) == ("a-small", 1)


def test_types_and_devices_tell_kinds_apart():
    cluster = scenario.Cluster()
    for name in ("spot", "reserved"):
        labels = {"node.kubernetes.io/instance-type": name}
        cluster.add(scenario.node(name, gpus=8, labels=labels))
    assert {kind.type for kind in node_kinds(cluster.snapshot())} == {"spot", "reserved"}
    (kind,) = node_kinds(simulated(nodes=2, gpus=4).snapshot())
    assert (kind.count, kind.devices) == (2, {"NVIDIA H100 80GB HBM3": 4})


def test_a_node_that_takes_no_pods_is_no_pattern():
    cluster = simulated(nodes=1)
    cluster.embedded.api.edit(
        cluster.embedded.registry.named("nodes"), "node-0", "",
        lambda node: {**node, "spec": {**node["spec"], "unschedulable": True}},
    )  # fmt: skip
    assert node_kinds(cluster.snapshot()) == []
