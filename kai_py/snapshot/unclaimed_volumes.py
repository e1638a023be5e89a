"""Which volumes that somebody made beforehand does no claim have yet?

A volume is gone from here when it names a claim, and already when we are about to write that.
"""

from dataclasses import dataclass

from kai_py.api.quantity import QuantityError
from kai_py.api.records.core import NodeSelector
from kai_py.api.records.storage import PersistentVolume
from kai_py.snapshot.label_selector import selects
from kai_py.snapshot.resources import amount
from kai_py.snapshot.volume_needs import VolumeWish


@dataclass(frozen=True, slots=True)
class UnclaimedVolume:
    """A volume, how large it is (bytes), and from which nodes it can be reached (None: all)."""

    volume: PersistentVolume
    size: float
    reached_from: NodeSelector | None

    @property
    def name(self) -> str:
        """The volume's name."""
        return self.volume.metadata.name

    def serves(self, wish: VolumeWish) -> bool:
        """Whether a claim with this wish may have the volume, wherever its pod is."""
        spec = self.volume.spec
        return (
            spec.storage_class_name == wish.storage_class
            and spec.volume_mode == wish.volume_mode
            and self.size >= wish.size
            and set(wish.access_modes) <= set(spec.access_modes)
            and (wish.selector is None or selects(wish.selector, self.volume.metadata.labels))
        )


class UnclaimedVolumes:
    """Volumes without a claim, by name; those promised to the claims of a pod, by its uid."""

    def __init__(self) -> None:
        """None yet."""
        self._known: dict[str, UnclaimedVolume] = {}
        self._promised: dict[str, tuple[str, ...]] = {}

    def apply(self, old: object | None, new: object | None) -> None:
        """Take in one change of a PersistentVolume."""
        if isinstance(old, PersistentVolume):
            self._known.pop(old.metadata.name, None)
        if not isinstance(new, PersistentVolume) or new.metadata.deletion_timestamp is not None:
            return
        if new.spec.claim_ref is None and new.spec.storage_class_name:
            self._known[new.metadata.name] = _read(new)

    def promise(self, pod_uid: str, volumes: tuple[str, ...]) -> None:
        """The claims of a pod are being given these volumes."""
        if volumes:
            self._promised[pod_uid] = volumes

    def forget(self, pod_uid: str) -> None:
        """The pod gets no volumes, or is gone."""
        self._promised.pop(pod_uid, None)

    def free(self) -> tuple[UnclaimedVolume, ...]:
        """Those that nobody has or is given, the smallest first."""
        taken = {name for names in self._promised.values() for name in names}
        left = (each for name, each in self._known.items() if name not in taken)
        return tuple(sorted(left, key=lambda each: (each.size, each.name)))


def _read(volume: PersistentVolume) -> UnclaimedVolume:
    """A volume whose size can't be read serves no claim that asks for one."""
    affinity = volume.spec.node_affinity
    try:
        size = amount("storage", volume.spec.capacity.get("storage", 0))
    except QuantityError:
        size = 0.0
    return UnclaimedVolume(volume, size, affinity.required if affinity else None)
