"""A plan is data: what one cycle decided, and why. It can be printed, stored, diffed, replayed.

Commit carries it out; ``kai-py run --dry-run``, what-if and the simulator only read it. Decisions
stand in the order in which they were made, which is the order in which they should be carried out.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from msgspec import Struct

from kai_py.api.gpu_share import SharedGpu
from kai_py.api.records.core import ContainerExtendedResourceRequest
from kai_py.api.records.resource import (
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from kai_py.api.references import ClaimRef, PodRef
from kai_py.grouping.gang import Owner
from kai_py.snapshot.gangs import GroupReservation
from kai_py.snapshot.tables.queues import EvictionRecord, QueueProblem, UsageRecord

__all__ = [
    "SHORT_OF_CAPACITY",
    "Action",
    "Admission",
    "ClaimAllocation",
    "ClaimRef",
    "ClaimToCreate",
    "Eviction",
    "GangPlacement",
    "Nomination",
    "ObjectProblem",
    "Placement",
    "Plan",
    "PodRef",
    "Protection",
    "ProtectionRule",
    "QueueShare",
    "Stage",
    "Unplaced",
]


class Action(StrEnum):
    """The action of the cycle that made a decision."""

    ALLOCATE = "allocate"
    CONSOLIDATE = "consolidate"
    RECLAIM = "reclaim"
    PREEMPT = "preempt"
    STALE = "stale"


class ProtectionRule(StrEnum):
    """The rule by which a queue keeps room that a gang waits for."""

    FAIR_SHARE = "ReclaimerAboveFairShare"
    """``queue``, the gang's own, would hold ``value``, more than its fair share ``bound``."""
    DESERVED = "NonPreemptibleAboveDeserved"
    """``queue``, the gang's own, would hold ``value`` that nobody can take back."""
    PRIORITY = "Priority"
    """Inside the gang's queue the least priority is ``value``, not below ``bound``."""
    WITHIN_SHARE = "WithinItsShare"
    """``queue`` holds ``value``, not above ``bound``."""
    TOO_LITTLE_ABOVE_SHARE = "TooLittleAboveItsShare"
    """``queue`` holds ``value``, above ``bound``, but what is above does not suffice."""
    MIN_RUNTIME = "MinRuntime"
    """Safe until ``bound``, now is ``value`` (seconds since the epoch)."""
    EVICTION_LIMITS = "Spared"
    """A disruption budget, an eviction rate or a cooldown."""


class Stage(StrEnum):
    """The first stage that keeps a gang pending; also the metric label."""

    INVALID = "Invalid"
    QUEUE_NOT_FOUND = "QueueNotFound"
    SCHEDULING_GATED = "SchedulingGated"
    MEMBERS_MISSING = "MembersMissing"
    CLAIMS_NOT_READY = "ClaimsNotReady"
    QUEUE_MAX = "QueueMax"
    NON_PREEMPTIBLE = "NonPreemptibleOverDeserved"
    NODE_FILTERS = "NodeFilters"
    RESOURCES = "Resources"
    DEVICES = "Devices"
    TOPOLOGY = "Topology"
    FAIR_SHARE = "FairShare"
    VICTIMS_PROTECTED = "VictimsProtected"
    EVICTION_BUDGET = "EvictionBudget"
    RESERVED = "RoomReserved"
    NOMINATED = "WaitingForRoom"
    SEARCH_BUDGET = "SearchBudget"
    SCHEDULER_ERROR = "SchedulerError"
    BACKOFF = "Backoff"
    PROVISIONING = "ProvisioningRequested"
    SCALE_UP_INEFFECTIVE = "NodesDoNotHelp"


SHORT_OF_CAPACITY = frozenset(
    {
        Stage.NODE_FILTERS,
        Stage.RESOURCES,
        Stage.DEVICES,
        Stage.TOPOLOGY,
        Stage.FAIR_SHARE,
        Stage.VICTIMS_PROTECTED,
        Stage.EVICTION_BUDGET,
        Stage.RESERVED,
    }
)
"""Stages at which a gang may start but finds no room: more nodes could help."""


@dataclass(frozen=True, slots=True)
class ClaimAllocation:
    """Devices found for a claim that has none yet: written to its status as is."""

    claim: ClaimRef
    allocation: AllocationResult


@dataclass(frozen=True, slots=True)
class ClaimToCreate:
    """A claim that serves a pod's extended resources: ``claim`` is what it shall be in the end.

    ``uses`` is told in the pod's status.
    """

    claim: ResourceClaim
    uses: tuple[ContainerExtendedResourceRequest, ...]


