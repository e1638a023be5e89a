"""Volumes that drivers attach, and claims that one pod at a time may use."""

from kai_py.api.records.core import ClaimVolume, ObjectMeta, Volume
from kai_py.api.records.storage import (
    AttachLimit,
    CSINode,
    CsiNodeDriver,
    CsiNodeSpec,
    CsiSource,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeClaimSpec,
    VolumeSpec,
)
from tests.scenario import cluster, evicted, node, placed, pod, queue

DISK = "disk.example.com"


def bound(names, *, modes=("ReadWriteOnce",)):
    """Claims, a letter each, and the volumes that they are bound to."""
    claims = [
        PersistentVolumeClaim(
            metadata=ObjectMeta(name=name, namespace="default", uid=f"claim-{name}"),
            spec=VolumeClaimSpec(volume_name=f"pv-{name}", access_modes=modes),
        )
        for name in names
    ]
    volumes = [
        PersistentVolume(
            metadata=ObjectMeta(name=f"pv-{name}", uid=f"pv-{name}"),
            spec=VolumeSpec(csi=CsiSource(driver=DISK, volume_handle=f"vol-{name}")),
        )
        for name in names
    ]
    return claims + volumes


def waiting_disk(name):
    """A claim whose volume is made once its pod has a node."""
    return PersistentVolumeClaim(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"claim-{name}"),
        spec=VolumeClaimSpec(storage_class_name="disks"),
    )


def disks():
    return StorageClass(
        metadata=ObjectMeta(name="disks"),
        provisioner=DISK,
        volume_binding_mode="WaitForFirstConsumer",
    )


def takes(name, most):
    drivers = (CsiNodeDriver(name=DISK, allocatable=AttachLimit(count=most)),)
    return CSINode(
        metadata=ObjectMeta(name=name, uid=f"csi-{name}"), spec=CsiNodeSpec(drivers=drivers)
    )


def using(name, *claims, **options):
    volumes = tuple(
        Volume(name=each, persistent_volume_claim=ClaimVolume(claim_name=each)) for each in claims
    )
    return pod(name, 0, queue="q", volumes=volumes, **options)


def plan(*objects, nodes=1):
    return cluster([node(f"n{i}") for i in range(nodes)], queue("q", 0), *objects).plan()


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


def test_who_leaves_detaches_and_who_must_leave_is_one_that_has_a_volume():
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
        "2 can't take the pod while another uses its ReadWriteOncePod" in found.unplaced[0].message
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
