"""Choices of the configuration that several packages depend on."""

import enum


class Profile(enum.StrEnum):
    """Which rules decide where two designs differ."""

    NATIVE = "native"
    """Our own: exact shares without rounding, leaving a max out means unlimited."""
    KAI = "kai"
    """Those of KAI, for clusters that move over and for its test tables."""


class BuiltInScore(enum.StrEnum):
    """The scores that come with the scheduler; others are registered by name."""

    BEST_FIT = "best-fit"
    """The node that is left with the least CPU and GPUs."""
    FGD = "fgd"
    """Where the least capacity becomes useless for pods like those that run and wait."""
    FRUGAL = "frugal"
    """As fgd, but counts how many such pods fit, and those more that few nodes can hold."""


NO_SCORE = "together"
"""In place of a score: all pods of a shape at once, by fill strategy alone."""


class FillStrategy(enum.StrEnum):
    """How pods choose among nodes with room."""

    BINPACK = "binpack"
    """The fullest node first: whole nodes stay free for gangs."""
    SPREAD = "spread"
    """The emptiest node first."""
