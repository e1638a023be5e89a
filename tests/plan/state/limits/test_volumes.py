"""Volumes that drivers attach, and claims that one pod at a time may use."""

import pytest
from msgspec.structs import replace

from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.storage import (
    CSINode,
    CSINodeDriver,
    CSINodeSpec,
    PersistentVolume,
    PersistentVolumeClaim,
    VolumeAttachment,
    VolumeAttachmentSource,
    VolumeAttachmentSpec,
    VolumeNodeResources,
)
from kai_py.snapshot.attachments import attachment
from kai_py.snapshot.volume_requirements import Attachment
from tests.plan.state.limits.volumes import DISK, bound, disks, plan, takes, using, waiting_disk
from tests.support.records import from_json
from tests.support.scenario import cluster, evicted, node, placed, pod, queue


def test_a_node_takes_as_many_volumes_as_its_driver_says():
    found = plan(
        takes("n0", 2),
        bound("abc"),
        using("old", "a", node="n0"),
        [using("p1", "b"), using("p2", "c", created=1)],
    )
    assert placed(found) == {"p1": "n0"}
    assert "1 exceed max volume count" in found.unplaced[0].message


def test_a_volume_that_is_attached_already_costs_nothing():
    found = plan(takes("n0", 1), bound("a"), using("old", "a", node="n0"), using("new", "a"))
    assert placed(found) == {"new": "n0"}
    found = plan(takes("n0", 1), bound("a"), [using("p1", "a"), using("p2", "a")])
    assert placed(found) == {"p1": "n0", "p2": "n0"}


@pytest.mark.parametrize(
    ("source", "driver"),
    [
        ({"awsElasticBlockStore": {"volumeID": "v"}}, "ebs.csi.aws.com"),
        ({"azureDisk": {"diskURI": "v"}}, "disk.csi.azure.com"),
        ({"cinder": {"volumeID": "v"}}, "cinder.csi.openstack.org"),
        ({"gcePersistentDisk": {"pdName": "v"}}, "pd.csi.storage.gke.io"),
        ({"portworxVolume": {"volumeID": "v"}}, "pxd.portworx.com"),
        ({"local": {"path": "v"}}, None),
    ],
)
def test_a_volume_of_a_former_plugin_counts_for_the_driver_that_replaced_it(source, driver):
    volume = from_json(PersistentVolume, {"spec": source})
    found = attachment(PersistentVolumeClaim(), volume, None)
    assert found == (driver and Attachment(driver, "v"))


def test_a_volume_to_be_made_by_a_former_plugin_counts_for_its_driver():
    storage = replace(disks(), provisioner="kubernetes.io/aws-ebs")
    drivers = (CSINodeDriver(name="ebs.csi.aws.com", allocatable=VolumeNodeResources(count=1)),)
    limit = CSINode(metadata=ObjectMeta(name="n0"), spec=CSINodeSpec(drivers=drivers))
    pods = [using(f"p{i}", f"data-p{i}") for i in range(2)]
    claims = [waiting_disk(f"data-p{i}") for i in range(2)]
    assert len(placed(plan(limit, storage, claims, pods))) == 1


def test_a_volume_whose_object_is_gone_counts_while_its_pod_runs():
    claim, _ = bound("a")
    claim = replace(claim, spec=replace(claim.spec, storage_class_name="disks"))
    running = using("old", "a", node="n0")
    found = plan(takes("n0", 1), disks(), claim, running, bound("b"), using("new", "b"))
    assert placed(found) == {}


def test_nodes_and_drivers_without_a_limit_take_any():
    everything = bound("abc"), using("p", "a", "b", "c")
    assert placed(plan(*everything))
    assert not placed(plan(takes("n0", 2), *everything))
    assert placed(plan(takes("n0", None), *everything))


def test_volumes_to_be_made_count_too():
    pods = [using(f"p{i}", f"data-p{i}") for i in range(3)]
    claims = [waiting_disk(f"data-p{i}") for i in range(3)]
    found = plan(takes("n0", 2), disks(), claims, pods)
    assert len(placed(found)) == 2


