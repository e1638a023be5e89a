"""Topology constraints as annotations write them, on a workload or on a template of its pods.

kai.scheduler/topology                      the Topology whose levels are named; else labels
kai.scheduler/topology-required-placement   all pods in one domain of this level
kai.scheduler/topology-preferred-placement  the same, if it can be
scheduling.kai.io/topology-fitting-placement  required if an empty domain could hold them
…/segment-size, …/segment-topology-…-placement  see ``segments``; ours or KAI's prefix
kai.scheduler/pod-index-label               label with the index that segments count by

On a workload they constrain the gang; on a template (of a replica, worker group, replicated job)
the pods made from it, which are a leaf of the gang. A level may be an alias of the Topology.

Source: KAI-Scheduler, docs/topology (README, multilevel, segments).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kai_py.api.queue import GROUP
from kai_py.api.records.kai import KaiTopology
from kai_py.grouping.counts import parse_count
from kai_py.grouping.gang import TopologyConstraint
from kai_py.grouping.gang_template import InvalidWorkloadError, WorkloadOwner
from kai_py.grouping.owner_chain import Owners

TOPOLOGIES = "topologies.kai.scheduler"
TOPOLOGY_KEY = "kai.scheduler/topology"
REQUIRED_LEVEL_KEY = "kai.scheduler/topology-required-placement"
PREFERRED_LEVEL_KEY = "kai.scheduler/topology-preferred-placement"
FITTING_LEVEL_KEY = f"{GROUP}/topology-fitting-placement"
"""The level whose domains are required if an empty one could hold the gang, else preferred."""
SEGMENT_SIZE_KEYS = (f"{GROUP}/segment-size", "kai.scheduler/segment-size")
SEGMENT_REQUIRED_KEYS = tuple(
    f"{prefix}/segment-topology-required-placement" for prefix in (GROUP, "kai.scheduler")
)
SEGMENT_PREFERRED_KEYS = tuple(
    f"{prefix}/segment-topology-preferred-placement" for prefix in (GROUP, "kai.scheduler")
)
"""Our key takes precedence over KAI's."""
INDEX_LABEL_KEY = "kai.scheduler/pod-index-label"
LEVEL_KEYS = frozenset(
    (
        REQUIRED_LEVEL_KEY,
        PREFERRED_LEVEL_KEY,
        FITTING_LEVEL_KEY,
        *SEGMENT_REQUIRED_KEYS,
        *SEGMENT_PREFERRED_KEYS,
    )
)
KEYS = LEVEL_KEYS | {TOPOLOGY_KEY, INDEX_LABEL_KEY, *SEGMENT_SIZE_KEYS}
"""Every annotation that this module reads."""

Annotations = Mapping[str, Any]


class TemplateTopology(Struct, frozen=True):
    """What a template asks of its pods; ``location`` names its size of segments in messages.

    ``constraint`` holds for all of them. With a ``segment_size`` they form segments with a
    constraint of their own, by their number under ``index_label``.
    """

    constraint: TopologyConstraint | None = None
    segment_size: int = 0
    segments: TopologyConstraint | None = None
    index_label: str = ""
    location: str = ""


UNCONSTRAINED = TemplateTopology()


def is_annotated(annotations: Annotations) -> bool:
    """Whether any of the annotations is about topology."""
    return not KEYS.isdisjoint(annotations)


def constraint_of(
    annotations: Annotations, topology: str, owners: Owners
) -> TopologyConstraint | None:
    """The constraint on all pods; ``topology``: the Topology where the annotations name none."""
    return _constraint(
        annotations,
        ((REQUIRED_LEVEL_KEY,), (PREFERRED_LEVEL_KEY,), (FITTING_LEVEL_KEY,)),
        topology,
        owners,
    )


def segment_constraint_of(
    annotations: Annotations, topology: str, owners: Owners
) -> TopologyConstraint | None:
    """The constraint on each segment; arguments as of ``constraint_of``."""
    return _constraint(
        annotations, (SEGMENT_REQUIRED_KEYS, SEGMENT_PREFERRED_KEYS, ()), topology, owners
    )


