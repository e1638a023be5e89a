"""The capacity that a pod may use: idle only, or future idle as well."""

from enum import StrEnum


class Capacity(StrEnum):
    """``IDLE``: free now. ``FUTURE_IDLE``: free once terminating pods have gone."""

    IDLE = "now"
    FUTURE_IDLE = "later"
