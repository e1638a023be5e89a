"""Which volumes are attached to which node, whoever uses them?

What VolumeAttachments say, of volumes that a CSI driver attaches. A volume stays attached for a
while after its pod has left, and takes part of what the node can attach.
"""

from collections.abc import Mapping

from kai_py.api.records.storage import PersistentVolume, VolumeAttachment
from kai_py.snapshot.volume_needs import Attachment


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
