"""The plan of one cycle, as data: every decision and its reason, to print, store, diff or replay.

``commit`` carries it out; ``kai-py run --dry-run``, what-if and the simulator only read it.
Decisions are listed in the order in which they were made, which is the order in which to carry them
out.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from kai_py.api.gpu_share import GpuShare, SharedGpu
from kai_py.api.records.core import ContainerExtendedResourceRequest
from kai_py.api.records.resource import (
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from kai_py.api.references import ClaimRef, PodRef
from kai_py.grouping.admitted import Terms, minimums_of, preemptibility_of
from kai_py.grouping.gang import Owner, Subgroup
from kai_py.plan.observations import (
    AvoidedDevice,
    AvoidedNode,
    CapacityHold,
    CheckpointRequest,
    GangAtRisk,
    GangStarting,
    ObjectProblem,
    QueueShare,
    SetAside,
)
from kai_py.snapshot.gangs import GroupReservation


class Action(StrEnum):
    """The action of the cycle that made a decision."""

    ALLOCATE = "allocate"
    CONSOLIDATE = "consolidate"
    RECLAIM = "reclaim"
    PREEMPT = "preempt"
    STALE = "stale"
    DEPARTURE = "departure"
    """Pods leave a node that is about to go, or was lost."""


class ProtectionRule(StrEnum):
    """The rule by which a queue keeps capacity that a pending gang would need."""

    FAIR_SHARE = "ReclaimerAboveFairShare"
    """``queue``, the gang's own, would have ``value`` allocated, above its fair share ``bound``."""
    DESERVED = "NonPreemptibleAboveDeserved"
    """``queue``, the gang's own, would have ``value`` allocated to non-preemptible pods."""
    PRIORITY = "Priority"
    """The lowest priority in the gang's own queue is ``value``, not below the gang's ``bound``."""
    WITHIN_SHARE = "WithinFairShare"
    """``queue`` has ``value`` allocated, which is not above ``bound``."""
    TOO_LITTLE_ABOVE_SHARE = "TooLittleAboveFairShare"
    """``queue`` has ``value`` allocated, above ``bound``, but the excess does not suffice."""
    MIN_RUNTIME = "MinRuntime"
    """Protected until ``bound``; now is ``value`` (both in seconds since the epoch)."""
    EVICTION_LIMITS = "EvictionLimits"
    """A PodDisruptionBudget, ``maxEvictionsPerHour``, the eviction cooldown, or that the workload
    of the pods would fail for good."""


class Stage(StrEnum):
    """The first stage that keeps a gang pending; its value is also the metric label."""

    INVALID = "Invalid"
    QUEUE_NOT_FOUND = "QueueNotFound"
    SCHEDULING_GATED = "SchedulingGated"
    BELOW_MIN_MEMBER = "BelowMinMember"
    CLAIMS_NOT_READY = "ClaimsNotReady"
    QUEUE_MAX = "QueueMax"
    NON_PREEMPTIBLE = "NonPreemptibleOverDeserved"
    NODE_FILTERS = "NodeFilters"
    RESOURCES = "Resources"
    DEVICES = "Devices"
    TOPOLOGY = "Topology"
    FAIR_SHARE = "FairShare"
    VICTIMS_PROTECTED = "VictimsProtected"
    EVICTION_LIMITS = "EvictionLimits"
    RESERVED = "CapacityReserved"
    NOMINATED = "Nominated"
    SEARCH_BUDGET = "SearchBudget"
    SCHEDULER_ERROR = "SchedulerError"
    BACKOFF = "Backoff"
    PROVISIONING = "ProvisioningRequested"
    SCALE_UP_INEFFECTIVE = "ScaleUpIneffective"
    NOT_READY = "NotReady"
    """It was started and did not get ready in time."""


SHORT_OF_CAPACITY = frozenset(
    {
        Stage.NODE_FILTERS,
        Stage.RESOURCES,
        Stage.DEVICES,
        Stage.TOPOLOGY,
        Stage.FAIR_SHARE,
        Stage.VICTIMS_PROTECTED,
        Stage.EVICTION_LIMITS,
        Stage.RESERVED,
    }
)
"""Stages of gangs that may start but lack capacity, so that more nodes could help."""