def template_topology(
    workload: WorkloadOwner, *templates: tuple[str, Annotations], with_workload: bool = True
) -> TemplateTopology:
    """The topology of the pods made from templates, each with its location, the nearest first.

    ``with_workload``: whether segments that the workload requests are segments of these pods.
    Raises InvalidWorkloadError if a size is none, or if two templates require different levels.
    """
    own = _merged(annotations for _, annotations in templates)
    above = _merged({**meta.labels, **meta.annotations} for meta in workload.metas)
    if not is_annotated(own) and not (with_workload and is_annotated(above)):
        return UNCONSTRAINED
    required = {
        str(each[REQUIRED_LEVEL_KEY]) for _, each in templates if REQUIRED_LEVEL_KEY in each
    }
    location = templates[0][0]
    if len(required) > 1:
        levels = " and ".join(sorted(required))
        raise InvalidWorkloadError(f"{location}: {REQUIRED_LEVEL_KEY} is both {levels}")
    topology = str(own.get(TOPOLOGY_KEY) or above.get(TOPOLOGY_KEY) or "")
    segments = {**above, **own} if with_workload else own
    size_key = first_key(segments, SEGMENT_SIZE_KEYS)
    size_at = _location_of(size_key, workload, templates)
    return TemplateTopology(
        constraint=constraint_of(own, topology, workload.owners),
        segment_size=parse_count(segments[size_key], size_at) if size_key else 0,
        segments=segment_constraint_of(segments, topology, workload.owners),
        index_label=str(segments.get(INDEX_LABEL_KEY) or ""),
        location=size_at,
    )


def _location_of(
    key: str, workload: WorkloadOwner, templates: Iterable[tuple[str, Annotations]]
) -> str:
    """The object that has an annotation and the field, as ``_merged`` looks for it."""
    for location, annotations in templates:
        if key in annotations:
            return f"{location}: {key}"
    for link in (workload.link, *workload.above):
        meta = link.found.metadata
        if key in meta.annotations or key in meta.labels:
            field = "annotations" if key in meta.annotations else "labels"
            owner = "" if link is workload.link else f"{link.kind.kind} {meta.name}: "
            return f"{owner}metadata.{field}: {key}"
    return key


def first_key(annotations: Annotations, keys: Sequence[str]) -> str:
    """The first of ``keys`` that has a value, empty if none has."""
    return next((key for key in keys if annotations.get(key)), "")


def with_labels(constraint: TopologyConstraint | None, owners: Owners) -> TopologyConstraint | None:
    """The constraint with node labels for aliases of levels.

    A level of a Topology that does not exist (yet) stays as written: the plan rejects the gang with
    the Topology's name, and the gang is derived again when it appears.
    """
    if constraint is None or not constraint.topology:
        return constraint
    found = owners.named(TOPOLOGIES, "", constraint.topology)
    if not isinstance(found, KaiTopology):
        return constraint
    return replace(
        constraint,
        required_level=found.label_of(constraint.required_level),
        preferred_level=found.label_of(constraint.preferred_level),
        fitting_level=found.label_of(constraint.fitting_level),
    )


def _constraint(
    annotations: Annotations, keys: Sequence[Sequence[str]], topology: str, owners: Owners
) -> TopologyConstraint | None:
    required, preferred, fitting = (
        str(annotations.get(first_key(annotations, each)) or "") for each in keys
    )
    if not (required or preferred or fitting):
        return None
    name = str(annotations.get(TOPOLOGY_KEY) or topology)
    return with_labels(TopologyConstraint(name, required, preferred, fitting), owners)


def _merged(nearest_first: Iterable[Annotations]) -> Annotations:
    """One mapping, in which the nearest value counts."""
    merged: dict[str, Any] = {}
    for each in nearest_first:
        merged = {**each, **merged}
    return merged
