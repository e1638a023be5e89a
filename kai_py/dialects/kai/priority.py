"""Priority and preemptibility of KAI workloads.

The priority is the value of the PriorityClass that the workload names; of a class that does not
exist, the cluster's default class, else 50. The four classes that KAI installs count with their
values (train 50, build-preemptible 75, build 100, inference 125) even where they were removed.

A workload may be evicted if it is set to ``preemptible`` or ``semi-preemptible`` (but for its
minMember set), or if neither is set and its priority is below 100.
"""

from collections.abc import Iterable, Mapping

from kai_py.api.records.core import PriorityClass
from kai_py.grouping.gang_settings import Preemptibility, parse_preemptibility
from kai_py.grouping.owner_chain import Owners

PRIORITY_CLASSES = "priorityclasses"
CLUSTER_DEFAULT = ""
"""The name under which the cluster's default PriorityClass is looked up."""
CLASS_VALUES: Mapping[str, int] = {
    "train": 50,
    "build-preemptible": 75,
    "build": 100,
    "inference": 125,
}
DEFAULT_PRIORITY = 50
NON_PREEMPTIBLE_FROM = 100


def priority_of(class_name: str, owners: Owners) -> int:
    """The priority of a class; ``class_name`` may be empty."""
    if class_name:
        found = owners.named(PRIORITY_CLASSES, "", class_name)
        if isinstance(found, PriorityClass):
            return found.value
        if class_name in CLASS_VALUES:
            return CLASS_VALUES[class_name]
    default = owners.named(PRIORITY_CLASSES, "", CLUSTER_DEFAULT)
    return default.value if isinstance(default, PriorityClass) else DEFAULT_PRIORITY


def existing_class(names: Iterable[str], owners: Owners) -> str:
    """The first of these classes that exists, empty if none does."""
    return next(
        (
            name
            for name in names
            if name in CLASS_VALUES
            or (name and owners.named(PRIORITY_CLASSES, "", name) is not None)
        ),
        "",
    )


def is_preemptible(preemptibility: str, priority: int) -> bool:
    """Whether a workload with this ``preemptibility``, which may be empty, may be evicted."""
    parsed = parse_preemptibility(preemptibility)
    if parsed is None:
        return priority < NON_PREEMPTIBLE_FROM
    return parsed is not Preemptibility.NON_PREEMPTIBLE
