"""What an owner says of all its pods: worked out once per state of the owner, used for each pod."""

from collections.abc import Callable
from dataclasses import dataclass

from kai_py.api.records.core import Pod
from kai_py.api.records.document import Document
from kai_py.grouping.gang import Awaited, Subgroup
from kai_py.grouping.lineage import Link
from kai_py.grouping.owners import Owners
from kai_py.grouping.queue_choice import Defaults


class Unusable(ValueError):
    """An owner says something that makes no sense; the text names the field."""


def _nothing(_pod: Pod) -> str:
    return ""


def _first(_pod: Pod) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class Workload:
    """An owner whose pods are to be grouped.

    ``has_queue``: somebody named a queue for them. ``owners`` are for further objects that decide;
    what is asked of them is remembered, and asked again when it changes.
    """

    link: Link
    defaults: Defaults
    has_queue: bool
    owners: Owners


@dataclass(frozen=True, slots=True)
class Blueprint:
    """A gang as its owner describes it.

    ``part`` splits the owner's pods into several gangs. ``leaf`` and ``rank`` place a pod in its
    gang. ``grown``: what the gang is once this pod exists, where that is not ``tree`` for all.
    ``expected_pods`` 0: nobody knows. ``awaited``: pods that come once others run.
    """

    tree: Subgroup
    leaf: Callable[[Pod], str] = _nothing
    rank: Callable[[Pod], int] = _first
    part: Callable[[Pod], str] = _nothing
    grown: Callable[[Pod], Subgroup] | None = None
    expected_pods: int = 0
    awaited: tuple[Awaited, ...] = ()
    floor_annotations: tuple[str, ...] = ()
    queue: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Framework:
    """Code for one framework: the fields it reads of the owner, and what it makes of them."""

    paths: tuple[str, ...]
    blueprint: Callable[[Workload], Blueprint]


def whole_document(workload: Workload) -> Document:
    """The owner with its spec; raises Unusable where only metadata is known."""
    if not isinstance(workload.link.found, Document):
        raise Unusable("its spec is not known, so neither is the size of the gang")
    return workload.link.found


def label(key: str) -> Callable[[Pod], str]:
    """Reads a label of a pod, in lower case."""
    return lambda pod: pod.metadata.labels.get(key, "").lower()


def number_label(*keys: str) -> Callable[[Pod], int]:
    """Reads a number from the first of some labels that a pod has; 0 without one."""

    def read(pod: Pod) -> int:
        for key in keys:
            text = pod.metadata.labels.get(key, "")
            if text.isdecimal():
                return int(text)
        return 0

    return read
