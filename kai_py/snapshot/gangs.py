"""Gangs as a cycle sees them: the tree, the members in order, and what they are charged.

A gang's pods are kept in the order in which they are placed: explicit order first, then creation,
then name. Its queue is a name; the policy checks whether that queue exists.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from functools import cached_property

from msgspec import Struct

from kai_py.api.gpu_share import SharedGpu
from kai_py.api.queue import ADMISSION_GATE
from kai_py.api.references import ClaimRef, GroupRef, PodRef
from kai_py.grouping.gang import FailureLimit, Owner, Subgroup, is_satisfied, needed_leaves
from kai_py.grouping.gang_settings import DEFAULT_SETTINGS, GangSettings
from kai_py.snapshot.accounting import GPU, total
from kai_py.snapshot.missing_objects import MissingObject
from kai_py.snapshot.numa_alignment import ZoneAmounts
from kai_py.snapshot.pod_failures import FailedPods, NodeRefusal
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.volume_requirements import Attachment

Charge = Mapping[str, float]
"""What something costs its queue, by quota resource: ``gpu`` devices, ``cpu`` millicores, …"""

NOT_CHARGED: Charge = {}
"""The charge of a pod with which its queue is not charged."""

JointRequest = tuple[int, int, frozenset[tuple[str, float]]]
"""A number of pods that start together: of which shape, how many, and the charge of each."""


class PodState(IntEnum):
    """The state of a member; finished pods leave their gang.

    An *expected* pod does not exist yet: it is a placeholder for one that its framework creates.
    """

    GATED = 0
    PENDING = 1
    BOUND = 2
    RELEASING = 3
    EXPECTED = 4


class GroupReservation(Struct, frozen=True):
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
    """A pod of a gang."""

    pod: PodRef
    shape: Shape
    subgroup: str
    state: PodState
    node: str
    """Set while the pod occupies one."""
    nominated: str
    """The node that is reserved for it, or ""."""
    priority: int
    created: float
    bound_since: float
    charge: Charge
    labels: Mapping[str, str] = {}
    """Its labels, by which rules between pods select it."""
    claims: tuple[ClaimRef, ...] = ()
    """In the order of ``shape.claims``, then that of its extended resources."""
    unready_claims: tuple[ClaimRef, ...] = ()
    """Claims that it names and cannot use, as they are being deleted or are another pod's."""
    gpus: tuple[SharedGpu, ...] = ()
    """Shared GPUs it has a part of; a pending pod: those named by labels of an earlier attempt."""
    volumes_to_provision: tuple[str, ...] = ()
    """Volume claims whose volumes are created for the node that it gets."""
    unbound_volume_claims: tuple[ClaimRef, ...] = ()
    """Claims that get an existing volume, in the order of ``shape.volumes.volume_requests``."""
    attachments: tuple[Attachment, ...] = ()
    """Volumes that drivers attach to its node."""
    numa_zones: ZoneAmounts = ()
    """The amounts that it got of each NUMA zone, if its node reports them."""
    order: int = 0
    may_preempt: bool = True
    waiting_for: str = ""
    """A sentence: what must happen first."""
    missing: MissingObject | None = None
    """The object that it waits for, if that does not exist."""
    problem: str = ""
    """A sentence: what is wrong with the pod itself."""
    stuck_terminating: bool = False
    """It should have been gone long ago."""
    lingering: bool = False
    """It is terminating and charged until it is gone: no scheduler evicted it, or it is overdue."""
    overdue: bool = False
    """It takes longer to end than pods do."""
    gates: tuple[str, ...] = ()
    """Its scheduling gates."""
    group_reservation: GroupReservation | None = None
    """Its claims that are reserved for its PodGroup."""
    failure_limits: tuple[FailureLimit, ...] = ()
    """How many evictions the workloads that own it survive."""
    is_owned: bool = True
    """Whether an object owns it, which creates it again once it is evicted."""
    workloads: tuple[tuple[str, str], ...] = ()
    """Kind and name of each of its owners, the nearest first."""
    relies_on: tuple[JoinedClaim, ...] = ()
    """Claims that it shares and that another pod is charged with."""
    owes: tuple[JoinedClaim, ...] = ()
    """In a request, those of them that its queue does not count yet."""
    disruption: str = ""
    """The reason of its condition DisruptionTarget, of a pod that is ended from outside."""
    checkpoint_by: float | None = None
    """Until when it was asked to save its work, seconds since the epoch."""
    checkpointed: bool = False
    """Whether it says that it has."""
    claimed_amounts: Mapping[str, float] = {}
    """What its claims take of its node beside its requests, in row units."""
    queue: str = ""
    """The queue that its own objects name, which may not be the queue of its gang."""

    @property
    def charged_gpus(self) -> float:
        """GPUs that its queue is charged with; parts of shared ones count as fractions."""
        return self.charge.get(GPU, 0.0)

    @property
    def claimed_gpus(self) -> float:
        """How many of ``charged_gpus`` are devices of claims: all, or none."""
        return self.charge.get(GPU, 0.0) if self.claims else 0.0

    @property
    def gated_by_us_only(self) -> bool:
        """Whether our scheduling gate is the only one that it has."""
        return self.gates == (ADMISSION_GATE,)


