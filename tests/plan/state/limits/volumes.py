"""Volumes, claims and the pods that use them, for tests of limits of volumes."""

from kai_py.api.records.core import NodeSelector, NodeSelectorTerm, ObjectMeta, SelectorRequirement
from kai_py.api.records.storage import (
    NO_PROVISIONER,
    CSINode,
    CSINodeDriver,
    CSINodeSpec,
    CSIPersistentVolumeSource,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
    StorageClass,
    VolumeNodeAffinity,
    VolumeNodeResources,
    VolumeResourceRequirements,
)
from kai_py.api.records.volume import ClaimVolumeSource, Volume
from tests.support.scenario import cluster, node, pod, queue

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
                access_modes=modes,
                csi=CSIPersistentVolumeSource(driver=DISK, volume_handle=f"vol-{name}"),
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


def local(name, *hosts, size="10Gi", storage_class="local", claimed=False):
    """A volume that exists on one node, or that some can reach."""
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
