"""What the volumes of a pod require of its node, beside being reachable from there."""

from collections.abc import Container

from msgspec import Struct
from msgspec.structs import replace

from kai_py.api.records.core import LabelSelector


class Attachment(Struct, frozen=True):
    """A volume that a driver attaches to the node; ``volume`` is "" for one of the pod's own.

    Volumes that only one pod uses are alike for all pods of a shape.
    """

    driver: str
    volume: str = ""


class Disk(Struct, frozen=True):
    """A disk that a pod mounts without a claim: the kind of its source, and a name that it has."""

    source: str
    name: str
    read_only: bool = False

    def conflicts_with_any(self, mounted: Container["Disk"]) -> bool:
        """Whether it may not be mounted beside these on one node."""
        writable = replace(self, read_only=False)
        return writable in mounted or (
            not self.read_only and replace(self, read_only=True) in mounted
        )


class VolumeRequest(Struct, frozen=True):
    """What an unbound claim requires of an existing volume; ``size`` in bytes."""

    storage_class: str
    size: float
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    selector: LabelSelector | None = None
    attributes_class: str = ""

    @property
    def selects_volumes(self) -> bool:
        """Whether only existing volumes will do: none is provisioned for labels."""
        selector = self.selector
        return selector is not None and bool(selector.match_labels or selector.match_expressions)


class VolumeToProvision(Struct, frozen=True):
    """A volume of ``size`` bytes to be provisioned by a driver that reports its capacity."""

    storage_class: str
    size: float


class VolumeRequirements(Struct, frozen=True):
    """What the volumes of a pod require of a node, beside the nodes that reach them.

    ``disks``: those that other pods of the node may not mount, or may only read.
    ``exclusive_claims``: by namespace/name, those that only one pod at a time may use.
    ``volume_requests``: of unbound claims for existing volumes, the smallest first.
    ``to_provision``: for other unbound claims, as far as their drivers report capacity.
    """

    attachments: tuple[Attachment, ...] = ()
    exclusive_claims: tuple[str, ...] = ()
    volume_requests: tuple[VolumeRequest, ...] = ()
    to_provision: tuple[VolumeToProvision, ...] = ()
    disks: tuple[Disk, ...] = ()


NO_VOLUME_REQUIREMENTS = VolumeRequirements()
