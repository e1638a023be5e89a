"""What the volumes of a pod ask of a node and of other pods, beside where they can be reached.

How many volumes can be attached to each node, by driver (CSINode ``allocatable.count``)?

Which volumes are attached to which node, whoever uses them?

What VolumeAttachments say, of volumes that a CSI driver attaches. A volume stays attached for a
while after its pod has left, and takes part of what the node can attach.

How much storage can drivers still make, of which class and for which nodes?

CSIStorageCapacity objects, one per segment of the cluster and storage class, as far as they can be
used at all: kube-scheduler, too, passes over those without a capacity or without a topology.

Which volumes that somebody made beforehand does no claim have yet?

A volume is gone from here when it names a claim, and already when we are about to write that.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kai_py.api.quantity import QuantityError
from kai_py.api.records.core import LabelSelector, NodeSelector
from kai_py.api.records.storage import (
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    VolumeAttachment,
)
from kai_py.snapshot.label_selector import label_selector_matches
from kai_py.snapshot.resources import amount


@dataclass(frozen=True, slots=True)
class Attachment:
    """A volume that a driver attaches to the node; ``volume`` is "" for one of the pod's own.

    Volumes that only one pod uses are alike for all pods of a shape.
    """

    driver: str
    volume: str = ""


@dataclass(frozen=True, slots=True)
class VolumeRequest:
    """What an unbound claim asks of a volume that somebody made beforehand; ``size`` in bytes."""

    storage_class: str
    size: float
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    selector: LabelSelector | None = None


@dataclass(frozen=True, slots=True)
class VolumeToProvision:
    """A volume of ``size`` bytes that a driver makes, which tells how much it has left."""

    storage_class: str
    size: float


@dataclass(frozen=True, slots=True)
class VolumeRequirements:
    """``exclusive``: claims, by namespace/name, that only one pod at a time may use.

    ``wishes``: those of unbound claims, the one that asks for least first. ``made``: for other
    unbound claims, as far as a driver tells where it has room for them.
    """

    attachments: tuple[Attachment, ...] = ()
    exclusive_claims: tuple[str, ...] = ()
    volume_requests: tuple[VolumeRequest, ...] = ()
    to_provision: tuple[VolumeToProvision, ...] = ()


NO_VOLUME_REQUIREMENTS = VolumeRequirements()


class AttachLimits:
    """What drivers said of their nodes."""

    def __init__(self) -> None:
        """Nothing is said yet."""
        self._by_node: dict[str, Mapping[str, int]] = {}

    def apply(self, old: object | None, new: object | None) -> None:
        """Take in one change of a CSINode."""
        if isinstance(old, CSINode):
            self._by_node.pop(old.metadata.name, None)
        if isinstance(new, CSINode):
            limits = {
                driver.name: driver.allocatable.count
                for driver in new.spec.drivers
                if driver.allocatable is not None and driver.allocatable.count is not None
            }
            if limits:
                self._by_node[new.metadata.name] = limits

    def by_node(self) -> dict[str, Mapping[str, int]]:
        """Node name to driver to volumes; nodes and drivers without a limit are left out."""
        return dict(self._by_node)


class VolumeAttachments:
    """VolumeAttachments by name, and the handles of the volumes that they name."""

    def __init__(self) -> None:
        """Nothing is attached."""
        self._known: dict[str, VolumeAttachment] = {}
        self._handles: dict[str, str] = {}
        self._by_node: Mapping[str, tuple[Attachment, ...]] | None = {}

    def apply(self, old: object | None, new: object | None) -> None:
        """Take in one change of a VolumeAttachment or a PersistentVolume."""
        if isinstance(old, VolumeAttachment):
            self._by_node = None
            self._known.pop(old.metadata.name, None)
        if isinstance(new, VolumeAttachment):
            self._by_node = None
            self._known[new.metadata.name] = new
        if isinstance(old, PersistentVolume) or isinstance(new, PersistentVolume):
            self._set_handle(old, new)

    def by_node(self) -> Mapping[str, tuple[Attachment, ...]]:
        """Node name to what is attached to it; O(VolumeAttachments) after a change."""
        if self._by_node is None:
            found: dict[str, list[Attachment]] = {}
            for _, each in sorted(self._known.items()):
                handle = self._handles.get(each.spec.source.persistent_volume_name)
                if each.spec.attacher and handle is not None:
                    attached = found.setdefault(each.spec.node_name, [])
                    attached.append(Attachment(each.spec.attacher, handle))
            self._by_node = {node: tuple(attached) for node, attached in found.items()}
        return self._by_node

    def _set_handle(self, old: object | None, new: object | None) -> None:
        if isinstance(new, PersistentVolume) and new.spec.csi is not None:
            name, handle = new.metadata.name, new.spec.csi.volume_handle
            if self._handles.get(name) != handle:
                self._handles[name] = handle
                self._by_node = None
        elif isinstance(old, PersistentVolume) and old.metadata.name in self._handles:
            del self._handles[old.metadata.name]
            self._by_node = None


@dataclass(frozen=True, slots=True)
class NodeStorageCapacity:
    """Volumes of ``storage_class`` up to ``largest`` bytes for the nodes that ``nodes`` selects."""

    storage_class: str
    max_volume_size: float
    nodes: LabelSelector


class StorageCapacities:
    """What drivers offer, by namespace and name of the object that says so."""

    def __init__(self) -> None:
        """Nothing is offered yet."""
        self._known: dict[tuple[str, str], NodeStorageCapacity] = {}
        self._snapshot: tuple[NodeStorageCapacity, ...] | None = ()

    def apply(self, old: object | None, new: object | None) -> None:
        """Take in one change of a CSIStorageCapacity."""
        if isinstance(old, CSIStorageCapacity):
            self._snapshot = None
            self._known.pop((old.metadata.namespace, old.metadata.name), None)
        if isinstance(new, CSIStorageCapacity):
            self._snapshot = None
            offer = _parse_capacity(new)
            if offer is not None:
                self._known[new.metadata.namespace, new.metadata.name] = offer

    def snapshot(self) -> tuple[NodeStorageCapacity, ...]:
        """All of them, by name."""
        if self._snapshot is None:
            self._snapshot = tuple(
                offer for _, offer in sorted(self._known.items(), key=_object_name)
            )
        return self._snapshot


def _object_name(item: tuple[tuple[str, str], NodeStorageCapacity]) -> tuple[str, str]:
    return item[0]


def _parse_capacity(record: CSIStorageCapacity) -> NodeStorageCapacity | None:
    """An offer whose size can't be read is none; the size of one volume counts before the sum."""
    size = record.capacity if record.maximum_volume_size is None else record.maximum_volume_size
    if size is None or record.node_topology is None:
        return None
    try:
        return NodeStorageCapacity(
            record.storage_class_name, amount("storage", size), record.node_topology
        )
    except QuantityError:
        return None


