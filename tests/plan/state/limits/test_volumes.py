"""Volumes that drivers attach, and claims that one pod at a time may use."""

from msgspec.structs import replace

from kai_py.api.records.core import (
    ClaimVolumeSource,
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    SelectorRequirement,
    Volume,
)
from kai_py.api.records.storage import (
    NO_PROVISIONER,
    CSIDriver,
    CSIDriverSpec,
    CSINode,
    CSINodeDriver,
    CSINodeSpec,
    CSIPersistentVolumeSource,
    CSIStorageCapacity,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
    StorageClass,
    VolumeAttachment,
    VolumeAttachmentSource,
    VolumeAttachmentSpec,
    VolumeNodeAffinity,
    VolumeNodeResources,
    VolumeResourceRequirements,
)
from kai_py.api.references import PodRef
from tests.support.scenario import cluster, evicted, node, placed, pod, queue

DISK = "disk.example.com"


def bound(names, *, modes=("ReadWriteOnce",)):
    """Claims, a letter each, and the volumes that they are bound to."""
    claims = [
        PersistentVolumeClaim(
            metadata=ObjectMeta(name=name, namespace="default", uid=f"claim-{name}"),
            spec=PersistentVolumeClaimSpec(volume_name=f"pv-{name}", access_modes=modes),
        )
        for name in names
    ]
    volumes = [
        PersistentVolume(
            metadata=ObjectMeta(name=f"pv-{name}", uid=f"pv-{name}"),
            spec=PersistentVolumeSpec(
                csi=CSIPersistentVolumeSource(driver=DISK, volume_handle=f"vol-{name}")
            ),
        )
        for name in names
    ]
    return claims + volumes


def waiting_disk(name):
    """A claim whose volume is made once its pod has a node."""
    return PersistentVolumeClaim(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"claim-{name}"),
        spec=PersistentVolumeClaimSpec(storage_class_name="disks"),
    )


def disks():
    return StorageClass(
        metadata=ObjectMeta(name="disks"),
        provisioner=DISK,
        volume_binding_mode="WaitForFirstConsumer",
    )


def takes(name, most):
    drivers = (CSINodeDriver(name=DISK, allocatable=VolumeNodeResources(count=most)),)
    return CSINode(
        metadata=ObjectMeta(name=name, uid=f"csi-{name}"), spec=CSINodeSpec(drivers=drivers)
    )


