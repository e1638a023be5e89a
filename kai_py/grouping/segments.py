"""Segments: blocks of pods, each in one topology domain of its own.

A segment size on a workload that is one group of equal pods splits it into segments by the pods'
index: segment i has the indexes from i * size on. minMember fills the first segments; those beyond
it are elastic. Indexes beyond the number of pods that run at once wrap around. Frameworks with
segments of their own (PyTorchJob, LeaderWorkerSet) have trees already, which stay as they are.

Source: KAI-Scheduler, docs/developer/designs/segmented-subgroups.
"""

from dataclasses import replace
from functools import lru_cache

from kai_py.api.numbers import NumberError, parse_count, parse_int64
from kai_py.api.records.core import Pod
from kai_py.grouping.gang import GangSpec, Subgroup, TopologyConstraint
from kai_py.grouping.gang_template import InvalidWorkloadError

INDEX_LABELS = (
    "batch.kubernetes.io/job-completion-index",
    "apps.kubernetes.io/pod-index",
    "training.kubeflow.org/replica-index",
)
MAX_SEGMENTS = 10_000


def split_into_segments(
    spec: GangSpec, pod: Pod, key: str, size: str, constraint: TopologyConstraint | None
) -> GangSpec:
    """``spec`` split into segments of ``size``, the text under ``key``; each has ``constraint``."""
    if spec.tree.children or spec.problem:
        return spec
    location = f"{spec.owner.kind} {spec.owner.namespace}/{spec.owner.name}: {key}"
    index = next((number for each in INDEX_LABELS if (number := _index(pod, each)) >= 0), None)
    try:
        pods_of_each = parse_count(size, least=1)
    except NumberError as error:
        return replace(spec, problem=f"{location} {error}")
    if index is None:
        hint = "pods need an index, as those of an Indexed Job or a StatefulSet have"
        return replace(spec, problem=f"{location} cannot be applied; {hint}")
    pods = max(spec.total_pods, spec.tree.min_members, 1)
    try:
        count = segment_count(pods, pods_of_each, location)
    except InvalidWorkloadError as error:
        return replace(spec, problem=str(error))
    tree = _tree(spec.tree, count, pods_of_each, constraint)
    return replace(spec, tree=tree, subgroup=tree.children[index // pods_of_each % count].name)


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
def _tree(
    whole: Subgroup, count: int, size: int, constraint: TopologyConstraint | None
) -> Subgroup:
    leaves = segment_subgroups("segment", count, size, whole.min_members, constraint)
    return replace(whole, min_members=0, children=leaves)
