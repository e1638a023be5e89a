"""Volumes of the cluster: attachments and their limits, capacity for new ones, available volumes.

How many volumes of a driver a node can attach is in its CSINode (``allocatable.count``). A volume
stays attached for a while after its pod has ended, and counts against the limit.

A CSIStorageCapacity says how large a volume a driver can still provision, per segment of the
cluster and storage class. As in kube-scheduler, those without a capacity or a topology are ignored.

An existing volume is available until it names a claim, or until a claim is about to be written.
"""

from collections.abc import Mapping
from typing import ClassVar

from msgspec import Struct

from kai_py.api.quantity import QuantityError
from kai_py.api.records.core import LabelSelector
from kai_py.api.records.storage import (
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    VolumeAttachment,
)
from kai_py.snapshot.available_volumes import AvailableVolume, parse_volume
from kai_py.snapshot.derived_pod import AssumedBinding
from kai_py.snapshot.resources import amount
from kai_py.snapshot.tables.pod_table import PodTable, Uids
from kai_py.snapshot.volume_requirements import Attachment


class AttachLimits:
    """How many volumes each driver can attach to each node, as CSINodes say."""

    kinds: ClassVar[tuple[str, ...]] = ("csinodes",)

    def __init__(self) -> None:
        """Start empty."""
        self._by_node: dict[str, Mapping[str, int]] = {}

    def apply(self, _kind: str, old: object | None, new: object | None) -> None:
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

    kinds: ClassVar[tuple[str, ...]] = ("volumeattachments", "persistentvolumes")

    def __init__(self) -> None:
        """Start empty."""
        self._known: dict[str, VolumeAttachment] = {}
        self._handles: dict[str, str] = {}
        self._by_node: Mapping[str, tuple[Attachment, ...]] | None = {}

    def apply(self, _kind: str, old: object | None, new: object | None) -> None:
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


class NodeStorageCapacity(Struct, frozen=True):
    """Volumes of ``storage_class``, of at most ``max_volume_size`` bytes, for selected nodes."""

    storage_class: str
    max_volume_size: float
    nodes: LabelSelector


class StorageCapacities:
    """Storage capacities by namespace and name of their objects."""

    kinds: ClassVar[tuple[str, ...]] = ("csistoragecapacities",)

    def __init__(self) -> None:
        """Start empty."""
        self._known: dict[tuple[str, str], NodeStorageCapacity] = {}
        self._snapshot: tuple[NodeStorageCapacity, ...] | None = ()

    def apply(self, _kind: str, old: object | None, new: object | None) -> None:
        """Take in one change of a CSIStorageCapacity."""
        if isinstance(old, CSIStorageCapacity):
            self._snapshot = None
            self._known.pop((old.metadata.namespace, old.metadata.name), None)
        if isinstance(new, CSIStorageCapacity):
            self._snapshot = None
            capacity = _parse_capacity(new)
            if capacity is not None:
                self._known[new.metadata.namespace, new.metadata.name] = capacity

    def snapshot(self) -> tuple[NodeStorageCapacity, ...]:
        """All storage capacities, in order of their names."""
        if self._snapshot is None:
            self._snapshot = tuple(
                capacity for _, capacity in sorted(self._known.items(), key=_object_name)
            )
        return self._snapshot


def _object_name(item: tuple[tuple[str, str], NodeStorageCapacity]) -> tuple[str, str]:
    return item[0]


def _parse_capacity(record: CSIStorageCapacity) -> NodeStorageCapacity | None:
    """None if the size cannot be read; the largest volume counts before the total capacity."""
    size = record.capacity if record.maximum_volume_size is None else record.maximum_volume_size
    if size is None or record.node_topology is None:
        return None
    try:
        return NodeStorageCapacity(
            record.storage_class_name, amount("storage", size), record.node_topology
        )
    except QuantityError:
        return None


class AvailableVolumes(PodTable):
    """Volumes without a claim, by name, and the pods to whose claims some are being given."""

    kinds: ClassVar[tuple[str, ...]] = ("persistentvolumes",)

    def __init__(self) -> None:
        """Start without volumes."""
        self._known: dict[str, AvailableVolume] = {}
        self._assumed: dict[str, str] = {}

    def apply(self, _kind: str, old: object | None, new: object | None) -> None:
        """Take in one change of a PersistentVolume."""
        if isinstance(old, PersistentVolume):
            self._known.pop(old.metadata.name, None)
        if not isinstance(new, PersistentVolume):
            return
        if new.spec.claim_ref is not None:
            # What was assumed has come true; once the volume is released it is available again.
            self._assumed.pop(new.metadata.name, None)
        if new.metadata.deletion_timestamp is not None:
            return
        if new.spec.claim_ref is None and new.storage_class:
            self._known[new.metadata.name] = parse_volume(new)

    def assume(self, binding: AssumedBinding) -> Uids:
        """The claims of the pod are being given volumes."""
        self._assumed.update(dict.fromkeys(binding.volumes, binding.pod_uid))
        return ()

    def forget(self, uid: str) -> Uids:
        """Free the volumes assumed for a pod; O(assumed volumes)."""
        for name in [name for name, pod in self._assumed.items() if pod == uid]:
            del self._assumed[name]
        return ()

    def snapshot(self) -> tuple[AvailableVolume, ...]:
        """The volumes without a claim that are not assumed for one, the smallest first."""
        left = (each for name, each in self._known.items() if name not in self._assumed)
        return tuple(sorted(left, key=lambda each: (each.size, each.name)))
