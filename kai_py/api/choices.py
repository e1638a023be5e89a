"""Choices of the configuration, and of what is asked, that several packages depend on."""

import enum


class Profile(enum.StrEnum):
    """Rules where kai-py and KAI-Scheduler differ."""

    NATIVE = "native"
    """Rules of kai-py: exact shares without rounding; an absent max means unlimited."""
    KAI = "kai"
    """Rules of KAI-Scheduler, for clusters that migrate from it and for its test tables."""


class BuiltInScore(enum.StrEnum):
    """The scores that come with the scheduler; others are registered by name."""

    BEST_FIT = "best-fit"
    """The node that is left with the least CPU and GPUs."""
    FGD = "fgd"
    """The least increase of capacity that pods like the running and pending ones cannot use
    (fragmentation gradient descent)."""
    FRUGAL = "frugal"
    """As fgd, but counts how many replicas of such pods fit, with more weight on pods that few
    nodes are feasible for."""


NO_SCORE = "together"
"""In place of a score: all pods of a shape at once, by fill strategy alone."""


class FillStrategy(enum.StrEnum):
    """How pods choose among feasible nodes."""

    BINPACK = "binpack"
    """The fullest node first: whole nodes stay idle for gangs."""
    SPREAD = "spread"
    """The emptiest node first."""


class MinRuntimeMethod(enum.StrEnum):
    """Whose reclaim min runtime protects a victim from another queue."""

    LCA = "lca"
    """The one of the victim's ancestor just below its lowest common ancestor with the reclaimer."""
    QUEUE = "queue"
    """The one of the victim's own queue."""


class Subject(enum.StrEnum):
    """Kind of object that can be explained."""

    GANG = "gang"
    POD = "pod"
    JOB = "job"
    CLAIM = "claim"
    WORKLOAD = "workload"
    """An object that owns pods, at any distance; its name is NAMESPACE/KIND/NAME."""
    QUEUE = "queue"
