"""Records of objects that set rules for pods.

PriorityClasses (scheduling.k8s.io/v1), PodDisruptionBudgets (policy/v1), and those by which
admission plugins complete pods: RuntimeClasses (node/v1) and LimitRanges (core/v1), of which only
the fields that the plugins read are here.
"""

import msgspec

from kai_py.api.records.core import LabelSelector, ObjectMeta, Toleration
from kai_py.api.records.record import QuantityText, Record


class PriorityClass(Record, frozen=True):
    """scheduling.k8s.io/v1 PriorityClass."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"


class PodDisruptionBudgetSpec(Record, frozen=True):
    """Which pods a budget protects."""

    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = "IfHealthyBudget"


class PodDisruptionBudgetStatus(Record, frozen=True):
    """How many of the selected pods may be evicted now."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0


class PodDisruptionBudget(Record, frozen=True):
    """policy/v1 PodDisruptionBudget."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class Overhead(Record, frozen=True):
    """runtimeClass.overhead: what running a pod costs beside its containers."""

    pod_fixed: dict[str, QuantityText] = msgspec.field(default_factory=dict)


class RuntimeScheduling(Record, frozen=True):
    """runtimeClass.scheduling: the nodes that support the class."""

    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


class RuntimeClass(Record, frozen=True):
    """A container runtime that pods can name."""

    overhead: Overhead = Overhead()
    scheduling: RuntimeScheduling = RuntimeScheduling()


class LimitRangeItem(Record, frozen=True):
    """limitRange.spec.limits[]: bounds and defaults for one type of object."""

    type: str = ""
    max: dict[str, QuantityText] = msgspec.field(default_factory=dict)
    min: dict[str, QuantityText] = msgspec.field(default_factory=dict)
    default: dict[str, QuantityText] = msgspec.field(default_factory=dict)
    default_request: dict[str, QuantityText] = msgspec.field(default_factory=dict)


class LimitRangeSpec(Record, frozen=True):
    """limitRange.spec."""

    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(Record, frozen=True):
    """Bounds and defaults of a namespace."""

    spec: LimitRangeSpec = LimitRangeSpec()
