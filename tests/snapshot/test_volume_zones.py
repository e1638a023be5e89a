"""Zones in the labels of volumes decide where pods go, as in kube-scheduler's VolumeZone plugin."""

import pytest
from msgspec.structs import replace

from kai_py.api.records.core import NodeSelector, NodeSelectorTerm, SelectorRequirement
from kai_py.api.records.storage import VolumeNodeAffinity
from tests.plan.state.limits.volumes import bound, using
from tests.support.scenario import cluster, node, placed, queue

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE, OLD_REGION = (f"failure-domain.beta.kubernetes.io/{each}" for each in ("zone", "region"))


def with_labels(volume, labels):
    return replace(volume, metadata=replace(volume.metadata, labels=labels))


@pytest.mark.parametrize(
    ("of_volume", "of_node", "starts"),
    [
        ({ZONE: "a"}, {ZONE: "a"}, True),
        ({ZONE: "a"}, {ZONE: "b"}, False),
        ({ZONE: "a"}, {}, True),
        ({ZONE: "a"}, {"example.com/rack": "b"}, True),
        ({ZONE: "a"}, {REGION: "a"}, False),
        ({ZONE: "a", REGION: "r"}, {ZONE: "a", REGION: "r"}, True),
        ({ZONE: "a", REGION: "r"}, {ZONE: "a"}, False),
        ({ZONE: "a__b"}, {ZONE: "b"}, True),
        ({ZONE: "a__b"}, {ZONE: "c"}, False),
        ({OLD_ZONE: "a"}, {OLD_ZONE: "a", ZONE: "b"}, True),
        ({OLD_ZONE: "a"}, {ZONE: "a"}, True),
        ({OLD_ZONE: "a"}, {ZONE: "b"}, False),
        ({OLD_ZONE: "a", OLD_REGION: "r"}, {OLD_ZONE: "a", REGION: "r"}, True),
        ({ZONE: "a"}, {OLD_ZONE: "a"}, False),
        ({ZONE: ""}, {ZONE: "b"}, True),
        ({"example.com/zone": "a"}, {ZONE: "b"}, True),
    ],
)
def test_a_pod_goes_where_the_labels_of_its_volume_say(of_volume, of_node, starts):
    claim, volume = bound("a")
    volume = with_labels(volume, of_volume)
    made = cluster(queue("q"), node("n0", labels=of_node), claim, volume, using("p", "a"))
    assert placed(made.plan(100.0)) == ({"p": "n0"} if starts else {})


def test_the_node_affinity_of_a_volume_counts_as_well():
    claim, volume = bound("a")
    there = SelectorRequirement(key="metadata.name", operator="In", values=("n1",))
    term = NodeSelectorTerm(match_fields=(there,))
    affinity = VolumeNodeAffinity(required=NodeSelector(node_selector_terms=(term,)))
    volume = replace(volume, spec=replace(volume.spec, node_affinity=affinity))
    nodes = [node(f"n{i}", labels={ZONE: "ab"[i // 2]}) for i in range(3)]
    world = [queue("q"), *nodes, claim, using("p", "a")]
    assert placed(cluster(*world, with_labels(volume, {ZONE: "a"})).plan(100.0)) == {"p": "n1"}
    assert not placed(cluster(*world, with_labels(volume, {ZONE: "b"})).plan(100.0))