class Placement(Struct, frozen=True):
    """A pod goes to a node.

    ``allocate``: claims this pod is the first to use. ``reserve``: every claim the pod uses, in
    which it must be listed in ``status.reservedFor`` before it is bound. ``gpus``: shared GPUs of
    which it gets a part; ``provision``: volume claims to be provisioned for the node;
    ``former_gpus``: what its labels say of them now. ``make``: a claim that
    is made for the pod first. ``for_group``: claims in which its group is listed in its place.
    ``volumes``: volume claims and the volume that each is bound to.
    """

    pod: PodRef
    node: str
    allocate: tuple[ClaimAllocation, ...] = ()
    reserve: tuple[ClaimRef, ...] = ()
    gpus: tuple[SharedGpu, ...] = ()
    former_gpus: tuple[SharedGpu, ...] = ()
    create_claim: ClaimToCreate | None = None
    provision: tuple[str, ...] = ()
    group_reservation: GroupReservation | None = None
    volumes: tuple[tuple[ClaimRef, str], ...] = ()

    def consumer(self, claim: ClaimRef) -> ResourceClaimConsumerReference:
        """Whom a claim of the pod is reserved for."""
        shared = self.group_reservation
        if shared is None or claim not in shared.claims:
            return ResourceClaimConsumerReference(
                resource="pods", name=self.pod.name, uid=self.pod.uid
            )
        group = shared.group
        return ResourceClaimConsumerReference(
            api_group="scheduling.k8s.io", resource="podgroups", name=group.name, uid=group.uid
        )


class GangPlacement(Struct, frozen=True):
    """Pods of one gang that are bound together, all or none.

    ``resume``: they stand in for those of a suspended Job, ``owner``, which is resumed instead.
    """

    gang: str
    owner: Owner
    queue: str
    action: Action
    pods: tuple[Placement, ...]
    resume: bool = False


class Nomination(Struct, frozen=True):
    """A pod is promised room on a node that others are leaving."""

    gang: str
    pod: PodRef
    node: str


class Admission(Struct, frozen=True):
    """Pods of a gang that their queue has room for: our scheduling gate is lifted from them."""

    gang: str
    pods: tuple[PodRef, ...]


class Eviction(Struct, frozen=True):
    """A pod must leave. ``reason`` is one sentence: who takes the room, by which rule.

    ``moved_to``: the node on which there is room for it; empty when there is none. ``suspend``:
    its Job, ``owner``, is suspended, which ends all its pods.
    """

    pod: PodRef
    node: str
    gang: str
    owner: Owner
    queue: str
    action: Action
    beneficiary: str
    beneficiary_queue: str
    reason: str
    relocated_to: str = ""
    suspend: bool = False


@dataclass(frozen=True, slots=True)
class Shortage:
    """Room was found for ``found`` of ``needed`` pods; ``causes`` count nodes by what they lack.

    ``pod``: the first that found none, None where the gang has no other. ``subgroup``: that pod's,
    empty where the gang has none; ``floor``: how many pods that needs, 0 where the gang starts
    without this pod or with one pod of each subgroup. ``others``: pods of the gang that found room
    before these.
    """

    found: int
    needed: int
    causes: tuple[str, ...]
    pod: PodRef | None = None
    subgroup: str = ""
    min_members: int = 0
    others: int = 0


@dataclass(frozen=True, slots=True)
class Protection:
    """A queue whose pods stay although a gang waits for their room, with the numbers compared.

    Amounts are in GPUs, CPU cores or GB.
    """

    rule: ProtectionRule
    queue: str
    message: str
    value: float = 0.0
    bound: float = 0.0


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A gang that stays pending: the stage that stops it and one sentence that says why.

    ``marked``: whether its pods say so in a condition, which autoscalers read. ``shortage``: what
    was too little, where room was. ``protections``: who keeps that room, and why. ``surplus``:
    those of ``pods`` without which the gang starts. ``gained``: points of priority for waiting.
    """

    gang: str
    owner: Owner
    queue: str
    stage: Stage
    message: str
    pods: tuple[PodRef, ...]
    marked: bool = True
    shortage: Shortage | None = None
    protections: tuple[Protection, ...] = ()
    elastic: tuple[PodRef, ...] = ()
    ageing_points: int = 0


@dataclass(frozen=True, slots=True)
class QueueShare:
    """A queue in this cycle, with everything below it; amounts by quota resource, in row units.

    ``non_preemptible`` is the part of ``allocated`` that nobody can take back. ``pending_gangs``
    counts gangs of the queue itself. ``cut`` has, of each guarantee that the cluster is too small
    for, what is left of it. A ``parent`` of "" means root; a queue whose written parent can't be
    used stands as a root too and has a problem that says so.
    """

    queue: str
    deserved: dict[str, float]
    maximum: dict[str, float]
    fair_share: dict[str, float]
    allocated: dict[str, float]
    requested: dict[str, float]
    pending_gangs: int
    problems: tuple[QueueProblem, ...] = ()
    parent: str = ""
    scaled_deserved: dict[str, float] = field(default_factory=dict)
    non_preemptible: dict[str, float] = field(default_factory=dict)
    priority: int = 100
    past_usage: UsageRecord | None = field(default=None, compare=False)
    """Past use up to this cycle, where it is kept."""
    evictions: tuple[EvictionRecord, ...] = ()
    """Past evictions, this cycle's included, where a limit or the cooldown counts them."""


@dataclass(frozen=True, slots=True)
class ObjectProblem:
    """An object of the cluster that cannot be used; ``message`` names the field and says why."""

    object: Owner
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything one cycle decided."""

    placements: tuple[GangPlacement, ...] = ()
    nominations: tuple[Nomination, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    unplaced: tuple[Unplaced, ...] = ()
    queues: tuple[QueueShare, ...] = ()
    problems: tuple[ObjectProblem, ...] = ()
    admissions: tuple[Admission, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to carry out."""
        return not (self.placements or self.nominations or self.evictions or self.admissions)
