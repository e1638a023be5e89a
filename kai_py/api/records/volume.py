"""Records of the volumes of a pod: only claims, and disks that pods of a node may not share."""

import msgspec

from kai_py.api.records.record import Record


class ClaimVolumeSource(Record, frozen=True):
    """volume.persistentVolumeClaim."""

    claim_name: str = ""


class EphemeralVolumeSource(Record, frozen=True):
    """volume.ephemeral: the claim is named POD-VOLUME and owned by the pod."""


class GCEPersistentDisk(Record, frozen=True):
    """volume.gcePersistentDisk."""

    pd_name: str = ""
    read_only: bool = False


class AWSElasticBlockStore(Record, frozen=True):
    """volume.awsElasticBlockStore."""

    volume_id: str = msgspec.field(name="volumeID", default="")


class ISCSIDisk(Record, frozen=True):
    """volume.iscsi: the target is its qualified name."""

    iqn: str = ""
    read_only: bool = False


class RBDImage(Record, frozen=True):
    """volume.rbd: an image in a pool of a Ceph cluster, which is known by its monitors."""

    monitors: tuple[str, ...] = ()
    pool: str = "rbd"
    image: str = ""
    read_only: bool = False


class Volume(Record, frozen=True):
    """pod.spec.volumes[]."""

    name: str = ""
    persistent_volume_claim: ClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDisk | None = None
    aws_elastic_block_store: AWSElasticBlockStore | None = None
    iscsi: ISCSIDisk | None = None
    rbd: RBDImage | None = None
