"""What a group object or its annotations say of a gang's life, beside who belongs to it."""

from dataclasses import dataclass
from enum import StrEnum


class Wording(StrEnum):
    """In whose words a gang's users are told of decisions."""

    NATIVE = "native"
    KAI = "kai"


@dataclass(frozen=True, slots=True)
class GangAffinity:
    """A wish to be where the gang called ``gang`` is: on its nodes, or in their domains.

    ``level`` is the node label whose values are the domains, empty for the nodes themselves.
    """

    gang: str
    level: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangSettings:
    """Times in seconds, points in time since the epoch; None leaves it to pods or configuration.

    ``staleness_grace``: how long the gang may run below its floor (negative: for ever), and
    ``stale_since`` when it was first seen to. ``preemption_delay``: how long it waits, from its
    creation or ``last_evicted``, before it may evict others. ``attempted``: it asks for one attempt
    and had it. ``mark_unschedulable``: whether its pods say in a condition that they wait.
    ``may_preempt``: whether it may evict others, if its pods may. ``near``: where it would rather
    be, the most wanted first. ``wording``: how its users speak.
    """

    priority: int | None = None
    created: float | None = None
    staleness_grace: float | None = None
    stale_since: float | None = None
    preemption_delay: float = 0.0
    last_evicted: float | None = None
    attempts_exhausted: bool = False
    mark_unschedulable: bool = True
    may_preempt: bool = True
    gang_affinity: tuple[GangAffinity, ...] = ()
    wording: Wording = Wording.NATIVE


DEFAULT_SETTINGS = GangSettings()
