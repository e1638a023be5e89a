"""Fairness rules: the choices on which kai_py and KAI-Scheduler differ, as one value.

``native`` divides exactly, finishes a priority before the next, scales deserved amounts in
proportion when the cluster is smaller than their sum, compares only the resources that a gang
requests, gives no gang capacity that an earlier gang needs together with victims, minimises the
victims inside a queue, counts no demand that the cluster can never serve, and consolidates no pod
that nothing would create again. ``kai`` follows KAI-Scheduler 0.17, for clusters that keep its
Queues and expect its figures.
"""

from enum import StrEnum

from msgspec import Struct

from kai_py.api.choices import MinRuntimeMethod, Profile
from kai_py.snapshot.accounting import MIG_SLICES_PER_GPU


class Division(StrEnum):
    """How the surplus of a resource is divided among sibling queues."""

    EXACT = "exact"
    """By weight without rounding; deserved amounts shrink when there is less than their sum."""

    WHOLE_UNITS = "whole-units"
    """Rounded down to whole units, remainders handed out last; deserved amounts never shrink."""


class ComparedResources(StrEnum):
    """Which resources count when a queue is compared with its deserved amount or fair share."""

    REQUESTED = "requested"
    """Only the resources that the gang requests."""

    ALL = "all"
    """All resources, including those that the gang does not request."""


class BypassPolicy(StrEnum):
    """Which gangs get idle capacity that is too small for the gang that is first in the order."""

    PREEMPT_FIRST = "in-turn"
    """The first gang, if consolidation, reclaim or preemption can provide the rest."""

    BYPASS_FIRST = "who-fits"
    """Later gangs that fit; only after these may any gang evict others."""


class CountedDemand(StrEnum):
    """Which pending requests count as demand of their queue."""

    FEASIBLE = "feasible"
    """Only requests that the nodes could serve if they were empty.

    Nor do pods that no node can ever hold keep their gang from starting with others.
    """

    ALL = "all"
    """All requests, including those that no node can ever serve."""


class VictimPreference(StrEnum):
    """The preferred victims of a preemptor, of those with the lowest priority that suffices."""

    FEWEST = "fewest"
    """The fewest gangs, then the fewest pods, that a search node by node finds."""

    YOUNGEST = "youngest"
    """Elastic pods, then the youngest gangs, wherever they run."""


class FairnessRules(Struct, frozen=True, kw_only=True):
    """The fairness rules of one cycle. Raises ValueError for values outside their range.

    ``usage_weight`` is the k of time-aware fair share: how far past usage lowers a queue's claim on
    surplus (0: not at all). A larger ``saturation_multiplier`` makes reclaim more reluctant.
    Default min runtimes, in seconds, are for queues that neither have nor inherit one.
    ``mig_slices_per_gpu``: for MIG devices of a device plugin; KAI counts every slice as a GPU.
    ``relocates_ownerless``: whether consolidation evicts pods without an owner, which nothing
    creates again.
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
    counted_demand: CountedDemand = CountedDemand.FEASIBLE
    relocates_ownerless: bool = False

    def __post_init__(self) -> None:
        lowest = {
            "usage_weight": 0.0,
            "saturation_multiplier": 1.0,
            "default_preempt_min_runtime": 0.0,
            "default_reclaim_min_runtime": 0.0,
            "mig_slices_per_gpu": 1.0,
        }
        for name, bound in lowest.items():
            # Not `<`: this form also rejects NaN.
            if not getattr(self, name) >= bound:
                raise ValueError(f"{name} is {getattr(self, name)}, must be at least {bound}")


NATIVE = FairnessRules()
KAI = FairnessRules(
    division=Division.WHOLE_UNITS,
    compared_resources=ComparedResources.ALL,
    bypass_policy=BypassPolicy.BYPASS_FIRST,
    victim_preference=VictimPreference.YOUNGEST,
    mig_slices_per_gpu=1.0,
    counted_demand=CountedDemand.ALL,
    relocates_ownerless=True,
)
PROFILES = {Profile.NATIVE: NATIVE, Profile.KAI: KAI}
