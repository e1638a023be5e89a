"""Who says which gang a pod belongs to? The ordered list of answers; the first that applies wins.

1. our own annotations on the pod,
2. group objects and marks of dialects, in the order of the list that ``Grouper`` is given,
3. the rule for the framework whose object owns the pod,
4. the pod's top owner, or the pod alone.

A source of the first two kinds applies where the pod carries its mark. What a pod carries beside
the mark that won is disregarded, and said so.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from kai_py.api.records.core import ObjectMeta
from kai_py.grouping.gang import GangSpec
from kai_py.grouping.lineage import Lineage
from kai_py.grouping.owners import Owners
from kai_py.grouping.queue_choice import QueueChoice


class Asked(msgspec.Struct, frozen=True):
    """A pod, what is above it, its queue, a view of everything else, and who may decide.

    ``marks``: the sources that the pod asks for, as people read it, the deciding one first.
    """

    lineage: Lineage
    queue: QueueChoice
    owners: Owners
    marks: tuple[tuple["Source", str], ...] = ()


def _nobody(_lineage: Lineage, _owners: Owners) -> tuple[ObjectMeta, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Source:
    """One way to say which gang a pod belongs to.

    ``mark`` gives what of the pod asks for this source, as people read it (``annotation
    pod-group-name "train"``), empty if nothing does. It is asked for every pod: no lookups.
    ``gang`` is asked for pods with the mark; a group object that is missing is a ``problem`` of its
    gang, None means that the source does not apply after all (its API is not served). ``metas``:
    the objects behind the group, whose labels and annotations go before those of the pod.
    """

    mark: Callable[[Lineage], str]
    gang: Callable[[Asked], GangSpec | None]
    metas: Callable[[Lineage, Owners], tuple[ObjectMeta, ...]] = _nobody


def marks_of(lineage: Lineage, sources: tuple[Source, ...]) -> tuple[tuple[Source, str], ...]:
    """The sources that apply to a pod, with its marks."""
    found: list[tuple[Source, str]] = []
    for source in sources:
        mark = source.mark(lineage)
        if mark:
            found.append((source, mark))
    return tuple(found)


def from_sources(asked: Asked) -> tuple[GangSpec | None, list[str]]:
    """The gang that the first applying source gives, and the marks of all others."""
    decided: GangSpec | None = None
    disregarded: list[str] = []
    for source, mark in asked.marks:
        found = source.gang(asked) if decided is None else None
        if found is None:
            disregarded.append(mark)
        else:
            decided = found
    return decided, disregarded
