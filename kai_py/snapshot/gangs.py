"""Gangs as a cycle sees them: the tree, the members in order, and what they are charged.

A gang's pods are kept in the order in which they are placed: explicit order first, then creation,
then name. Its queue is a name; whether that queue exists is the policy's question.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

from msgspec import Struct

from kai_py.api.gpu_share import SharedGpu
from kai_py.api.node_departures import DepartureTreatment
from kai_py.api.references import ClaimRef, GroupRef, PodRef
from kai_py.api.spot import SpotUse
from kai_py.grouping.gang import (
    FailureLimit,
    Owner,
    Subgroup,
    is_satisfied,
    needed_leaves,
)
from kai_py.grouping.gang_settings import GangAffinity, Wording
from kai_py.snapshot.accounting import GPU, total
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.tables.known_names import MissingObject
from kai_py.snapshot.tables.numa import ZoneAmounts
from kai_py.snapshot.tables.refusals import NodeRefusal
from kai_py.snapshot.tables.volumes import Attachment

Charge = Mapping[str, float]
"""What something costs its queue, by quota resource: ``gpu`` devices, ``cpu`` millicores, …"""

NOT_CHARGED: Charge = {}
"""The charge of a pod with which its queue is not charged."""


class PodState(IntEnum):
    """The state of a member; finished pods leave their gang.

    An *expected* pod does not exist yet: it is a placeholder for one that its framework creates.
    """

    GATED = 0
    PENDING = 1
    BOUND = 2
    RELEASING = 3
    EXPECTED = 4


@dataclass(frozen=True, slots=True)
class GroupReservation:
    """Claims that are reserved for a group in place of its pods."""

    group: GroupRef
    claims: tuple[ClaimRef, ...]


class JoinedClaim(Struct, frozen=True):
    """A claim that a pod shares, by uid, and the pod that is charged with it.

    ``waits``: that pod is on no node, so another may start before it.
    """

    claim: str
    charged_to: str
    charge: Charge
    waits: bool


class Member(Struct, frozen=True):
    """A pod of a gang.

    ``labels``: as rules between pods see them. ``queue``: as its own objects name it, which may
    differ from that of its gang.
    ``node`` is set while the pod occupies one; ``nominated`` is the node reserved for it or "".
    ``volumes_to_provision``: volume claims whose volumes are created for the node that it gets.
    ``unbound_volume_claims``: volume claims that get an existing volume, in the order of
    ``shape.volumes.volume_requests``. ``attachments``: volumes that drivers attach to its node.
    ``numa_zones``: what it got of which NUMA zone, if its node reports it.
    ``claims`` stand in the order of ``shape.claims``, then that of its extended resources;
    ``group_reservation``: those of them that are its group's.
    ``gpus``: the shared GPUs it has a part of; of a pending pod, those that its labels name from an
    attempt before. ``waiting_for`` and ``problem`` are sentences: what must happen first, and what
    is wrong with the pod itself. ``missing``: the object that it waits for, if that does not exist.
    ``stuck_terminating``: it should have been gone long ago. ``lingering``: it is terminating and
    its queue is charged with it until it is gone, as no scheduler evicted it, or as it is
    ``overdue``: it takes longer to end than pods do.
    ``gated_by_us_only``: our scheduling gate is the only one that it has. ``failure_limits``: how
    many evictions the workloads that own it survive. ``relies_on``: claims that it shares and that
    another pod is charged with; ``owes``: in a request, those of them that its queue does not count
    yet.
    ``checkpoint_by``: until when it was asked to save its work, seconds since the epoch;
    ``checkpointed``: whether it says that it has. ``disruption``: the reason of its condition
    DisruptionTarget, of a pod that is ended from outside. ``claimed_amounts``: what its claims take
    of its node beside its requests, in row units.
    """

    pod: PodRef
    shape: Shape
    subgroup: str
    state: PodState
    node: str
    nominated: str
    priority: int
    created: float
    bound_since: float
    charge: Charge
    labels: Mapping[str, str] = {}
    claims: tuple[ClaimRef, ...] = ()
    gpus: tuple[SharedGpu, ...] = ()
    volumes_to_provision: tuple[str, ...] = ()
    unbound_volume_claims: tuple[ClaimRef, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    numa_zones: ZoneAmounts = ()
    order: int = 0
    may_preempt: bool = True
    waiting_for: str = ""
    missing: MissingObject | None = None
    problem: str = ""
    stuck_terminating: bool = False
    lingering: bool = False
    overdue: bool = False
    gated_by_us_only: bool = False
    group_reservation: GroupReservation | None = None
    failure_limits: tuple[FailureLimit, ...] = ()
    relies_on: tuple[JoinedClaim, ...] = ()
    owes: tuple[JoinedClaim, ...] = ()
    disruption: str = ""
    checkpoint_by: float | None = None
    checkpointed: bool = False
    claimed_amounts: Mapping[str, float] = {}
    queue: str = ""

    @property
    def charged_gpus(self) -> float:
        """GPUs that its queue is charged with; parts of shared ones count as fractions."""
        return self.charge.get(GPU, 0.0)

    @property
    def claimed_gpus(self) -> float:
        """Those of ``charged_gpus`` that are devices of claims: all, or none."""
        return self.charge.get(GPU, 0.0) if self.claims else 0.0

    def queue_beside(self, gang_queue: str) -> str:
        """The queue that its own objects name, if it is not that of its gang; else ""."""
        return "" if self.queue == gang_queue else self.queue


class Gang(Struct, frozen=True, dict=True):
    """Pods placed all-or-nothing, and the queue that is charged with them.

    ``semi_preemptible``: preemptible except for minMember pods of each leaf that is needed.
    ``suspend``: whether its Job is suspended when all of it is evicted; None is as configured.
    ``succeeded`` counts pods that have succeeded. ``stale_since``: when the gang was first seen to
    run below minMember; ``staleness_grace`` (seconds, negative: for ever) is how long it may, by
    default as configured. ``preemption_delay`` (seconds) is how long it waits, from its creation or
    the last eviction of a pod of it, before it may evict others. ``attempts_exhausted``: it wants
    one attempt only and had it. ``mark_unschedulable``: whether its pods get a condition that they
    are unschedulable. ``gang_affinity``: preferred nodes. ``wording``: the API whose words messages
    use. ``expected_runtime`` (seconds): of its pods; None where it is unknown.
    ``checkpoint_interval`` (seconds): how often they save their work; None or 0: never.
    ``ageing`` (seconds): time of waiting that counts as one point of priority; None: as its queue
    says. ``provisioning_class``: of the ProvisioningRequest made while it waits; None: as
    configured. ``owner_unknown``: its ``problem`` is that its owner is not known yet.
    ``starts_in_part``: some of its pods are created once others run; ``placeholders`` stand for
    those that do not exist yet and are not among its ``members``. ``charged``: whether its queue is
    charged with it; not where the gang's namespace may not use that queue. ``rule``: what
    made these pods a gang, as people read it. ``on_departure``: what becomes of it when a node of
    it is about to go, ``checkpoint_grace`` (seconds) how long its pods take to save their work;
    None: as configured. ``spot``: whether its workload goes to spot nodes, ``spot_fallback_after``
    (seconds) how long it waits for them; None: as its queue says. ``restarts_whole``: whether all
    of it restarts when pods that it needs are lost; None: as configured. ``ready_timeout``
    (seconds): by when minMember pods must be ready after its start; None: as its queue says.
    ``refusals``: nodes whose kubelets refused pods of it, and which are left out for a while.
    ``admitted_as_evictable``: its workload had no limits of failed pods, or could be suspended,
    when pods of it were admitted, so that limits which it has by now protect it from no eviction.
    """

    key: str
    owner: Owner
    queue: str
    tree: Subgroup
    members: tuple[Member, ...]
    priority: int
    preemptible: bool
    may_preempt: bool
    created: float
    semi_preemptible: bool = False
    suspend: bool | None = None
    total_pods: int = 0
    problem: str = ""
    owner_unknown: bool = False
    annotations: Mapping[str, str] = {}
    succeeded: int = 0
    stale_since: float | None = None
    staleness_grace: float | None = None
    preemption_delay: float = 0.0
    last_evicted: float | None = None
    attempts_exhausted: bool = False
    mark_unschedulable: bool = True
    wording: Wording = Wording.NATIVE
    gang_affinity: tuple[GangAffinity, ...] = ()
    expected_runtime: float | None = None
    checkpoint_interval: float | None = None
    ageing: float | None = None
    provisioning_class: str | None = None
    starts_in_part: bool = False
    placeholders: tuple[Member, ...] = ()
    charged: bool = True
    rule: str = ""
    on_departure: DepartureTreatment | None = None
    checkpoint_grace: float | None = None
    restarts_whole: bool | None = None
    spot: SpotUse | None = None
    spot_fallback_after: float | None = None
    ready_timeout: float | None = None
    refusals: tuple[NodeRefusal, ...] = ()
    admitted_as_evictable: bool = False

    @cached_property
    def pending(self) -> tuple[Member, ...]:
        """Pods to place, in order."""
        wanted = PodState.PENDING
        return tuple([m for m in self.members if m.state is wanted])

    @cached_property
    def pending_shapes(self) -> Mapping[int, Shape]:
        """The shapes of the pods to place, by number."""
        return {member.shape.number: member.shape for member in self.pending}

    @cached_property
    def common_charge(self) -> Charge | None:
        """What each of the pods to place costs; None where they differ, or there are none."""
        charge = self.pending[0].charge if self.pending else None
        return charge if all(m.charge is charge for m in self.pending) else None

    @cached_property
    def has_our_gate(self) -> bool:
        """Whether a pod is held by our scheduling gate and by nothing else."""
        return any(m.state is PodState.GATED and m.gated_by_us_only for m in self.members)

    @cached_property
    def bound(self) -> tuple[Member, ...]:
        """Pods that are on a node and not terminating."""
        wanted = PodState.BOUND
        return tuple([m for m in self.members if m.state is wanted])

    @cached_property
    def lingering(self) -> tuple[Member, ...]:
        """Pods that are terminating, and charged until they are gone."""
        return tuple([m for m in self.members if m.lingering])

    @cached_property
    def allocated(self) -> Charge:
        """What the bound pods cost, and those that linger."""
        return _total_charge((*self.bound, *self.lingering))

    @property
    def leaving(self) -> Charge:
        """What of ``allocated`` will be free as soon as pods usually end."""
        return _total_charge([m for m in self.lingering if not m.overdue])

    @property
    def non_preemptible(self) -> Charge:
        """What the non-preemptible ones of the bound and lingering pods cost."""
        if not self.semi_preemptible:
            return {} if self.preemptible else self.allocated
        charged = (*self.bound, *self.lingering)
        return _total_charge([m for m in charged if self.is_non_preemptible(m)])

    def is_non_preemptible(self, member: Member) -> bool:
        """Whether the pod cannot be preempted once it is bound."""
        if not self.semi_preemptible:
            return not self.preemptible
        return member.state == PodState.EXPECTED or member.pod.uid in self._min_member_set

    def is_preemptible(self, members: Iterable[Member]) -> bool:
        """Whether all of these pods can be preempted."""
        if not self.semi_preemptible:
            return self.preemptible
        return not any(map(self.is_non_preemptible, members))

    @cached_property
    def _min_member_set(self) -> frozenset[str]:
        """Uids of minMember pods of each leaf that is needed, bound ones before pending ones."""
        running, existing = self.counts(PodState.BOUND), self.counts(*PodState)
        gpus = {member.subgroup: member.charged_gpus for member in self.members}
        missing = dict(needed_leaves(self.tree, running, existing, gpus))
        chosen: list[str] = []
        for member in (*self.bound, *self.pending, *self.members):
            if missing.get(member.subgroup, 0) > 0 and member.pod.uid not in chosen:
                missing[member.subgroup] -= 1
                chosen.append(member.pod.uid)
        return frozenset(chosen)

    @property
    def requested(self) -> Charge:
        """What ``allocated`` and pending pods cost; nothing where the queue is not charged."""
        if not self.charged:
            return {}
        charged = (*self.bound, *self.lingering)
        return _total_charge((*charged, *self.pending)) if self.pending else self.allocated

    @cached_property
    def outlives_all_pods(self) -> bool:
        """Whether no limit of failed pods is exceeded even if every pod is lost."""
        most = len(self.members)
        limits = {id(m.failure_limits): m.failure_limits for m in self.members}
        return all(limit.remaining >= most for each in limits.values() for limit in each)

    @cached_property
    def shares_claims(self) -> bool:
        """Whether a pod relies on the charge of another, of this gang or not."""
        return any(m.relies_on for m in self.members)

    @property
    def shares_with_others(self) -> bool:
        """Whether a pod relies on the charge of a pod of another gang, or of another kind."""
        if not self.shares_claims:
            return False
        own = {m.pod.uid for m in self.members}
        outside = any(j.charged_to not in own for m in self.members for j in m.relies_on)
        return outside or self.semi_preemptible

    @cached_property
    def started(self) -> float:
        """When the first of the bound pods was bound; 0 when none is."""
        return min((m.bound_since for m in self.bound), default=0.0)

    @cached_property
    def last_bound(self) -> float:
        """When the last of the bound pods was bound; 0 when none is."""
        return max((m.bound_since for m in self.bound), default=0.0)

    @property
    def waiting_since(self) -> float:
        """When it began to wait: pods created after an eviction are younger than the gang."""
        return max(self.created, min((m.created for m in self.pending), default=self.created))

    @property
    def preempts_from(self) -> float:
        """When its preemption delay has passed: since it was created, or last lost a pod."""
        last = self.created if self.last_evicted is None else self.last_evicted
        return max(self.created, last) + self.preemption_delay

    def counts(self, *states: PodState) -> dict[str, int]:
        """Pods per leaf in any of ``states``."""
        counted: dict[str, int] = {}
        for member in self.members:
            if member.state in states:
                counted[member.subgroup] = counted.get(member.subgroup, 0) + 1
        return counted

    @cached_property
    def is_satisfied(self) -> bool:
        """Whether the bound pods reach minMember."""
        return is_satisfied(self.tree, self.counts(PodState.BOUND))

    @cached_property
    def can_be_satisfied(self) -> bool:
        """Whether enough pods exist, bound or pending, to reach minMember."""
        return is_satisfied(self.tree, self.counts(PodState.BOUND, PodState.PENDING))

    @cached_property
    def is_complete(self) -> bool:
        """Whether it lacks nothing of its own: enough pods, all valid, and what they wait for."""
        if self.problem or not (self.is_satisfied or self.can_be_satisfied):
            return False
        return not any(m.problem for m in self.members) and not any(
            m.waiting_for for m in self.pending
        )


def _total_charge(members: Sequence[Member]) -> Charge:
    """What the pods cost together; pods of one shape share what they cost, so one needs no copy."""
    return members[0].charge if len(members) == 1 else total([m.charge for m in members])