class Gang(Struct, frozen=True, dict=True):
    """Pods placed all-or-nothing, and the queue that is charged with them. Times are in seconds."""

    key: str
    owner: Owner
    queue: str
    tree: Subgroup
    members: tuple[Member, ...]
    priority: int
    preemptible: bool
    may_preempt: bool
    created: float
    settings: GangSettings = DEFAULT_SETTINGS
    """As its group object or annotations give them; what its pods decide, too, is above."""
    semi_preemptible: bool = False
    """Preemptible except for minMember pods of each leaf that is needed."""
    suspend: bool | None = None
    """Whether its Job is suspended when all of it is evicted; None is as configured."""
    total_pods: int = 0
    problem: str = ""
    owner_unknown: bool = False
    """Its ``problem`` is that its owner is not known yet."""
    succeeded: int = 0
    """Pods that have succeeded, in subgroups that are still needed."""
    stale_since: float | None = None
    """When it was first seen to run below minMember."""
    expected_runtime: float | None = None
    """Seconds for which its pods run; None where that is unknown."""
    starts_in_part: bool = False
    """Some of its pods are created once others run."""
    placeholders: tuple[Member, ...] = ()
    """For those that do not exist yet; they are not among its ``members``."""
    charged: bool = True
    """Whether its queue is charged with it; not where its namespace may not use that queue."""
    rule: str = ""
    """The rule by which these pods are a gang, as a text for people."""
    refusals: tuple[NodeRefusal, ...] = ()
    """Nodes whose kubelets refused pods of it, and which are left out for a while."""
    uncounted_failures: FailedPods = ()
    """Those that their Jobs do not count yet."""
    outgrown: bool = False
    """A pod of it that is protected from preemption was resized above what it was admitted with."""
    admitted_as_evictable: bool = False
    """It was admitted without failure limits that hold: those it has by now protect nothing."""
    recorded_start: float = 0.0
    """When it started, by what its bound pods were admitted with; 0 if that does not say."""

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
    def joint_request(self) -> "JointRequest | None":
        """Its request while none of its pods has started; None if more than that decides about it.

        That is so with pods of several shapes, elastic pods, topology constraints and the like.
        """
        pods, first = self.members, self.members[0] if self.members else None
        if first is None or self.placeholders or self.settings.gang_affinity or self.refusals:
            return None
        if self.tree.min_members != len(pods) or not self.tree.is_unconstrained_leaf:
            return None
        for pod in pods:
            if pod.shape.number != first.shape.number or pod.charge is not first.charge:
                return None
            if pod.state is not PodState.PENDING or pod.waiting_for or pod.relies_on:
                return None
        return first.shape.number, len(pods), frozenset(first.charge.items())

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
        """What its bound and lingering pods cost."""
        return _total_charge((*self.bound, *self.lingering))

    @property
    def leaving(self) -> Charge:
        """What its terminating pods cost that are not overdue: it will soon be free."""
        return _total_charge([m for m in self.lingering if not m.overdue])

    @property
    def non_preemptible(self) -> Charge:
        """What its bound and lingering pods cost that are not preemptible."""
        if not self.semi_preemptible:
            return {} if self.preemptible else self.allocated
        charged = (*self.bound, *self.lingering)
        return _total_charge([m for m in charged if self.is_non_preemptible(m)])

    @property
    def yields_in_queue(self) -> bool:
        """Whether all of it may be evicted for gangs of its queue with a higher priority."""
        return self.preemptible and not self.semi_preemptible

    def is_non_preemptible(self, member: Member) -> bool:
        """Whether the pod cannot be preempted once it is bound."""
        if not self.semi_preemptible:
            return not self.preemptible
        return member.state == PodState.EXPECTED or member.pod.uid in self._min_member_set

    def are_non_preemptible(self, members: Sequence[Member]) -> list[bool]:
        """``is_non_preemptible`` of each of the pods."""
        if not self.semi_preemptible:
            return [not self.preemptible] * len(members)
        return [*map(self.is_non_preemptible, members)]

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
        most = len(self.members) + sum(len(uids) for _, uids in self.uncounted_failures)
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
        """When it started, if any pod is bound; else 0.

        That is when the first of the bound pods was bound, or what these were admitted with: pods
        that are replaced one after the other do not start it again.
        """
        first = min((m.bound_since for m in self.bound), default=0.0)
        return min(first, self.recorded_start) if self.recorded_start else first

    @cached_property
    def last_bound(self) -> float:
        """When the last of the bound pods was bound; 0 when none is."""
        return max((m.bound_since for m in self.bound), default=0.0)

    @property
    def waiting_since(self) -> float:
        """When it began to wait: pods created after an eviction are younger than the gang."""
        return max(self.created, min((m.created for m in self.pending), default=self.created))

    def staleness_grace(self, default: float) -> float:
        """How long it may run below minMember (negative: forever); ``default``: as configured."""
        asked = self.settings.staleness_grace
        return default if asked is None else asked

    @property
    def preempts_from(self) -> float:
        """When its preemption delay has passed: since it was created, or last lost a pod."""
        last = self.created if self.settings.last_evicted is None else self.settings.last_evicted
        return max(self.created, last) + self.settings.preemption_delay

    def counts(self, *states: PodState) -> dict[str, int]:
        """Pods per leaf in any of ``states``."""
        return counts_by_leaf([member for member in self.members if member.state in states])

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
    """What the pods cost together; for a single pod its own charge, without a copy."""
    return members[0].charge if len(members) == 1 else total([m.charge for m in members])


def counts_by_leaf(members: Iterable[Member]) -> dict[str, int]:
    """How many of the pods each leaf has; leaves without any are left out."""
    counts: dict[str, int] = {}
    for member in members:
        counts[member.subgroup] = counts.get(member.subgroup, 0) + 1
    return counts