def test_an_evicted_pod_detaches_and_the_victim_is_one_that_has_a_volume():
    volumes = bound("ab")
    leaving = using("old", "a", node="n0", leaving=True)
    found = plan(takes("n0", 1), volumes, leaving, using("new", "b"))
    assert [each.pod.name for each in found.nominations] == ["new"]
    found = plan(
        takes("n0", 1),
        volumes,
        [pod(f"idle{i}", 0, queue="q", node="n0", created=i) for i in range(3)],
        using("holder", "a", node="n0"),
        using("urgent", "b", priority=10),
    )
    assert evicted(found) == ["holder"]


def test_a_volume_stays_attached_while_anybody_uses_it():
    found = plan(
        takes("n0", 1),
        bound("ab"),
        using("old", "a", node="n0", leaving=True),
        using("other", "a", node="n0"),
        using("new", "b"),
    )
    assert found.nominations == ()


def test_a_claim_of_one_pod_is_used_by_one_pod():
    single = bound("a", modes=("ReadWriteOncePod",))
    found = plan(single, using("old", "a", node="n0"), using("new", "a"), nodes=2)
    assert placed(found) == {}
    assert (
        "2 node has pod using PersistentVolumeClaim with the same name" in found.unplaced[0].message
    )
    found = plan(single, [using("p1", "a"), using("p2", "a", created=1)], nodes=2)
    assert list(placed(found)) == ["p1"]


def test_the_pod_that_uses_such_a_claim_is_preempted_for_it():
    found = plan(
        bound("a", modes=("ReadWriteOncePod",)),
        using("old", "a", node="n0"),
        using("urgent", "a", priority=10),
        nodes=2,
    )
    assert evicted(found) == ["old"]


def attached(name, volume, at="n0", *, driver=DISK):
    """``volume`` is attached to a node, whoever uses it."""
    source = VolumeAttachmentSource(persistent_volume_name=volume)
    spec = VolumeAttachmentSpec(attacher=driver, node_name=at, source=source)
    return VolumeAttachment(metadata=ObjectMeta(name=name), spec=spec)


def test_what_is_still_attached_counts_without_a_pod():
    world = takes("n0", 2), bound("abc"), using("new", "b", "c")
    assert placed(plan(*world)) == {"new": "n0"}
    found = plan(attached("left", "pv-a"), *world)
    assert "1 exceed max volume count" in found.unplaced[0].message
    assert placed(plan(attached("left", "pv-a", "n1"), *world, nodes=2)) == {"new": "n0"}
    assert placed(plan(attached("left", "pv-unknown"), *world)) == {"new": "n0"}
    assert placed(plan(attached("left", "pv-a", driver="other"), *world)) == {"new": "n0"}


def test_what_is_attached_and_used_counts_once():
    used = using("old", "a", node="n0"), attached("of-old", "pv-a")
    assert placed(plan(takes("n0", 2), bound("ab"), *used, using("new", "b"))) == {"new": "n0"}
    found = plan(takes("n0", 1), bound("ab"), attached("left", "pv-b"), using("new", "b"))
    assert placed(found) == {"new": "n0"}, "its own volume is there already"


def test_a_pod_comes_back_to_the_node_that_has_its_volume():
    claims = [each for each in bound(["data-p"]) if isinstance(each, PersistentVolumeClaim)]
    volumes = [each for each in bound(["data-p"]) if isinstance(each, PersistentVolume)]
    found = plan(
        takes("n0", 1), claims, volumes, attached("left", "pv-data-p"), using("p", "data-p")
    )
    assert placed(found) == {"p": "n0"}


def test_attachments_come_and_go_and_volumes_may_come_later():
    left = attached("left", "pv-a")
    claims, volume = bound("bc"), bound("a")[1]
    world = cluster(node("n0"), queue("q", 0), takes("n0", 2), claims, left, using("new", "b", "c"))
    assert placed(world.plan())
    world.add(volume)
    assert not placed(world.plan())
    world.remove(left)
    assert placed(world.plan())
