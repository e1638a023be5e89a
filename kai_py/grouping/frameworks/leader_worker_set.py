"""LeaderWorkerSet: every group is a gang of its own: a leader and size - 1 workers.

With a ``subGroupPolicy``, or else a segment size in annotations, the leaves are its subgroups, so
that each can be packed by itself. Topology annotations of the worker template constrain the
workers, those of the leader template the leader.

Two things make workers wait for their leader: ``startupPolicy: LeaderReady``, and exclusive
placement, for which LWS must know the leader's domain. The leader starts when the whole group fits,
in one domain where placement is exclusive; from the first worker on all pods are required.

The size of a group is that of its pods' annotation: when the field changes, a group keeps the old
one until the rollout reaches it, or for good behind a partition.

Source: leaderworkerset.x-k8s.io/v1 (labels of its webhook, subgroup arithmetic of its API text).
"""

from collections import Counter
from functools import lru_cache
from typing import NamedTuple

from kai_py.api.numbers import parse_int64
from kai_py.api.records.core import Pod
from kai_py.api.records.unstructured import Unstructured
from kai_py.grouping.counts import count_at, entries
from kai_py.grouping.gang import ExpectedPods, Subgroup, TopologyConstraint, within
from kai_py.grouping.gang_template import (
    Framework,
    GangTemplate,
    InvalidWorkloadError,
    WorkloadOwner,
    known_fields,
    number_label_reader,
    pod_of_template,
    template_paths,
)
from kai_py.grouping.roles import template_annotations
from kai_py.grouping.topology_annotations import TemplateTopology, template_topology

GROUP_INDEX_LABEL = "leaderworkerset.sigs.k8s.io/group-index"
WORKER_INDEX_LABEL = "leaderworkerset.sigs.k8s.io/worker-index"
SIZE_KEY = "leaderworkerset.sigs.k8s.io/size"
"""The annotation of pods with the size of their group."""
SIZE = "spec.leaderWorkerTemplate.size"
SEGMENT_SIZE = "spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize"
SEGMENT_TYPE = "spec.leaderWorkerTemplate.subGroupPolicy.subGroupPolicyType"
LEADER_TEMPLATE = "spec.leaderWorkerTemplate.leaderTemplate"
STARTUP = "spec.startupPolicy"
WORKER = "spec.leaderWorkerTemplate.workerTemplate"
EXCLUSIVE_KEY = "leaderworkerset.sigs.k8s.io/exclusive-topology"
EXCLUSIVE_SUBGROUPS_KEY = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology"
"""The level of which each subgroup gets a domain of its own; its pods wait for no leader."""
MAX_SIZE = 10_000
"""Most pods of a group: each has a place in a list, and a placeholder until it exists."""
MAX_KNOWN_SIZES = 8
"""Sizes of groups of which the trees are kept; pods may claim any."""
LEADER = "leader"
WORKERS = "workers"


def _gang_template(workload: WorkloadOwner) -> GangTemplate:
    leader_worker_set = known_fields(workload)  # the pods of a group state its size
    size = count_at(leader_worker_set.content, SIZE, 1)
    if size < 1:
        raise InvalidWorkloadError(f"{SIZE} must be at least 1")
    if size > MAX_SIZE:
        raise InvalidWorkloadError(f"{SIZE} must be at most {MAX_SIZE}, is {size}")
    content = leader_worker_set.content
    workers = template_topology(workload, template_annotations(content, WORKER))
    leaders = template_topology(
        workload, template_annotations(content, LEADER_TEMPLATE), with_workload=False
    )
    rank = number_label_reader(WORKER_INDEX_LABEL)
    annotations = leader_worker_set.metadata.annotations
    per_subgroup, level = (
        annotations.get(key, "") for key in (EXCLUSIVE_SUBGROUPS_KEY, EXCLUSIVE_KEY)
    )
    leader_first = bool(level) or leader_worker_set.first_at(STARTUP) == "LeaderReady"

    @lru_cache(maxsize=MAX_KNOWN_SIZES)
    def group_of(pods: int) -> _Group:
        names = _leaf_names(leader_worker_set, pods, workers)
        whole, start = (
            _tree(names, needed, leaders, workers, per_subgroup) for needed in (pods, 1)
        )
        if level:
            exclusive = TopologyConstraint(required_level=level)
            whole, start = within(whole, exclusive), within(start, exclusive)
        expected = _expected_workers(leader_worker_set, names) if leader_first else ()
        return _Group(names, whole, start, expected)

    def leaf(pod: Pod) -> str:
        index, names = rank(pod), group_of(_size_of(pod, size)).names
        return names[index] if index < len(names) else f"worker {index}"

    def tree_with(pod: Pod) -> Subgroup:
        group = group_of(_size_of(pod, size))
        return group.start if leader_first and not rank(pod) else group.whole

    group = group_of(size)
    return GangTemplate(
        tree=group.start if leader_first else group.whole,
        tree_with=tree_with,
        subgroup_of=leaf,
        order_of=rank,
        gang_suffix_of=lambda pod: pod.metadata.labels.get(GROUP_INDEX_LABEL, ""),
        total_pods=size,
        expected=group.expected,
        expected_with=lambda pod: group_of(_size_of(pod, size)).expected,
    )


