"""Segments: blocks of pods, each in one topology domain of its own.

A segment size on a workload that is one group of equal pods, or on the template of a leaf, splits
it into segments by the pods' index: segment i has the indexes from i * size on. minMember fills the
first segments; those beyond it are elastic. Indexes beyond the number of pods that run at once wrap
around.

Source: KAI-Scheduler, docs/developer/designs/segmented-subgroups.
"""

from collections.abc import Callable
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from kai_py.api.numbers import NumberError, parse_count, parse_int64
from kai_py.api.records.core import Pod
from kai_py.grouping.gang import (
    MAX_SUBGROUPS,
    TOO_MANY_SUBGROUPS,
    GangSpec,
    Subgroup,
    TopologyConstraint,
)
from kai_py.grouping.gang_template import InvalidWorkloadError
from kai_py.grouping.topology_annotations import TemplateTopology

INDEX_LABELS = (
    "batch.kubernetes.io/job-completion-index",
    "apps.kubernetes.io/pod-index",
    "training.kubeflow.org/replica-index",
)
MAX_SEGMENTS = 10_000
SEGMENT = "segment"
PODS = "pods"
"""The subgroup of equal pods whose template and whose workload are constrained differently."""
NEEDS_INDEX = (
    "pods need an index, as those of an Indexed Job or a StatefulSet have, "
    "or kai.scheduler/pod-index-label that names the label with theirs"
)


class SubgroupBudget:
    """Counts the subgroups of a gang while they are made, as segments may be millions."""

    def __init__(self) -> None:
        self._left = MAX_SUBGROUPS

    def counted(self, tree: Subgroup) -> Subgroup:
        """``tree``, unless the gang has too many subgroups with it; raises InvalidWorkloadError."""
        self._left -= _size(tree)
        if self._left < 0:
            raise InvalidWorkloadError(TOO_MANY_SUBGROUPS.format(MAX_SUBGROUPS))
        return tree


def _size(tree: Subgroup) -> int:
    return 1 + sum(map(_size, tree.children))


def leaf_of_template(
    name: str, pods: int, min_members: int, topology: TemplateTopology, *, has_index: bool = True
) -> Subgroup:
    """The leaf of the ``pods`` made from a template, or the subgroup of its segments.

    ``has_index``: whether the framework labels the pods with an index. Raises InvalidWorkloadError.
    """
    if not topology.segment_size:
        return Subgroup(name=name, min_members=min_members, topology=topology.constraint)
    if not has_index and not topology.index_label:
        raise InvalidWorkloadError(f"{topology.location} cannot be applied; {NEEDS_INDEX}")
    count = segment_count(pods, topology.segment_size, topology.location)
    segments = segment_subgroups(name, count, topology.segment_size, min_members, topology.segments)
    return Subgroup(name=name, children=segments, topology=topology.constraint)


def leaf_reader(
    name: str, pods: int, topology: TemplateTopology, index_label: str
) -> Callable[[Pod], str]:
    """A function that names the leaf, below ``leaf_of_template``, of a pod made from it."""
    size = topology.segment_size
    if not size or not pods:
        return lambda _pod: name
    count, label = -(-pods // size), topology.index_label or index_label
    return lambda pod: f"{name}-{max(_index(pod, label), 0) // size % count}"


class Segments(Struct, frozen=True):
    """How pods form segments.

    Each segment has ``constraint``, and all of them ``within``, where the gang is constrained
    otherwise. ``index_label``: the label with the index; empty: one of Kubernetes or Kubeflow.
    """

    constraint: TopologyConstraint | None
    within: TopologyConstraint | None = None
    index_label: str = ""


def split_into_segments(
    spec: GangSpec, pod: Pod, size: tuple[str, str], segments: Segments
) -> GangSpec:
    """``spec``, a gang of equal pods, split into segments; ``size`` is a key and its text."""
    if spec.tree.children or spec.problem:
        return spec
    key, text = size
    location = f"{spec.owner.kind} {spec.owner.namespace}/{spec.owner.name}: {key}"
    labels = (segments.index_label,) if segments.index_label else INDEX_LABELS
    index = next((number for each in labels if (number := _index(pod, each)) >= 0), None)
    try:
        pods_of_each = parse_count(text, least=1)
    except NumberError as error:
        return replace(spec, problem=f"{location} {error}")
    if index is None:
        return replace(spec, problem=f"{location} cannot be applied; {NEEDS_INDEX}")
    pods = max(spec.total_pods, spec.tree.min_members, 1)
    try:
        count = segment_count(pods, pods_of_each, location)
    except InvalidWorkloadError as error:
        return replace(spec, problem=str(error))
    tree = _tree(spec.tree, count, pods_of_each, segments)
    return replace(spec, tree=tree, subgroup=f"{SEGMENT}-{index // pods_of_each % count}")


def _index(pod: Pod, label: str) -> int:
    """The index of a pod under a label; negative without one."""
    number = parse_int64(pod.metadata.labels.get(label, ""))
    return -1 if number is None else number


def segment_count(pods: int, size: int, location: str) -> int:
    """How many segments ``pods`` make; raises InvalidWorkloadError, naming ``location``."""
    count = -(-pods // size)
    if count > MAX_SEGMENTS:
        raise InvalidWorkloadError(
            f"{location} results in {count} segments, the maximum is {MAX_SEGMENTS}"
        )
    return count


def segment_subgroups(
    name: str, count: int, size: int, min_members: int, constraint: TopologyConstraint | None
) -> tuple[Subgroup, ...]:
    """Leaves ``name``-0 and so on, of which the first hold the ``min_members`` of all."""
    return tuple(
        Subgroup(
            name=f"{name}-{number}",
            min_members=min(max(min_members - number * size, 0), size),
            topology=constraint,
        )
        for number in range(count)
    )


@lru_cache(maxsize=4096)
def _tree(whole: Subgroup, count: int, size: int, segments: Segments) -> Subgroup:
    leaves = segment_subgroups(SEGMENT, count, size, whole.min_members, segments.constraint)
    if segments.within is not None:
        leaves = (Subgroup(name=PODS, children=leaves, topology=segments.within),)
    return replace(whole, min_members=0, children=leaves)
