"""The snapshot: the cluster at one instant, immutable. Policies see nothing else.

Arrays are read-only views; ``used`` includes pods that are terminating, ``releasing`` is their part
of it. A pod that is assumed (its binding is being written) counts as bound.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

from msgspec import Struct, field

from kai_py.api.references import ClaimRef, PodRef
from kai_py.snapshot.available_volumes import AvailableVolume
from kai_py.snapshot.device_objects import DeviceObjects
from kai_py.snapshot.gang_changes import NOTHING_KNOWN, GangChanges
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.nodes import NodeColumns
from kai_py.snapshot.quarantine import InvalidObject
from kai_py.snapshot.resources import Floats, ResourceIndex
from kai_py.snapshot.shape import HostPort
from kai_py.snapshot.shared_gpus import GpuSharing
from kai_py.snapshot.tables.assumptions import NominatedNode
from kai_py.snapshot.tables.budgets import DisruptionBudget
from kai_py.snapshot.tables.ended_pods import ReleasableClaim
from kai_py.snapshot.tables.known_names import MisnamedScheduler, NamesByScope
from kai_py.snapshot.tables.numa import NumaNode
from kai_py.snapshot.tables.pod_rules import PodRuleIndex
from kai_py.snapshot.tables.queues import QueueInfo
from kai_py.snapshot.tables.volumes import NodeStorageCapacity
from kai_py.snapshot.volume_requirements import Attachment, Disk


class IgnoredMarkers(Struct, frozen=True):
    """A waiting pod of ``gang`` that names other groups, or another queue, by ``markers``."""

    pod: PodRef
    gang: str
    markers: tuple[str, ...]


class Snapshot(Struct, frozen=True, dict=True):
    """The cluster at ``now``. Rows and positions are those of ``resources`` and ``nodes``."""

    now: float
    """Seconds since the epoch."""
    resources: ResourceIndex
    nodes: NodeColumns
    used: Floats
    """(resources, nodes) float64, in the units of ``resources``."""
    releasing: Floats
    """(resources, nodes) the part of ``used`` that terminating pods have."""
    gangs: Mapping[str, Gang]
    pending: tuple[str, ...]
    """Keys of gangs with pods to place."""
    queues: tuple[QueueInfo, ...]
    queue_allocated: Mapping[str, Mapping[str, float]]
    """Queue name to what its bound and lingering pods cost."""
    queue_requested: Mapping[str, Mapping[str, float]]
    """Queue name to what its bound, lingering and pending pods cost."""
    queue_non_preemptible: Mapping[str, Mapping[str, float]]
    """The part of ``queue_allocated`` that cannot be preempted."""
    queue_leaving: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """The part of ``queue_allocated`` of lingering pods that are not overdue."""
    gang_changes: GangChanges = NOTHING_KNOWN
    """How ``gangs`` differ from those of the last snapshot."""
    below_min_members: tuple[str, ...] = ()
    """Keys of gangs that run below minMember."""
    started_in_part: tuple[str, ...] = ()
    """Keys of gangs that have started while some of their pods are created once others run."""
    choosing_spot: tuple[str, ...] = ()
    """Keys of gangs whose workloads say whether they go to spot nodes."""
    sharing: tuple[str, ...] = ()
    """Keys of gangs with pods that rely on claims that pods of other gangs are charged with."""
    disrupted: Mapping[str, str] = field(default_factory=dict)
    """Gangs that fell below minMember as pods were ended from outside, and what happened."""
    completed: frozenset[str] = frozenset()
    """Pods, by uid, that ran to their end within the last minute."""
    deleted_nodes: frozenset[str] = frozenset()
    """Nodes that were deleted with pods on them."""
    rebooted: Mapping[str, str] = field(default_factory=dict)
    """Pods, by uid, whose node was rebooted under them."""
    refused: tuple[str, ...] = ()
    """Keys of gangs for which nodes are left out, as kubelets refused their pods."""
    devices: DeviceObjects = field(default_factory=DeviceObjects)
    next_device: float = math.inf
    """When the next device that failed may be allocated again, inf if none did."""
    next_overdue: float = math.inf
    """When the next terminating pod takes longer than usual, or is stuck."""
    unhealthy: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By gang, the uids of pods that lost a device, each with its name."""
    starting: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By gang, the uids of pods that are not ready on their nodes, each with the reason or ""."""
    host_ports: Mapping[int, tuple[tuple[HostPort, bool], ...]] = field(default_factory=dict)
    """Node row to the ports in use on it, and whether their pod is terminating."""
    disks: Mapping[int, tuple[tuple[Disk, bool], ...]] = field(default_factory=dict)
    """Node row to the disks mounted on it without a claim, and whether their pod terminates."""
    attached: Mapping[int, tuple[tuple[Attachment, bool], ...]] = field(default_factory=dict)
    """Node row to the volumes attached to it, and whether their pod is terminating."""
    attach_limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Node name and driver to how many volumes the node takes."""
    attachments: Mapping[str, tuple[Attachment, ...]] = field(default_factory=dict)
    """Node name to the volumes that are attached to it."""
    exclusive_claims: tuple[tuple[str, bool], ...] = ()
    """Volume claims whose only pod is on a node."""
    available_volumes: tuple[AvailableVolume, ...] = ()
    """Existing volumes without a claim, the smallest first."""
    storage_capacities: tuple[NodeStorageCapacity, ...] = ()
    """The storage capacities that drivers report: how large a volume may be, and where."""
    nominations: Mapping[str, NominatedNode] = field(default_factory=dict)
    """Pod uid to the node reserved for it."""
    in_backoff: Mapping[str, str] = field(default_factory=dict)
    """Gangs that are not placed now, and why."""
    refused_evictions: frozenset[str] = frozenset()
    """Uids of pods that are not evicted now, as the API server has just refused it."""
    ignored_markers: tuple[IgnoredMarkers, ...] = ()
    terminating: tuple[Member, ...] = ()
    """Our pods that are terminating."""
    releasable_claims: tuple[ReleasableClaim, ...] = ()
    """Claims whose devices are about to be free."""
    group_claim_users: Mapping[ClaimRef, frozenset[str]] = field(default_factory=dict)
    """Pods on nodes by the claim of their PodGroup; a claim without users is about to be
    released."""
    pod_rules: PodRuleIndex = field(default_factory=PodRuleIndex)
    """Pods on nodes as far as rules between pods count them."""
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels by name, for such rules."""
    topologies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Name to node label keys, coarse to fine."""
    known_names: NamesByScope = field(default_factory=dict)
    """Names of objects that pods may refer to."""
    gpu_sharing: GpuSharing = field(default_factory=GpuSharing)
    """GPUs that pods share; each counts in ``used`` as one whole GPU."""
    budgets: tuple[DisruptionBudget, ...] = ()
    """Disruption budgets that protect pods."""
    numa: Mapping[str, NumaNode] = field(default_factory=dict)
    """By name, the nodes that report NUMA zones."""
    invalid_objects: tuple[InvalidObject, ...] = ()
    """Objects that could not be processed, in full or in part."""
    misnamed_schedulers: tuple[MisnamedScheduler, ...] = ()
    """Pods that are no scheduler's, as they name almost this one."""

    @cached_property
    def has_releasing(self) -> bool:
        """Whether any terminating pod occupies part of a node. O(nodes)."""
        return bool(self.releasing.any())

    @cached_property
    def most_idle(self) -> Sequence[float]:
        """(resources,) the most of each resource that is idle on any one node. O(nodes)."""
        return _most(self.nodes.allocatable - self.used)

    @cached_property
    def most_future_idle(self) -> Sequence[float]:
        """(resources,) the most of each resource that is future idle on any one node. O(nodes)."""
        if not self.has_releasing:
            return self.most_idle
        return _most(self.nodes.allocatable - self.used + self.releasing)

    @cached_property
    def claim_holders(self) -> Mapping[str, tuple[Gang, Member]]:
        """The pods that have claims by uid, and their gangs. O(pods)."""
        return {
            member.pod.uid: (gang, member)
            for gang in self.gangs.values()
            for member in gang.members
            if member.claims
        }


def _most(free: Floats) -> Sequence[float]:
    listed: list[float] = free.max(axis=1, initial=-math.inf).tolist()
    return listed
