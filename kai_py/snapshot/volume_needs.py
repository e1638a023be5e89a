"""What the volumes of a pod ask of a node and of other pods, beside where they can be reached."""

from dataclasses import dataclass

from kai_py.api.records.core import LabelSelector


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