CAPACITY_MAY_HELP = SHORT_OF_CAPACITY | {
    Stage.NOMINATED,
    Stage.SEARCH_BUDGET,
    Stage.BACKOFF,
    Stage.SCHEDULER_ERROR,
}
"""Stages at which more capacity, or fewer other gangs, may help."""


class ClaimAllocation(Struct, frozen=True):
    """Devices allocated to a claim that had none; written to its status as is."""

    claim: ClaimRef
    allocation: AllocationResult


class ClaimToCreate(Struct, frozen=True):
    """A claim for a pod's extended resources (KEP-5004): ``claim`` as it will be in the end.

    ``uses`` goes to the pod's ``status.extendedResourceClaimStatus``.
    """

    claim: ResourceClaim
    uses: tuple[ContainerExtendedResourceRequest, ...]


class NodeClaim(Struct, frozen=True):
    """A claim that takes resources of the node (KEP-5517); ``entry``: its name within the pod.

    ``status``: for ``status.nodeAllocatableResourceClaimStatuses`` of the pod, without containers.
    """

    entry: str
    status: Mapping[str, Any]


class Placement(Struct, frozen=True):
    """A pod assigned to a node."""

    pod: PodRef
    node: str
    allocate: tuple[ClaimAllocation, ...] = ()
    """Claims whose first user is this pod."""
    reserve: tuple[ClaimRef, ...] = ()
    """Every claim of the pod; each must list it, or its group, in ``status.reservedFor`` before
    it is bound."""
    gpus: tuple[SharedGpu, ...] = ()
    """The shared GPUs of which it gets a part."""
    former_gpus: tuple[SharedGpu, ...] = ()
    """The shared GPUs that its labels name now."""
    create_claim: ClaimToCreate | None = None
    """A claim to be created for the pod first."""
    provision: tuple[str, ...] = ()
    """Volume claims to be provisioned for the node."""
    group_reservation: GroupReservation | None = None
    """Claims that are reserved for the pod's group instead of the pod."""
    volumes: tuple[tuple[ClaimRef, str], ...] = ()
    """Volume claims and the volume to which each is bound."""
    subgroup: str = ""
    """Its leaf in its gang."""
    gpu_share: GpuShare | None = None
    """The part that it gets of each of ``gpus``."""
    node_claims: tuple[NodeClaim, ...] = ()
    """Claims that take resources of the node."""
    node_amounts: Mapping[str, float] = {}
    """What these take on top of the pod's requests, in row units."""
    limits: Mapping[str, int] = {}
    requests: Mapping[str, float] = {}
    """Of a protected pod, what a resize could change; as in ``Terms``."""

    def consumer(self, claim: ClaimRef) -> ResourceClaimConsumerReference:
        """The consumer for which a claim of the pod is reserved: the pod, or its group."""
        reservation = self.group_reservation
        if reservation is None or claim not in reservation.claims:
            return ResourceClaimConsumerReference(
                resource="pods", name=self.pod.name, uid=self.pod.uid
            )
        group = reservation.group
        return ResourceClaimConsumerReference(
            api_group="scheduling.k8s.io", resource="podgroups", name=group.name, uid=group.uid
        )


class GangPlacement(Struct, frozen=True):
    """Pods of one gang that are bound together, all or none.

    ``resume``: they are placeholders for the pods of a suspended Job, ``owner``, which is resumed.
    The other fields are those of the gang; ``expected``: its pods that do not exist yet, by leaf.
    ``charge``: what ``pods`` cost their queue, by quota resource, in quota units. ``started``: when
    the gang started, seconds since the epoch; 0 if it had no pods on nodes.
    """

    gang: str
    owner: Owner
    queue: str
    action: Action
    pods: tuple[Placement, ...]
    resume: bool = False
    tree: Subgroup | None = None
    priority: int = 0
    preemptible: bool = True
    semi_preemptible: bool = False
    expected_runtime: float | None = None
    expected: tuple[tuple[str, int], ...] = ()
    fragile: bool = False
    charge: Mapping[str, float] = {}
    started: float = 0.0

    def terms(self, placement: Placement) -> Terms:
        """What one of the pods is admitted with."""
        minimums: dict[str, int] = {}
        if self.tree is not None:
            expected = dict(self.expected).get(placement.subgroup, 0)
            minimums = minimums_of(self.tree, placement.subgroup, expected)
        return Terms(
            queue=self.queue,
            priority=self.priority,
            preemptibility=preemptibility_of(
                preemptible=self.preemptible, semi_preemptible=self.semi_preemptible
            ),
            minimums=minimums,
            expected_runtime=self.expected_runtime,
            fragile=self.fragile,
            limits=dict(placement.limits) if self.fragile else None,
            share=placement.gpu_share if placement.gpus else None,
            gpus={gpu.group: gpu.index for gpu in placement.gpus},
            requests=dict(placement.requests),
            started=self.started or None,
        )


