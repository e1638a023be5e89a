"""Settings of a gang beside its members, as a group object or annotations give them.

A semi-preemptible workload gives up its elastic pods, those above the minMember of each of its
subgroups, and never its minMember set. That set counts as non-preemptible in every respect: its
queue and all ancestors must deserve it.
"""

from enum import StrEnum

from msgspec import Struct

from kai_py.api.node_departures import DepartureTreatment
from kai_py.api.spot import SpotUse


class Preemptibility(StrEnum):
    """Preemptibility as users write it."""

    PREEMPTIBLE = "preemptible"
    SEMI_PREEMPTIBLE = "semi-preemptible"
    NON_PREEMPTIBLE = "non-preemptible"


def parse_preemptibility(text: str) -> Preemptibility | None:
    """The value that ``text`` denotes, None if it denotes none."""
    return next((each for each in Preemptibility if each == text), None)


class Wording(StrEnum):
    """The terms in which messages to a gang's users are written."""

    NATIVE = "native"
    KAI = "kai"


class GangAffinity(Struct, frozen=True):
    """A preference for the nodes of the gang with key ``gang``, or for their domains.

    ``level`` is the node label whose values are the domains, empty for the nodes themselves.
    """

    gang: str
    level: str = ""


class GangSettings(Struct, frozen=True, kw_only=True):
    """Durations in seconds, times since the epoch; None leaves it to pods or configuration."""

    priority: int | None = None
    created: float | None = None
    staleness_grace: float | None = None
    """How long the gang may run below minMember; negative: forever."""
    stale_since: float | None = None
    """When it was first found to run below minMember."""
    preemption_delay: float = 0.0
    """How long it waits, from its creation or ``last_evicted``, before it may evict others."""
    last_evicted: float | None = None
    attempts_exhausted: bool = False
    """It requested a single attempt, which was made."""
    mark_unschedulable: bool = True
    """Whether a condition of its pods says that they are unschedulable."""
    may_preempt: bool = True
    """Whether it may evict others, if its pods may."""
    gang_affinity: tuple[GangAffinity, ...] = ()
    """Preferred locations, the most preferred first."""
    wording: Wording = Wording.NATIVE
    """The terms of messages to its users."""
    on_departure: DepartureTreatment | None = None
    """How it is treated when a node of it is about to go."""
    checkpoint_grace: float | None = None
    """How long its pods take to save their work when asked to."""
    is_default_priority: bool = False
    """Its group names no class, so ``priority`` is only what the API server fills in."""
    restarts_whole: bool | None = None
    """Whether all of it restarts when pods that it needs are lost."""
    spot: SpotUse | None = None
    """Whether it goes to spot nodes."""
    spot_fallback_after: float | None = None
    """How long it waits for spot nodes before it uses others."""
    ready_timeout: float | None = None
    """By when minMember pods must be ready after it has started; 0: never."""
    checkpoint_interval: float | None = None
    """How often its pods save their work; None or 0: never."""
    ageing: float | None = None
    """Time of waiting that counts as one point of its priority."""
    provisioning_class: str | None = None
    """Class of the ProvisioningRequest made while it waits."""


DEFAULT_SETTINGS = GangSettings()
