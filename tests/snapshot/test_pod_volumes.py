"""Claims of volumes that keep their pods waiting, and nodes that were selected for them."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from kai_py.api.records.core import OwnerReference
from kai_py.api.records.storage import ObjectReference
from kai_py.api.records.volume import EphemeralVolumeSource, Volume
from tests.plan.state.limits.volumes import bound, disks, plan, using, waiting_disk
from tests.support.scenario import placed, pod

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
