"""Records of PriorityClasses (scheduling.k8s.io/v1) and PodDisruptionBudgets (policy/v1)."""

from kai_py.api.records.core import LabelSelector, ObjectMeta
from kai_py.api.records.record import Record


class PriorityClass(Record, frozen=True):
    """scheduling.k8s.io/v1 PriorityClass."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"


class PodDisruptionBudgetSpec(Record, frozen=True):
    """Which pods a budget protects."""

    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(Record, frozen=True):
    """How many of the selected pods may be evicted now."""

    disruptions_allowed: int = 0


class PodDisruptionBudget(Record, frozen=True):
    """policy/v1 PodDisruptionBudget."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
