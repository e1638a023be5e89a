"""Choices of the configuration that several packages depend on."""

import enum


class Profile(enum.StrEnum):
    """Which rules decide where two designs differ."""

    NATIVE = "native"
    """Our own: exact shares without rounding, leaving a max out means unlimited."""
    KAI = "kai"
    """Those of KAI, for clusters that move over and for its test tables."""


class FillStrategy(enum.StrEnum):
    """How pods choose among nodes with room."""

    BINPACK = "binpack"
    """The fullest node first: whole nodes stay free for gangs."""
    SPREAD = "spread"
    """The emptiest node first."""
