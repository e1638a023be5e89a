"""Which fairness rules apply: the choices on which kai_py and KAI-Scheduler differ, as one value.

``native`` divides exactly, finishes a priority before the next, shrinks guarantees in proportion
when there is less than their sum, judges a gang only by the resources it asks for, gives nobody
room that a gang before it needs together with victims, and looks for the fewest victims inside a
queue. ``kai`` does what KAI-Scheduler 0.17 does, for clusters that keep its Queues and expect its
numbers.
"""

from dataclasses import dataclass
from enum import StrEnum

from kai_py.api.choices import Profile
from kai_py.snapshot.accounting import MIG_SLICES_PER_GPU


class Division(StrEnum):
    """How the surplus of a resource is divided among sibling queues."""

    EXACT = "exact"
    """By weight with nothing rounded; guarantees shrink when there is less than their sum."""

    WHOLE_UNITS = "whole-units"
    """Rounded down to whole units, cut-off units handed out last; guarantees never shrink."""


class ComparedResources(StrEnum):
    """Which resources count when a queue is compared with its guarantee or fair share."""

    REQUESTED = "requested"
    """Those that the gang in question asks for."""

    ALL = "all"
    """All of them, also those that the gang does not touch."""


class BypassPolicy(StrEnum):
    """Who gets free room that is too little for the gang that comes first."""

    PREEMPT_FIRST = "in-turn"
    """The first gang, where moving others, reclaim or preemption give it the rest."""

    BYPASS_FIRST = "who-fits"
    """Those who come after it and fit; only then may anybody make others leave."""


class VictimPreference(StrEnum):
    """Who leaves for a gang of the same queue, of those with a priority no higher than need be."""

    FEWEST = "fewest"
    """As few gangs, and then as few pods, as looking at the nodes one by one finds."""

    YOUNGEST = "youngest"
    """Surplus, and then the youngest, wherever they run."""


class MinRuntimeMethod(StrEnum):
    """Whose reclaim min runtime protects a victim from another queue."""

    LCA = "lca"
    """That of the victim's ancestor just below the lowest ancestor it shares with the reclaimer."""

    QUEUE = "queue"
    """That of the victim's own queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FairnessRules:
    """The fairness rules of one cycle. Raises ValueError for values outside their range.

    ``usage_weight`` is the k of time-aware fair share: how far past usage lowers a queue's claim on
    surplus (0: not at all). ``saturation_multiplier`` makes reclaim more reluctant the larger it
    is. Default min runtimes, in seconds, are for queues that neither have nor inherit one.
    ``mig_slices_per_gpu``: of the MIG devices of a device plugin; KAI counts every slice as a GPU.
    """

    division: Division = Division.EXACT
    compared_resources: ComparedResources = ComparedResources.REQUESTED
    usage_weight: float = 1.0
    saturation_multiplier: float = 1.0
    default_preempt_min_runtime: float = 0.0
    default_reclaim_min_runtime: float = 0.0
    min_runtime_method: MinRuntimeMethod = MinRuntimeMethod.LCA
    bypass_policy: BypassPolicy = BypassPolicy.PREEMPT_FIRST
    victim_preference: VictimPreference = VictimPreference.FEWEST
    mig_slices_per_gpu: float = MIG_SLICES_PER_GPU

    def __post_init__(self) -> None:
        lowest = {
            "usage_weight": 0.0,
            "saturation_multiplier": 1.0,
            "default_preempt_min_runtime": 0.0,
            "default_reclaim_min_runtime": 0.0,
            "mig_slices_per_gpu": 1.0,
        }
        for name, bound in lowest.items():
            if not getattr(self, name) >= bound:
                raise ValueError(f"{name} is {getattr(self, name)}, must be at least {bound}")


NATIVE = FairnessRules()
KAI = FairnessRules(
    division=Division.WHOLE_UNITS,
    compared_resources=ComparedResources.ALL,
    bypass_policy=BypassPolicy.BYPASS_FIRST,
    victim_preference=VictimPreference.YOUNGEST,
    mig_slices_per_gpu=1.0,
)
PROFILES = {Profile.NATIVE: NATIVE, Profile.KAI: KAI}
