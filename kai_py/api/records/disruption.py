"""Records of policy/v1 PodDisruptionBudget: which pods may be evicted, and how many now."""

from kai_py.api.records.core import LabelSelector, ObjectMeta, Record


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
