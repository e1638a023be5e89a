"""Group sources: the ordered ways in which a pod names its gang; the first that applies decides.

1. our own annotations on the pod, 2. group objects and markers of dialects, in the order of the
list given to ``Grouper``, 3. the rule for the framework whose object owns the pod, 4. the pod's top
owner, or the pod alone.

A source of the first two kinds applies where the pod has its marker. Markers of other sources are
ignored and reported.
"""

from collections.abc import Callable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from kai_py.api.records.core import ObjectMeta
from kai_py.grouping.gang import GangSpec
from kai_py.grouping.owner_chain import OwnerChain, Owners
from kai_py.grouping.queue_choice import QueueChoice


class PodContext(msgspec.Struct, frozen=True):
    """A pod, its owners and queue, a view of all other objects, and its sources.

    ``markers``: the sources that the pod names, as people read them, the deciding one first.
    """

    chain: OwnerChain
    queue: QueueChoice
    owners: Owners
    markers: tuple[tuple["GroupSource", str], ...] = ()


def _no_metadata(_chain: OwnerChain, _owners: Owners) -> tuple[ObjectMeta, ...]:
    return ()


class GroupSource(Struct, frozen=True):
    """One way to name the gang of a pod.

    ``marker`` returns what of the pod names this source, as people read it (``annotation
    pod-group-name "train"``), empty if nothing does. It is called for every pod and must not look
    anything up. ``gang_spec`` is called for pods with the marker; a group object that is missing is
    a ``problem`` of its gang, None means that the source does not apply after all (its API is not
    served). ``group_metadata``: the objects behind the group, whose labels and annotations take
    precedence over those of the pod.
    """

    marker: Callable[[OwnerChain], str]
    gang_spec: Callable[[PodContext], GangSpec | None]
    group_metadata: Callable[[OwnerChain, Owners], tuple[ObjectMeta, ...]] = _no_metadata


def markers_of(
    chain: OwnerChain, sources: tuple[GroupSource, ...]
) -> tuple[tuple[GroupSource, str], ...]:
    """The sources that apply to a pod, with its markers."""
    found: list[tuple[GroupSource, str]] = []
    for source in sources:
        marker = source.marker(chain)
        if marker:
            found.append((source, marker))
    return tuple(found)


def gang_from_sources(context: PodContext) -> tuple[GangSpec | None, list[str]]:
    """The gang of the first source that applies, and the markers of all others."""
    decided: GangSpec | None = None
    ignored: list[str] = []
    for source, marker in context.markers:
        spec = source.gang_spec(context) if decided is None else None
        if spec is None:
            ignored.append(marker)
        else:
            decided = replace(spec, rule=marker)
    return decided, ignored
