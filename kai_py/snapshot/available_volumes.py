"""Existing volumes, as far as it matters whether a claim may have them."""

from msgspec import Struct

from kai_py.api.quantity import QuantityError
from kai_py.api.records.core import NodeSelector
from kai_py.api.records.storage import PersistentVolume
from kai_py.api.selectors import label_selector_matches
from kai_py.snapshot.resources import amount
from kai_py.snapshot.volume_requirements import VolumeRequest


class AvailableVolume(Struct, frozen=True):
    """A volume, how large it is (bytes), and from which nodes it can be reached (None: all)."""

    volume: PersistentVolume
    size: float
    node_selector: NodeSelector | None

    @property
    def name(self) -> str:
        """The volume's name."""
        return self.volume.metadata.name

    def satisfies(self, request: VolumeRequest) -> bool:
        """Whether a claim with this request may have the volume, wherever its pod is."""
        spec = self.volume.spec
        return (
            self.volume.storage_class == request.storage_class
            and spec.volume_attributes_class_name == request.attributes_class
            and spec.volume_mode == request.volume_mode
            and self.size >= request.size
            and set(request.access_modes) <= set(spec.access_modes)
            and (
                request.selector is None
                or label_selector_matches(request.selector, self.volume.metadata.labels)
            )
        )


def parse_volume(volume: PersistentVolume) -> AvailableVolume:
    """A volume whose size cannot be read has none, so that it satisfies no sized request."""
    affinity = volume.spec.node_affinity
    try:
        size = amount("storage", volume.spec.capacity.get("storage", 0))
    except QuantityError:
        size = 0.0
    return AvailableVolume(volume, size, affinity.required if affinity else None)
