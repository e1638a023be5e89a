"""Which room a pod may take: what is free now, or also what is being freed."""

from enum import StrEnum


class Capacity(StrEnum):
    """``NOW``: the pod can start. ``LATER``: it must wait until others have left."""

    IDLE = "now"
    FUTURE_IDLE = "later"
