"""Records of volumes: exactly the fields that decide which nodes can reach or attach them."""

import msgspec

from kai_py.api.records.core import LabelSelector, NodeSelector, ObjectMeta
from kai_py.api.records.record import QuantityText, Record
from kai_py.api.records.volume import AWSElasticBlockStore, GCEPersistentDisk

READ_WRITE_ONCE_POD = "ReadWriteOncePod"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
"""Provisioner of a StorageClass whose volumes are created in advance."""
SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""Annotation of a PersistentVolumeClaim: the node for which its volume is provisioned."""
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
"""Annotation of the StorageClass that claims get which leave theirs open."""
BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
"""Annotation of claims and volumes: their class, which counts before that of the spec."""


class VolumeResourceRequirements(Record, frozen=True):
    """The requested size."""

    requests: dict[str, QuantityText] = msgspec.field(default_factory=dict)


class PersistentVolumeClaimSpec(Record, frozen=True):
    """The volume of a bound claim, or the requirements of an unbound one."""

    volume_name: str = ""
    storage_class_name: str | None = None
    volume_attributes_class_name: str = ""
    access_modes: tuple[str, ...] = ()
    resources: VolumeResourceRequirements = VolumeResourceRequirements()
    selector: LabelSelector | None = None
    volume_mode: str = "Filesystem"


class PersistentVolumeClaim(Record, frozen=True):
    """v1 PersistentVolumeClaim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()

    @property
    def storage_class(self) -> str:
        """The name of its class, empty where it has none."""
        return self.metadata.annotations.get(BETA_CLASS, self.spec.storage_class_name or "")


class VolumeNodeAffinity(Record, frozen=True):
    """Nodes from which a volume can be reached."""

    required: NodeSelector | None = None


class CSIPersistentVolumeSource(Record, frozen=True):
    """The driver that attaches a volume, and its name for it."""

    driver: str = ""
    volume_handle: str = ""


class AzureDisk(Record, frozen=True):
    """persistentVolume.spec.azureDisk."""

    disk_uri: str = msgspec.field(name="diskURI", default="")


class CinderVolume(Record, frozen=True):
    """persistentVolume.spec.cinder."""

    volume_id: str = msgspec.field(name="volumeID", default="")


class PortworxVolume(Record, frozen=True):
    """persistentVolume.spec.portworxVolume."""

    volume_id: str = msgspec.field(name="volumeID", default="")


class ObjectReference(Record, frozen=True):
    """The claim that a volume is, or shall be, bound to."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class PersistentVolumeSpec(Record, frozen=True):
    """The properties of a volume, and the claim it is bound to."""

    node_affinity: VolumeNodeAffinity | None = None
    storage_class_name: str = ""
    volume_attributes_class_name: str = ""
    csi: CSIPersistentVolumeSource | None = None
    aws_elastic_block_store: AWSElasticBlockStore | None = None
    azure_disk: AzureDisk | None = None
    cinder: CinderVolume | None = None
    gce_persistent_disk: GCEPersistentDisk | None = None
    portworx_volume: PortworxVolume | None = None
    claim_ref: ObjectReference | None = None
    capacity: dict[str, QuantityText] = msgspec.field(default_factory=dict)
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"


class PersistentVolume(Record, frozen=True):
    """v1 PersistentVolume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()

    @property
    def storage_class(self) -> str:
        """The name of its class, empty where it has none."""
        return self.metadata.annotations.get(BETA_CLASS, self.spec.storage_class_name)


class TopologySelectorLabelRequirement(Record, frozen=True):
    """One label and its values of a StorageClass's allowed topologies."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(Record, frozen=True):
    """Requirements are AND-ed; terms are OR-ed."""

    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class StorageClass(Record, frozen=True):
    """storage.k8s.io/v1 StorageClass."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class VolumeNodeResources(Record, frozen=True):
    """How many volumes a driver can attach to a node; None where it sets no limit."""

    count: int | None = None


class CSINodeDriver(Record, frozen=True):
    """A driver that runs on a node."""

    name: str = ""
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(Record, frozen=True):
    """csiNode.spec."""

    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(Record, frozen=True):
    """storage.k8s.io/v1 CSINode, named like its node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(Record, frozen=True):
    """csiDriver.spec; ``storage_capacity``: the driver publishes CSIStorageCapacity objects."""

    storage_capacity: bool | None = None


class CSIDriver(Record, frozen=True):
    """storage.k8s.io/v1 CSIDriver, named like the provisioner of its classes."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Record, frozen=True):
    """storage.k8s.io/v1 CSIStorageCapacity; without a topology it is for no node."""

    metadata: ObjectMeta = ObjectMeta()
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: QuantityText | None = None
    maximum_volume_size: QuantityText | None = None


class VolumeAttachmentSource(Record, frozen=True):
    """The volume that is attached."""

    persistent_volume_name: str = ""


class VolumeAttachmentSpec(Record, frozen=True):
    """The volume, the node to which it is attached, and the driver."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(Record, frozen=True):
    """storage.k8s.io/v1 VolumeAttachment."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
