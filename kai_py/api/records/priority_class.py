"""scheduling.k8s.io/v1 PriorityClass, as far as it is read."""

from kai_py.api.records.core import ObjectMeta, Record


class PriorityClass(Record, frozen=True):
    """scheduling.k8s.io/v1 PriorityClass."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"