def using(name, *claims, **options):
    volumes = tuple(
        Volume(name=each, persistent_volume_claim=ClaimVolumeSource(claim_name=each))
        for each in claims
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


def local(name, *hosts, size="10Gi", storage_class="local", claimed=False):
    """A volume that somebody made on one node, or that some can reach."""
    field = SelectorRequirement(key="kubernetes.io/hostname", operator="In", values=hosts)
    term = NodeSelectorTerm(match_expressions=(field,))
    return PersistentVolume(
        metadata=ObjectMeta(name=name, uid=name),
        spec=PersistentVolumeSpec(
            storage_class_name=storage_class,
            capacity={"storage": size},
            access_modes=("ReadWriteOnce",),
            claim_ref=ObjectReference(namespace="default", name="other") if claimed else None,
            node_affinity=VolumeNodeAffinity(required=NodeSelector(node_selector_terms=(term,))),
        ),
    )


def local_class():
    return StorageClass(
        metadata=ObjectMeta(name="local"),
        provisioner=NO_PROVISIONER,
        volume_binding_mode="WaitForFirstConsumer",
    )


def unbound(*names, size="5Gi", **asks):
    spec = PersistentVolumeClaimSpec(
        storage_class_name="local",
        access_modes=("ReadWriteOnce",),
        resources=VolumeResourceRequirements(requests={"storage": size}),
        **asks,
    )
    return [
        PersistentVolumeClaim(
            metadata=ObjectMeta(name=name, namespace="default", uid=f"claim-{name}"), spec=spec
        )
        for name in names
    ]


def given(plan):
    """Volume by claim."""
    pods = (pod for gang in plan.placements for pod in gang.pods)
    return {claim.name: volume for pod in pods for claim, volume in pod.volumes}


def test_a_pod_goes_where_a_volume_is_and_gets_the_smallest():
    volumes = [
        local("small", "n0", size="1Gi"),
        local("large", "n1", size="50Gi"),
        local("fit", "n1", size="6Gi"),
    ]
    found = plan(local_class(), volumes, unbound("a"), using("p", "a"), nodes=3)
    assert placed(found) == {"p": "n1"}
    assert given(found) == {"a": "fit"}


def test_what_is_claimed_or_of_another_class_or_kind_does_not_serve():
    for volume in (
        local("v", "n0", claimed=True),
        local("v", "n0", storage_class="other"),
        local("v", "n1"),
    ):
        found = plan(local_class(), volume, unbound("a"), using("p", "a"))
        assert placed(found) == {}
        assert "1 didn't find available persistent volumes to bind" in found.unplaced[0].message
    block = unbound("a", volume_mode="Block")
    assert not placed(plan(local_class(), local("v", "n0"), block, using("p", "a")))


def test_a_volume_is_given_once_however_many_nodes_reach_it():
    volumes = [local("v", "n0", "n1"), local("w", "n1")]
    pods = [using(f"p{i}", f"c{i}", created=i) for i in range(3)]
    claims = unbound("c0", "c1", "c2")
    found = plan(local_class(), volumes, claims, pods, nodes=2)
    assert len(placed(found)) == 2
    assert sorted(given(found).values()) == ["v", "w"]


def test_two_claims_of_a_pod_get_two_volumes_of_its_node():
    volumes = [local("v", "n0"), local("w", "n1"), local("x", "n1")]
    found = plan(local_class(), volumes, unbound("a", "b"), using("p", "a", "b"), nodes=2)
    assert placed(found) == {"p": "n1"}
    assert given(found) == {"a": "w", "b": "x"}


def test_a_volume_that_is_being_given_is_nobody_elses():
    world = cluster(
        node("n0"),
        queue("q", 0),
        local_class(),
        local("v", "n0"),
        unbound("a", "b"),
        using("p", "a"),
    )
    world.builder.assume(PodRef("default", "p", "pod-p"), "n0", volumes=("v",))
    world.add(using("late", "b"))
    assert placed(world.plan()) == {}
    world.builder.forget("pod-p")
    assert len(placed(world.plan())) == 1


ZONE = "topology.kubernetes.io/zone"


def sized(name, size):
    resources = VolumeResourceRequirements(requests={"storage": size} if size else {})
    made = waiting_disk(name)
    return replace(made, spec=replace(made.spec, resources=resources))


def tells(*, capacity=True):
    """The driver tells what storage it has left."""
    return CSIDriver(metadata=ObjectMeta(name=DISK), spec=CSIDriverSpec(storage_capacity=capacity))


def offer(name, capacity, *, largest=None, storage_class="disks", nodes=None, zone=""):
    return CSIStorageCapacity(
        metadata=ObjectMeta(name=name, namespace="kube-system"),
        storage_class_name=storage_class,
        capacity=capacity,
        maximum_volume_size=largest,
        node_topology=LabelSelector(match_labels={ZONE: zone}) if zone else nodes,
    )


def zones():
    return [node(f"n-{zone}", labels={ZONE: zone}) for zone in "xyz"]


def ways(*objects, size="5Gi"):
    """The zones in which a pod with a claim of this size finds storage."""
    base = cluster(zones(), queue("q", 0), disks(), sized("data", size), *objects)
    found = ""
    for zone in "xyz":
        plan = base.add(using("p", "data", node_selector={ZONE: zone})).plan()
        found += zone if placed(plan) else ""
        if not placed(plan):
            assert "1 did not have enough free storage" in plan.unplaced[0].message
    return found


def test_a_volume_is_made_where_its_driver_has_storage_left():
    assert ways(tells(), offer("a", "10Gi", zone="x"), offer("b", "4Gi", zone="y")) == "x"
    assert ways(tells()) == "", "nothing is offered anywhere"
    assert ways(tells(), offer("a", "5Gi", nodes=LabelSelector())) == "xyz", "exactly enough"
    assert ways(tells(), offer("a", "5Gi", storage_class="others", zone="x")) == ""


def test_only_drivers_that_tell_are_asked():
    assert ways() == "xyz"
    assert ways(tells(capacity=False)) == "xyz"
    assert ways(tells(), size="") == "xyz", "a claim that asks for no size fits anywhere"


def test_one_volume_must_be_within_the_largest():
    assert ways(tells(), offer("a", "100Gi", largest="4Gi", zone="x")) == ""
    assert ways(tells(), offer("a", "1Gi", largest="5Gi", zone="x")) == "x", "as kube-scheduler"


def test_offers_without_size_or_topology_are_none():
    assert ways(tells(), offer("a", None, zone="x"), offer("b", "9Gi")) == ""
    assert ways(tells(), offer("a", "many", zone="x")) == ""


def test_segments_by_several_labels_and_expressions():
    both = LabelSelector(match_labels={ZONE: "x", "kubernetes.io/hostname": "n-x"})
    other = LabelSelector(match_labels={ZONE: "y", "kubernetes.io/hostname": "n-x"})
    beyond = SelectorRequirement(key=ZONE, operator="NotIn", values=("x", "y"))
    rest = LabelSelector(match_expressions=(beyond,))
    assert ways(tells(), offer("a", "9Gi", nodes=both), offer("b", "9Gi", nodes=other)) == "x"
    assert ways(tells(), offer("a", "9Gi", nodes=rest)) == "z"


def test_offers_and_drivers_may_come_later_and_go():
    world = cluster(zones(), queue("q", 0), disks(), sized("data", "5Gi"), using("p", "data"))
    assert placed(world.plan())
    world.add(tells())
    assert not placed(world.plan())
    world.add(offer("a", "9Gi", zone="y"))
    assert placed(world.plan()) == {"p": "n-y"}
    world.add(offer("a", "1Gi", zone="y"))
    assert not placed(world.plan())
    world.remove(tells())
    assert placed(world.plan())


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