class Nomination(Struct, frozen=True):
    """A pod nominated to a node on which pods are still terminating."""

    gang: str
    pod: PodRef
    node: str


class Admission(Struct, frozen=True):
    """Pods of a gang that fit their queue's quota: our scheduling gate is removed from them."""

    gang: str
    pods: tuple[PodRef, ...]


class Eviction(Struct, frozen=True):
    """A pod to be evicted; ``reason``: one sentence with the beneficiary and the rule.

    ``relocated_to``: the node on which the pod is placed again; empty when there is none.
    ``suspend``: its Job, ``owner``, is suspended, which ends all of its pods. ``effect``: what that
    does to its workload, as a clause.
    """

    pod: PodRef
    node: str
    gang: str
    owner: Owner
    queue: str
    action: Action
    preemptor: str
    preemptor_queue: str
    reason: str
    relocated_to: str = ""
    suspend: bool = False
    effect: str = ""


class Shortage(Struct, frozen=True):
    """``found`` of ``needed`` pods fit; ``causes``: counts of nodes by what they lack.

    ``pod``: the first that does not fit, None where the gang has no other. ``subgroup``: that
    pod's, empty where the gang has none; ``min_members``: how many pods the subgroup needs, 0 where
    the gang starts without this pod or with one pod of each subgroup. ``others``: pods of the gang
    that were placed before these.
    """

    found: int
    needed: int
    causes: tuple[str, ...]
    pod: PodRef | None = None
    subgroup: str = ""
    min_members: int = 0
    others: int = 0


class Protection(Struct, frozen=True):
    """A queue whose pods stay although a gang needs their capacity, with the numbers compared.

    Amounts are in GPUs, CPU cores or GB.
    """

    rule: ProtectionRule
    queue: str
    message: str
    value: float = 0.0
    bound: float = 0.0


class Unplaced(Struct, frozen=True):
    """A gang that stays pending, with the stage that stops it and one sentence of explanation.

    ``marked``: whether the condition of its pods says so, which autoscalers read. ``shortage``:
    what was insufficient. ``protections``: the queues that keep the capacity, and why. ``elastic``:
    those of ``pods`` without which the gang starts. ``ageing_points``: priority gained by waiting.
    ``is_infeasible``: it could not run even if nothing else did, as nodes and queues are now.
    ``without_advice``: the message for KAI's wording, where it has no advice; else "".
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
    is_infeasible: bool = False
    without_advice: str = ""


class Plan(Struct, frozen=True):
    """Everything that one cycle decided.

    ``set_aside``: the gangs that failed in this cycle; ``failed_extensions``: the scores and
    actions of installed packages that did. ``holds``: of gangs that started in part.
    ``promised_nodes``: on which capacity is nominated, held or reserved, in order.
    """

    placements: tuple[GangPlacement, ...] = ()
    nominations: tuple[Nomination, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    unplaced: tuple[Unplaced, ...] = ()
    queues: tuple[QueueShare, ...] = ()
    problems: tuple[ObjectProblem, ...] = ()
    admissions: tuple[Admission, ...] = ()
    holds: tuple[CapacityHold, ...] = ()
    checkpoints: tuple[CheckpointRequest, ...] = ()
    at_risk: tuple[GangAtRisk, ...] = ()
    promised_nodes: tuple[str, ...] = ()
    starting: tuple[GangStarting, ...] = ()
    avoided_nodes: tuple[AvoidedNode, ...] = ()
    avoided_devices: tuple[AvoidedDevice, ...] = ()
    set_aside: tuple[SetAside, ...] = ()
    failed_extensions: tuple[SetAside, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to carry out."""
        return not (self.placements or self.nominations or self.evictions or self.admissions)
