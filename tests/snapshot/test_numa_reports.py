"""What is read of a node's report of its NUMA zones."""

import pytest

from kai_py.api.records.node import NodeResourceTopology
from kai_py.snapshot.tables.numa import MAX_ZONES, NumaPolicy, numa_node
from tests.support.records import from_json

SINGLE, RESTRICTED = NumaPolicy.SINGLE_NUMA_NODE, NumaPolicy.RESTRICTED


def report(*zones, attributes=None, old=(), kind="Node"):
    listed = [
        {
            "name": name,
            "type": kind,
            "resources": [{"name": "cpu", "allocatable": amount, "available": amount}],
        }
        for name, amount in zones
    ]
    named = [{"name": key, "value": value} for key, value in (attributes or {}).items()]
    document = {"metadata": {"name": "n"}, "zones": listed, "attributes": named}
    return from_json(NodeResourceTopology, document | {"topologyPolicies": list(old)})


POLICY, SCOPE = "topologyManagerPolicy", "topologyManagerScope"
ONE = ("node-0", "4")


@pytest.mark.parametrize(
    ("attributes", "old", "policy", "by_pod"),
    [
        ({POLICY: "single-numa-node", SCOPE: "pod"}, (), SINGLE, True),
        ({POLICY: "single-numa-node", SCOPE: "container"}, (), SINGLE, False),
        ({POLICY: "restricted"}, (), RESTRICTED, False),
        ({POLICY: "best-effort", SCOPE: "pod"}, (), None, True),
        ({POLICY: "none"}, ("Restricted",), None, False),
        ({}, ("SingleNUMANodePodLevel",), SINGLE, True),
        ({}, ("SingleNUMANodeContainerLevel",), SINGLE, False),
        ({}, ("SingleNUMANode",), SINGLE, False),
        ({}, ("RestrictedPodLevel",), RESTRICTED, True),
        ({}, ("Restricted", "SingleNUMANodePodLevel"), RESTRICTED, False),
        ({}, ("BestEffort",), None, False),
        ({}, (), None, False),
    ],
)
def test_attributes_say_what_kubelets_refuse_and_the_old_words_if_there_are_none(
    attributes, old, policy, by_pod
):
    node = numa_node(report(ONE, attributes=attributes, old=old))
    assert (node.policy, node.pod_scope) == (policy, by_pod)


def test_zones_are_in_the_order_of_their_numbers_and_of_type_node():
    node = numa_node(report(("node-10", "1"), ("node-2", "2")))
    assert node.zones == ("node-2", "node-10")
    assert node.available == ((2000.0,), (1000.0,))
    assert numa_node(report(ONE, kind="Cache")) is None


@pytest.mark.parametrize(
    ("zones", "is_read"), [(0, False), (1, True), (MAX_ZONES, True), (MAX_ZONES + 1, False)]
)
def test_nodes_of_too_many_zones_are_left_to_their_kubelet(zones, is_read):
    found = numa_node(report(*((f"node-{n}", "1") for n in range(zones))))
    assert (found is not None) is is_read


@pytest.mark.parametrize(("amount", "is_told"), [("4", False), ("lots", True)])
def test_amounts_that_cannot_be_read_are_told_and_count_as_nothing(amount, is_told):
    node = numa_node(report(ONE, ("node-1", amount)))
    assert bool(node.problem) is is_told
    assert node.available == ((4000.0,), (0.0 if is_told else 4000.0,))
