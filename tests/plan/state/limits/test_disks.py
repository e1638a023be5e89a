"""Disks that pods mount without a claim; the cases of kube-scheduler's VolumeRestrictions."""

import msgspec
import pytest
from msgspec.structs import replace

from kai_py.api.records.volume import Volume
from tests.support.scenario import cluster, evicted, node, placed, pod, queue

GCE = {"gcePersistentDisk": {"pdName": "data"}}
EBS = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
ISCSI = {"iscsi": {"iqn": "iqn.2016-12.server:storage", "targetPortal": "a", "lun": 0}}
RBD = {"rbd": {"monitors": ["a", "b"], "pool": "p", "image": "i"}}


def mounting(name, *volumes, **options):
    made = pod(name, 0, queue="q", **options)
    read = tuple(
        msgspec.convert({"name": f"v{i}", **each}, Volume) for i, each in enumerate(volumes)
    )
    return replace(made, spec=replace(made.spec, volumes=read))


def changed(volume, **fields):
    ((source, given),) = volume.items()
    return {source: given | fields}


def plan(*pods, nodes=1):
    return cluster([node(f"n{i}") for i in range(nodes)], queue("q", 8), *pods).plan()


@pytest.mark.parametrize(
    ("volume", "readable_by_many"), [(GCE, True), (EBS, False), (ISCSI, True), (RBD, True)]
)
def test_pods_of_a_node_share_a_disk_only_to_read_it(volume, readable_by_many):
    found = plan(mounting("old", volume, node="n0"), mounting("new", volume))
    assert placed(found) == {}
    assert "1 had no available disk" in found.unplaced[0].message
    only_read = changed(volume, readOnly=True)
    for old, new in [(volume, only_read), (only_read, volume)]:
        assert placed(plan(mounting("old", old, node="n0"), mounting("new", new))) == {}
    found = plan(mounting("old", only_read, node="n0"), mounting("new", only_read))
    assert placed(found) == ({"new": "n0"} if readable_by_many else {})


@pytest.mark.parametrize(
    "other",
    [
        changed(GCE, pdName="other"),
        changed(EBS, volumeID="vol-2"),
        changed(ISCSI, iqn="iqn.2017-12.server:storage"),
        changed(RBD, monitors=["c"]),
        changed(RBD, pool="q"),
        changed(RBD, image="j"),
        {"emptyDir": {}},
    ],
)
def test_other_disks_do_not_conflict(other):
    old = mounting("old", GCE, EBS, ISCSI, RBD, node="n0")
    assert placed(plan(old, mounting("new", other))) == {"new": "n0"}


def test_a_common_monitor_is_the_same_cluster():
    old, new = changed(RBD, monitors=["a", "b"]), changed(RBD, monitors=["b", "c"])
    assert placed(plan(mounting("old", old, node="n0"), mounting("new", new))) == {}
    default = {"rbd": {"monitors": ["a"], "image": "i"}}
    old = changed(RBD, pool="rbd")
    assert placed(plan(mounting("old", old, node="n0"), mounting("new", default))) == {}


def test_a_pod_may_mount_a_disk_twice():
    assert placed(plan(mounting("new", GCE, GCE))) == {"new": "n0"}


def test_pods_of_one_cycle_do_not_conflict():
    found = plan([mounting(f"p{i}", GCE) for i in range(3)], nodes=2)
    assert sorted(placed(found).values()) == ["n0", "n1"]
    only_read = changed(GCE, readOnly=True)
    assert len(placed(plan([mounting(f"p{i}", only_read) for i in range(3)], nodes=1))) == 3


def test_a_disk_is_free_once_the_pods_that_mount_it_have_left():
    leaving = mounting("old", GCE, node="n0", leaving=True)
    found = plan(leaving, mounting("new", GCE))
    assert placed(found) == {}
    assert [each.pod.name for each in found.nominations] == ["new"]
    found = plan(leaving, mounting("other", GCE, node="n0"), mounting("new", GCE))
    assert found.nominations == ()


def test_the_pod_that_mounts_the_disk_is_preempted_and_no_other():
    found = plan(
        [pod(f"bystander{i}", 0, queue="q", node="n0", created=i) for i in range(4)],
        mounting("old", GCE, node="n0"),
        mounting("urgent", GCE, priority=10),
    )
    assert evicted(found) == ["old"]
    assert [each.pod.name for each in found.nominations] == ["urgent"]
