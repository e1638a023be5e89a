"""Which room a pod may take: what is free now, or also what is being freed."""

from enum import StrEnum


class Room(StrEnum):
    """``NOW``: the pod can start. ``LATER``: it must wait until others have left."""

    NOW = "now"
    LATER = "later"
