"""What the volumes of a pod ask of a node and of other pods, beside where they can be reached."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attachment:
    """A volume that a driver attaches to the node; ``volume`` is "" for one of the pod's own.

    Volumes that only one pod uses are alike for all pods of a shape.
    """

    driver: str
    volume: str = ""


@dataclass(frozen=True, slots=True)
class VolumeNeeds:
    """``exclusive``: claims, by namespace/name, that only one pod at a time may use."""

    attachments: tuple[Attachment, ...] = ()
    exclusive: tuple[str, ...] = ()


NO_VOLUME_NEEDS = VolumeNeeds()