class _Group(NamedTuple):
    """A group of one size: the leaf of each pod; the tree of all pods, and that of its leader.

    ``expected``: the workers, where they wait for the leader.
    """

    names: tuple[str, ...]
    whole: Subgroup
    start: Subgroup
    expected: tuple[ExpectedPods, ...]


def _size_of(pod: Pod, size: int) -> int:
    """The pods of the group of ``pod``: while a new ``size`` is rolled out, groups differ."""
    written = parse_int64(pod.metadata.annotations.get(SIZE_KEY, ""))
    return written if written is not None and 1 <= written <= MAX_SIZE else size


def _expected_workers(found: Unstructured, names: tuple[str, ...]) -> tuple[ExpectedPods, ...]:
    template = next(iter(entries(found.content, WORKER)), None)
    if template is None:
        return ()
    pod = pod_of_template(template, found.metadata, WORKER)
    counts = Counter(names)
    return tuple(ExpectedPods(leaf, counts[leaf], pod) for leaf in dict.fromkeys(names[1:]))


def _leaf_names(found: Unstructured, size: int, workers: TemplateTopology) -> tuple[str, ...]:
    """The leaf of every pod of a group, by worker index; the leader's is 0."""
    per_segment = count_at(found.content, SEGMENT_SIZE, 0) or workers.segment_size
    if not per_segment:
        return (LEADER, *[WORKERS] * (size - 1))
    excluded = found.first_at(SEGMENT_TYPE) == "LeaderExcluded"
    # LWS adds the leader to the first subgroup if the workers alone divide evenly.
    leader_extra = excluded or (size - 1) % per_segment == 0
    segments = [
        f"segment-{max(index - 1, 0) // per_segment if leader_extra else index // per_segment}"
        for index in range(size)
    ]
    return (LEADER if excluded else segments[0], *segments[1:])


def _tree(
    names: tuple[str, ...],
    needed: int,
    leaders: TemplateTopology,
    workers: TemplateTopology,
    per_subgroup: str,
) -> Subgroup:
    """All leaves; minMember counts the first ``needed`` pods.

    ``per_subgroup``: the level of which each subgroup gets a domain, empty if LWS gives it none.
    What holds for all workers holds for the segments together, with a leader that is in one.
    """
    counts = Counter(names[:needed])
    constraints = {LEADER: leaders.constraint, WORKERS: workers.constraint}
    leaves = {
        name: Subgroup(
            name=name,
            min_members=counts[name],
            topology=constraints.get(name, workers.segments),
        )
        for name in dict.fromkeys(names)
    }
    if per_subgroup:
        exclusive = TopologyConstraint(required_level=per_subgroup)
        leaves |= {
            name: within(leaf, exclusive)
            for name, leaf in leaves.items()
            if name not in (LEADER, WORKERS)
        }
    leader = leaves.pop(LEADER, None)
    below = tuple(leaves.values())
    if workers.constraint is not None and WORKERS not in leaves:
        below = (Subgroup(name=WORKERS, children=below, topology=workers.constraint),)
    return Subgroup(children=below if leader is None else (leader, *below))


LEADER_WORKER_SET = Framework(
    field_paths=(
        SIZE,
        SEGMENT_SIZE,
        SEGMENT_TYPE,
        STARTUP,
        f"{LEADER_TEMPLATE}.metadata.annotations",
        *template_paths(WORKER),
    ),
    gang_template=_gang_template,
)
