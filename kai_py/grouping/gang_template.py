"""What an owner says of all its pods: worked out once per state of the owner, used for each pod."""

from collections.abc import Callable
from dataclasses import dataclass

from kai_py.api.records.core import Pod
from kai_py.api.records.unstructured import Unstructured
from kai_py.grouping.gang import ExpectedPods, Subgroup
from kai_py.grouping.owner_chain import OwnerLink
from kai_py.grouping.owners import Owners
from kai_py.grouping.queue_choice import Defaults


class InvalidWorkloadError(ValueError):
    """An owner says something that makes no sense; the text names the field."""


def _no_name(_pod: Pod) -> str:
    return ""


def _order_zero(_pod: Pod) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class WorkloadOwner:
    """An owner whose pods are to be grouped.

    ``has_queue``: somebody named a queue for them. ``owners`` are for further objects that decide;
    what is asked of them is remembered, and asked again when it changes.
    """

    link: OwnerLink
    defaults: Defaults
    has_queue: bool
    owners: Owners


@dataclass(frozen=True, slots=True)
class GangTemplate:
    """A gang as its owner describes it.

    ``part`` splits the owner's pods into several gangs. ``leaf`` and ``rank`` place a pod in its
    gang. ``grown``: what the gang is once this pod exists, where that is not ``tree`` for all.
    ``expected_pods`` 0: nobody knows. ``awaited``: pods that come once others run.
    """

    tree: Subgroup
    subgroup_of: Callable[[Pod], str] = _no_name
    order_of: Callable[[Pod], int] = _order_zero
    gang_suffix_of: Callable[[Pod], str] = _no_name
    tree_with: Callable[[Pod], Subgroup] | None = None
    total_pods: int = 0
    expected: tuple[ExpectedPods, ...] = ()
    min_member_annotations: tuple[str, ...] = ()
    queue: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Framework:
    """Code for one framework: the fields it reads of the owner, and what it makes of them."""

    field_paths: tuple[str, ...]
    gang_template: Callable[[WorkloadOwner], GangTemplate]


def full_owner(workload: WorkloadOwner) -> Unstructured:
    """The owner with its spec; raises Unusable where only metadata is known."""
    if not isinstance(workload.link.found, Unstructured):
        raise InvalidWorkloadError("its spec is not known, so neither is the size of the gang")
    return workload.link.found


def label_reader(key: str) -> Callable[[Pod], str]:
    """Reads a label of a pod, in lower case."""
    return lambda pod: pod.metadata.labels.get(key, "").lower()


def number_label_reader(*keys: str) -> Callable[[Pod], int]:
    """Reads a number from the first of some labels that a pod has; 0 without one."""

    def read(pod: Pod) -> int:
        for key in keys:
            text = pod.metadata.labels.get(key, "")
            if text.isdecimal():
                return int(text)
        return 0

    return read
