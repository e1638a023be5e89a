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
from kai_py.grouping.owner_chain import OwnerChain
from kai_py.grouping.owners import Owners
from kai_py.grouping.queue_choice import QueueChoice


class PodContext(msgspec.Struct, frozen=True):
    """A pod, what is above it, its queue, a view of everything else, and who may decide.

    ``marks``: the sources that the pod asks for, as people read it, the deciding one first.
    """

    chain: OwnerChain
    queue: QueueChoice
    owners: Owners
    markers: tuple[tuple["GroupSource", str], ...] = ()


def _no_metadata(_chain: OwnerChain, _owners: Owners) -> tuple[ObjectMeta, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class GroupSource:
    """One way to say which gang a pod belongs to.

    ``mark`` gives what of the pod asks for this source, as people read it (``annotation
    pod-group-name "train"``), empty if nothing does. It is asked for every pod: no lookups.
    ``gang`` is asked for pods with the mark; a group object that is missing is a ``problem`` of its
    gang, None means that the source does not apply after all (its API is not served). ``metas``:
    the objects behind the group, whose labels and annotations go before those of the pod.
    """

    marker: Callable[[OwnerChain], str]
    gang_spec: Callable[[PodContext], GangSpec | None]
    group_metadata: Callable[[OwnerChain, Owners], tuple[ObjectMeta, ...]] = _no_metadata


def markers_of(
    chain: OwnerChain, sources: tuple[GroupSource, ...]
) -> tuple[tuple[GroupSource, str], ...]:
    """The sources that apply to a pod, with its marks."""
    found: list[tuple[GroupSource, str]] = []
    for source in sources:
        mark = source.marker(chain)
        if mark:
            found.append((source, mark))
    return tuple(found)


def gang_from_sources(context: PodContext) -> tuple[GangSpec | None, list[str]]:
    """The gang that the first applying source gives, and the marks of all others."""
    decided: GangSpec | None = None
    disregarded: list[str] = []
    for source, mark in context.markers:
        found = source.gang_spec(context) if decided is None else None
        if found is None:
            disregarded.append(mark)
        else:
            decided = found
    return decided, disregarded
