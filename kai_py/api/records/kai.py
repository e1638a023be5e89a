"""Records of KAI-Scheduler's own kinds: exactly the fields that we read.

``scheduling.run.ai/v2`` Queue, ``scheduling.run.ai/v2alpha2`` PodGroup and
``kai.scheduler/v1alpha1`` Topology. Durations stay text here: an invalid one is reported as a
problem of its object, which is not left out for it.
"""

from typing import Any

import msgspec

from kai_py.api.records.core import Condition, ObjectMeta
from kai_py.api.records.record import QuantityText, Record

QUEUE_API_VERSION = "scheduling.run.ai/v2"
POD_GROUP_API_VERSION = "scheduling.run.ai/v2alpha2"
UNLIMITED = -1.0
DEFAULT_PRIORITY = 100

Amounts = dict[str, QuantityText]


class KaiShare(Record, frozen=True):
    """The limits of a queue for one resource: -1 is unlimited, unset is none."""

    quota: float = 0.0
    limit: float = 0.0
    over_quota_weight: float = 0.0


class KaiQueueResources(Record, frozen=True):
    """GPUs in devices, CPU in millicores, memory in megabytes of 10**6."""

    gpu: KaiShare = KaiShare()
    cpu: KaiShare = KaiShare()
    memory: KaiShare = KaiShare()


class KaiQueueSpec(Record, frozen=True):
    """queue.spec."""

    display_name: str = ""
    parent_queue: str = ""
    resources: KaiQueueResources = KaiQueueResources()
    priority: int | None = None
    preempt_min_runtime: str | None = None
    reclaim_min_runtime: str | None = None


class KaiQueueStatus(Record, frozen=True):
    """queue.status, which KAI's queue controller writes in a cluster that runs it."""

    child_queues: tuple[str, ...] = ()
    allocated: Amounts = msgspec.field(default_factory=dict)
    allocated_non_preemptible: Amounts = msgspec.field(default_factory=dict)
    requested: Amounts = msgspec.field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()


class KaiQueue(Record, frozen=True):
    """scheduling.run.ai/v2 Queue."""

    metadata: ObjectMeta = ObjectMeta()
    spec: KaiQueueSpec = KaiQueueSpec()
    status: KaiQueueStatus = KaiQueueStatus()


class KaiTopologyConstraint(Record, frozen=True):
    """Levels are node label keys, or aliases that the Topology gives them."""

    topology: str = ""
    required_topology_level: str = ""
    preferred_topology_level: str = ""


class KaiSubGroup(Record, frozen=True):
    """An entry of podGroup.spec.subGroups, a flat list that ``parent`` makes a tree."""

    name: str = ""
    parent: str | None = None
    min_member: int | None = None
    min_sub_group: int | None = None
    topology_constraint: KaiTopologyConstraint | None = None


class KaiPodGroupSpec(Record, frozen=True):
    """podGroup.spec."""

    min_member: int | None = None
    min_sub_group: int | None = None
    queue: str = ""
    priority_class_name: str = ""
    preemptibility: str = ""
    topology_constraint: KaiTopologyConstraint | None = None
    sub_groups: tuple[KaiSubGroup, ...] = ()
    mark_unschedulable: bool | None = None
    scheduling_backoff: int | None = None
    preemption_delay: str | None = None
    staleness_grace_period: str | None = None


class KaiReason(Record, frozen=True):
    """An entry of the reasons of a scheduling condition."""

    reason: str = ""
    message: str = ""
    details: dict[str, Any] | None = None


class KaiSchedulingCondition(Record, frozen=True):
    """The group can't be scheduled on a node pool, and why; one condition per pool."""

    type: str = ""
    node_pool: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    reasons: tuple[KaiReason, ...] = ()
    transition_id: str = msgspec.field(name="transitionID", default="")
    last_transition_time: str = ""


class KaiResourcesStatus(Record, frozen=True):
    """What the group has allocated and requests."""

    allocated: Amounts = msgspec.field(default_factory=dict)
    allocated_non_preemptible: Amounts = msgspec.field(default_factory=dict)
    requested: Amounts = msgspec.field(default_factory=dict)


class KaiPodGroupStatus(Record, frozen=True):
    """podGroup.status."""

    scheduling_conditions: tuple[KaiSchedulingCondition, ...] = ()
    resources_status: KaiResourcesStatus = KaiResourcesStatus()


class KaiPodGroup(Record, frozen=True):
    """scheduling.run.ai/v2alpha2 PodGroup."""

    metadata: ObjectMeta = ObjectMeta()
    spec: KaiPodGroupSpec = KaiPodGroupSpec()
    status: KaiPodGroupStatus = KaiPodGroupStatus()


class KaiTopologyLevel(Record, frozen=True):
    """A level of a topology; users may write the alias in place of the label."""

    node_label: str = ""
    alias: str = ""


class KaiTopologySpec(Record, frozen=True):
    """Levels from coarse to fine."""

    levels: tuple[KaiTopologyLevel, ...] = ()


class KaiTopology(Record, frozen=True):
    """kai.scheduler/v1alpha1 Topology."""

    metadata: ObjectMeta = ObjectMeta()
    spec: KaiTopologySpec = KaiTopologySpec()

    @property
    def node_labels(self) -> tuple[str, ...]:
        """Node label keys, coarse to fine."""
        return tuple(level.node_label for level in self.spec.levels)

    def label_of(self, level: str) -> str:
        """The node label key of a level given by label or alias; ``level`` itself if unknown."""
        named = (each.node_label for each in self.spec.levels if each.alias == level != "")
        return next(named, level)