@dataclass(frozen=True, slots=True)
class AvailableVolume:
    """A volume, how large it is (bytes), and from which nodes it can be reached (None: all)."""

    volume: PersistentVolume
    size: float
    node_selector: NodeSelector | None

    @property
    def name(self) -> str:
        """The volume's name."""
        return self.volume.metadata.name

    def satisfies(self, request: VolumeRequest) -> bool:
        """Whether a claim with this wish may have the volume, wherever its pod is."""
        spec = self.volume.spec
        return (
            spec.storage_class_name == request.storage_class
            and spec.volume_mode == request.volume_mode
            and self.size >= request.size
            and set(request.access_modes) <= set(spec.access_modes)
            and (
                request.selector is None
                or label_selector_matches(request.selector, self.volume.metadata.labels)
            )
        )


class AvailableVolumes:
    """Volumes without a claim, by name; those promised to the claims of a pod, by its uid."""

    def __init__(self) -> None:
        """None yet."""
        self._known: dict[str, AvailableVolume] = {}
        self._assumed: dict[str, tuple[str, ...]] = {}

    def apply(self, old: object | None, new: object | None) -> None:
        """Take in one change of a PersistentVolume."""
        if isinstance(old, PersistentVolume):
            self._known.pop(old.metadata.name, None)
        if not isinstance(new, PersistentVolume) or new.metadata.deletion_timestamp is not None:
            return
        if new.spec.claim_ref is None and new.spec.storage_class_name:
            self._known[new.metadata.name] = _parse_volume(new)

    def assume(self, pod_uid: str, volumes: tuple[str, ...]) -> None:
        """The claims of a pod are being given these volumes."""
        if volumes:
            self._assumed[pod_uid] = volumes

    def forget(self, pod_uid: str) -> None:
        """The pod gets no volumes, or is gone."""
        self._assumed.pop(pod_uid, None)

    def snapshot(self) -> tuple[AvailableVolume, ...]:
        """Those that nobody has or is given, the smallest first."""
        taken = {name for names in self._assumed.values() for name in names}
        left = (each for name, each in self._known.items() if name not in taken)
        return tuple(sorted(left, key=lambda each: (each.size, each.name)))


def _parse_volume(volume: PersistentVolume) -> AvailableVolume:
    """A volume whose size can't be read serves no claim that asks for one."""
    affinity = volume.spec.node_affinity
    try:
        size = amount("storage", volume.spec.capacity.get("storage", 0))
    except QuantityError:
        size = 0.0
    return AvailableVolume(volume, size, affinity.required if affinity else None)
