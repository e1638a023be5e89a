"""Claims of volumes that keep their pods waiting, and nodes that were selected for them.

Zones in the labels of volumes decide where pods go, as in kube-scheduler's VolumeZone plugin.
"""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from kai_py.api.records.core import (
    NodeSelector,
    NodeSelectorTerm,
    OwnerReference,
    SelectorRequirement,
)
from kai_py.api.records.storage import (
    ObjectReference,
    VolumeNodeAffinity,
    VolumeResourceRequirements,
)
from kai_py.api.records.volume import EphemeralVolumeSource, Volume
from tests.plan.state.limits.volumes import bound, disks, plan, using, waiting_disk
from tests.support.scenario import cluster, node, placed, pod, queue

SELECTED = {"volume.kubernetes.io/selected-node": "n1"}


def with_meta(claim, **fields):
    return replace(claim, metadata=replace(claim.metadata, **fields))


def messages(found):
    return [each.message for each in found.unplaced]


def test_a_claim_that_is_being_deleted_keeps_its_pod_waiting():
    claim, volume = bound("a")
    claim = with_meta(claim, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    found = plan(claim, volume, using("p", "a"))
    assert messages(found) == ['pod default/p: persistentvolumeclaim "a" is being deleted.']


def test_a_claim_whose_volume_is_gone_keeps_its_pod_waiting():
    claim, _ = bound("a")
    assert messages(plan(claim, using("p", "a"))) == [
        'pod default/p: persistentvolumeclaim "a" names persistentvolume "pv-a", '
        "which does not exist."
    ]


@pytest.mark.parametrize(
    ("owner", "starts"),
    [
        ({"name": "a", "namespace": "default", "uid": "claim-a"}, True),
        ({"name": "a", "namespace": "default"}, True),
        ({"name": "a", "namespace": "default", "uid": "an-earlier-claim"}, False),
        ({"name": "a", "namespace": "other"}, False),
        ({"name": "b", "namespace": "default"}, False),
    ],
)
def test_a_claim_that_names_the_volume_of_another_keeps_its_pod_waiting(owner, starts):
    claim, volume = bound("a")
    volume = replace(volume, spec=replace(volume.spec, claim_ref=ObjectReference(**owner)))
    said = (
        'pod default/p: persistentvolumeclaim "a" names persistentvolume "pv-a", '
        "which belongs to another claim."
    )
    assert messages(plan(claim, volume, using("p", "a"))) == ([] if starts else [said])


@pytest.mark.parametrize(("size", "starts"), [("5Gi", True), ("6Gi", False)])
def test_a_claim_that_names_a_volume_that_it_cannot_have_keeps_its_pod_waiting(size, starts):
    claim, volume = bound("a")
    asked = VolumeResourceRequirements(requests={"storage": size})
    claim = replace(claim, spec=replace(claim.spec, resources=asked))
    volume = replace(volume, spec=replace(volume.spec, capacity={"storage": "5Gi"}))
    said = (
        'pod default/p: persistentvolumeclaim "a" names persistentvolume "pv-a", '
        "which does not satisfy it."
    )
    assert messages(plan(claim, volume, using("p", "a"))) == ([] if starts else [said])


@pytest.mark.parametrize("starts", [True, False])
def test_an_ephemeral_volume_is_its_pods_own(starts):
    scratch = Volume(name="scratch", ephemeral=EphemeralVolumeSource())
    asking = pod("p", 0, queue="q", volumes=(scratch,))
    uid = asking.metadata.uid if starts else "another"
    owner = OwnerReference(kind="Pod", name="p", uid=uid, controller=True)
    claim = with_meta(waiting_disk("p-scratch"), owner_references=(owner,))
    found = plan(disks(), claim, asking)
    assert placed(found) == ({"p": "n0"} if starts else {})
    if not starts:
        assert "was not created for volume" in messages(found)[0]


def test_a_pod_goes_to_the_node_for_which_its_volume_is_being_provisioned():
    claim = with_meta(waiting_disk("a"), annotations=SELECTED)
    assert placed(plan(disks(), claim, using("p", "a"), nodes=2)) == {"p": "n1"}


def test_a_bound_volume_decides_whatever_node_was_selected():
    claim, volume = bound("a")
    selected = with_meta(claim, annotations=SELECTED)
    assert placed(plan(selected, volume, using("p", "a"))) == {"p": "n0"}


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


@pytest.mark.parametrize(
    ("named", "mode", "said"),
    [
        ("disks", "Immediate", ", and its storage class disks does not bind on first use."),
        ("", "Immediate", "."),
        (
            "disk",
            "WaitForFirstConsumer",
            ', and storage class "disk" does not exist. Did you mean StorageClass disks?',
        ),
        ("other", "WaitForFirstConsumer", ', and storage class "other" does not exist.'),
    ],
)
def test_a_claim_that_no_volume_is_made_for_says_what_is_wrong_with_its_class(named, mode, said):
    claim = waiting_disk("a")
    claim = replace(claim, spec=replace(claim.spec, storage_class_name=named))
    found = plan(replace(disks(), volume_binding_mode=mode), claim, using("p", "a"))
    assert messages(found) == [f'pod default/p: persistentvolumeclaim "a" is not bound{said}']
