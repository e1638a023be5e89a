"""Which volumes that somebody made beforehand does no claim have yet?

A volume is gone from here when it names a claim, and already when we are about to write that.
"""

from dataclasses import dataclass

from kai_py.api.quantity import QuantityError
from kai_py.api.records.core import NodeSelector
from kai_py.api.records.storage import PersistentVolume
from kai_py.snapshot.label_selector import label_selector_matches
from kai_py.snapshot.resources import amount
from kai_py.snapshot.volume_needs import VolumeRequest


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
