"""JobSet: a subgroup per replicated job, in it a leaf per Job, all of them required at once.

    minMember of a leaf  = pods that the Job runs at a time
    minSubGroup          = replicas - succeeded, of every replicated job that is started

A replicated job is started when what it depends on (``dependsOn``, or those before it with
``startupPolicyOrder: InOrder``) has reached the required status. Until then its pods do not exist,
and a minMember that includes them would never be reached. Once a pod of it exists it counts as
started, because the status may lag behind. With exclusive placement per topology, JobSet creates
the pods of a Job once the one with index 0, its leader, has a node: each Job keeps to one domain.

The first pods start when there is capacity for those too that are created while these run: the
followers of leaders, and replicated jobs that wait until others are ``Ready``. One that waits until
others are ``Complete`` takes their place, so that nothing is kept for it.

Source: jobset.x-k8s.io/v1alpha2, KEP-672 (DependsOn), KEP-262 (startup policy); its pod webhooks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kai_py.api.records.core import Pod
from kai_py.api.records.job import Job
from kai_py.api.records.unstructured import Unstructured, mapping_at, value_at
from kai_py.grouping.counts import annotated_count, count_at, entries, parse_count
from kai_py.grouping.frameworks.job import BATCH_MIN_MEMBER_KEY, COMPLETION_INDEX_LABEL, active_pods
from kai_py.grouping.gang import (
    MAX_SUBGROUPS,
    ExpectedPods,
    Subgroup,
    TopologyConstraint,
    within,
    without_minimum,
)
from kai_py.grouping.gang_template import (
    Framework,
    GangTemplate,
    InvalidWorkloadError,
    WorkloadOwner,
    full_owner,
    number_label_reader,
    pod_of_template,
    template_paths,
)
from kai_py.grouping.roles import template_annotations
from kai_py.grouping.segments import SubgroupBudget, leaf_of_template, leaf_reader
from kai_py.grouping.topology_annotations import TemplateTopology, template_topology

REPLICATED_JOB_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX_LABEL = "jobset.sigs.k8s.io/job-index"
JOBS = "spec.replicatedJobs.*"
EXCLUSIVE_KEY = "alpha.jobset.sigs.k8s.io/exclusive-topology"
NODE_SELECTOR_KEY = "alpha.jobset.sigs.k8s.io/node-selector"
"""The strategy of exclusive placement with which no pod waits for another."""
POD_TEMPLATE = "template.spec.template"
PER_INDEX = "template.spec.backoffLimitPerIndex"
STATUSES = "status.replicatedJobsStatus.*"
READY = "Ready"
MAX_REPLICATED_JOBS = 200
"""Most replicated jobs; each may depend on each."""


class _ReplicatedJob(Struct, frozen=True):
    """A replicated job; ``depends_on``: other jobs' names, with the status required of each.

    ``segments``: how many pods of a Job run at a time, and the segments that they form.
    ``leaders``: the tree until the leaders of its Jobs have nodes, where placement is exclusive,
    else ``tree``.
    """

    name: str
    replicas: int
    tree: Subgroup
    pods: int
    depends_on: tuple[tuple[str, str], ...]
    segments: tuple[int, TemplateTopology]
    leaders: Subgroup


class _Status(Struct, frozen=True):
    ready: int = 0
    succeeded: int = 0


def _gang_template(workload: WorkloadOwner) -> GangTemplate:
    job_set = full_owner(workload)
    statuses = {str(each.get("name")): _status(each) for each in entries(job_set.content, STATUSES)}
    jobs = _replicated_jobs(job_set, workload, statuses)
    if not jobs:
        raise InvalidWorkloadError("spec.replicatedJobs is empty")
    by_name = {job.name: job for job in jobs}
    started = frozenset(job.name for job in jobs if not any(_unmet(job, by_name, statuses)))
    min_members = annotated_count(job_set.metadata, BATCH_MIN_MEMBER_KEY, least=1)

    @cache
    def tree_of(job: str, *, has_followers: bool) -> Subgroup:
        names = started | {job} if job else started
        return _tree(jobs, names, min_members, has_followers=has_followers)

    def tree_with(pod: Pod) -> Subgroup:
        job = pod.metadata.labels.get(REPLICATED_JOB_LABEL, "")
        return tree_of(job if job in by_name else "", has_followers=_pod_index(pod) > 0)

    return GangTemplate(
        tree=tree_of("", has_followers=False),
        tree_with=tree_with,
        subgroup_of=_leaf_reader(jobs),
        order_of=_rank([job.name for job in jobs]),
        total_pods=sum(job.pods for job in jobs if job.name in started),
        expected=tuple(_expected(job_set, by_name, started, statuses)),
    )


def _expected(
    job_set: Unstructured,
    jobs: Mapping[str, _ReplicatedJob],
    started: Set[str],
    statuses: Mapping[str, _Status],
) -> Iterator[ExpectedPods]:
    """Pods that are created while those run that exist now."""
    together = set(started)
    for position, each in enumerate(entries(job_set.content, JOBS)):
        job = jobs[str(each.get("name", ""))]
        unmet = list(_unmet(job, jobs, statuses))
        if unmet and all(name in together and status == READY for name, status in unmet):
            together.add(job.name)
        is_staged = bool(unmet) or job.leaders is not job.tree
        has_ended = statuses.get(job.name, _Status()).succeeded > 0
        if job.name not in together or not is_staged or has_ended or not job.tree.children:
            continue
        location = f"spec.replicatedJobs[{position}].{POD_TEMPLATE}"
        template = mapping_at(each, POD_TEMPLATE)
        pod = pod_of_template(template, job_set.metadata, location)
        for leaf in job.tree.leaves():
            yield ExpectedPods(leaf.name, leaf.min_members, pod)


def _replicated_jobs(
    found: Unstructured, workload: WorkloadOwner, statuses: Mapping[str, _Status]
) -> tuple[_ReplicatedJob, ...]:
    in_order = found.first_at("spec.startupPolicy.startupPolicyOrder") == "InOrder"
    jobs: list[_ReplicatedJob] = []
    total_replicas, budget = 0, SubgroupBudget()
    listed = entries(found.content, JOBS)
    if len(listed) > MAX_REPLICATED_JOBS:
        raise InvalidWorkloadError(
            f"spec.replicatedJobs has {len(listed)} entries, the maximum is {MAX_REPLICATED_JOBS}"
        )
    for position, each in enumerate(listed):
        name = str(each.get("name", ""))
        location = f"spec.replicatedJobs[{position}]"
        replicas = count_at(each, "replicas", 1, location=location)
        total_replicas += replicas
        if total_replicas > MAX_SUBGROUPS:
            raise InvalidWorkloadError(
                f"{location}.replicas: all replicas must be at most {MAX_SUBGROUPS}"
            )
        min_members = [
            _job_min_members(each, location, workload, name, index) for index in range(replicas)
        ]
        level = _exclusive_level(found, each)
        topology, parallelism = _topology(each, location, workload), _parallelism(each, location)
        leaves = tuple(
            budget.counted(
                _exclusive(
                    leaf_of_template(f"{name}-{index}", parallelism, required, topology), level
                )
            )
            for index, required in enumerate(min_members)
        )
        min_subgroups = max(replicas - statuses.get(name, _Status()).succeeded, 0)
        depends_on = [
            (str(dependency.get("name")), str(dependency.get("status")))
            for dependency in entries(each, "dependsOn.*")
        ]
        if in_order and jobs:
            depends_on += [(earlier.name, READY) for earlier in jobs]
        tree = Subgroup(name=name, min_subgroups=min_subgroups if leaves else None, children=leaves)
        jobs.append(
            _ReplicatedJob(
                name,
                replicas,
                tree,
                sum(min_members),
                tuple(depends_on),
                segments=(parallelism, topology),
                leaders=replace(tree, children=tuple(map(_first_pod, leaves))) if level else tree,
            )
        )
    return tuple(jobs)


def _job_min_members(
    each: Mapping[str, Any], location: str, workload: WorkloadOwner, name: str, index: int
) -> int:
    annotations = mapping_at(each, "template.metadata.annotations")
    if BATCH_MIN_MEMBER_KEY in annotations:
        return parse_count(
            annotations[BATCH_MIN_MEMBER_KEY], f"{location}: {BATCH_MIN_MEMBER_KEY}", least=1
        )
    parallelism = _parallelism(each, location)
    completions = count_at(each, "template.spec.completions", parallelism, location=location)
    gives_up_indexes = value_at(each, PER_INDEX) is not None
    if completions <= parallelism and not gives_up_indexes:
        return completions
    meta = workload.link.found.metadata
    job = workload.owners.named("jobs", meta.namespace, f"{meta.name}-{name}-{index}")
    return active_pods(job) if isinstance(job, Job) else min(parallelism, completions)


def _parallelism(each: Mapping[str, Any], location: str) -> int:
    return count_at(each, "template.spec.parallelism", 1, location=location)


def _topology(each: Mapping[str, Any], location: str, workload: WorkloadOwner) -> TemplateTopology:
    """What the templates of pods and of Jobs ask of the pods of each Job."""
    templates = (POD_TEMPLATE, "template")
    return template_topology(
        workload, *(template_annotations(each, template, location) for template in templates)
    )


def _exclusive_level(found: Unstructured, each: Mapping[str, Any]) -> str:
    """The level of which each Job of a replicated job gets a domain, empty where it does not."""
    _, own = template_annotations(each, "template")
    annotations = {**found.metadata.annotations, **own}
    return "" if NODE_SELECTOR_KEY in annotations else str(annotations.get(EXCLUSIVE_KEY) or "")


def _exclusive(leaf: Subgroup, level: str) -> Subgroup:
    return within(leaf, TopologyConstraint(required_level=level)) if level else leaf


def _first_pod(tree: Subgroup) -> Subgroup:
    """``tree`` with a minMember of its first pod."""
    if not tree.children:
        return replace(tree, min_members=min(tree.min_members, 1))
    first, *rest = tree.children
    return replace(tree, children=(_first_pod(first), *(without_minimum(each) for each in rest)))


def _unmet(
    job: _ReplicatedJob, jobs: Mapping[str, _ReplicatedJob], statuses: Mapping[str, _Status]
) -> Iterator[tuple[str, str]]:
    """What a replicated job still waits for: other jobs' names, with the status required."""
    for name, required_status in job.depends_on:
        status = statuses.get(name, _Status())
        done = status.succeeded + (status.ready if required_status == READY else 0)
        if name in jobs and done < jobs[name].replicas:
            yield name, required_status


def _tree(
    jobs: Sequence[_ReplicatedJob],
    started: Set[str],
    min_members: int | None,
    *,
    has_followers: bool,
) -> Subgroup:
    """The tree with ``started`` jobs; ``min_members``: how many of them are enough."""
    trees = [job.tree if has_followers else job.leaders for job in jobs]
    children = tuple(
        tree if job.name in started or not tree.children else replace(tree, min_subgroups=0)
        for job, tree in zip(jobs, trees, strict=True)
    )
    needed = (
        None if min_members is None else min(min_members, len(started)) + len(jobs) - len(started)
    )
    return Subgroup(min_subgroups=needed, children=children)


def _status(each: Mapping[str, Any]) -> _Status:
    return _Status(count_at(each, "ready", 0), count_at(each, "succeeded", 0))


def _leaf_reader(jobs: Sequence[_ReplicatedJob]) -> Callable[[Pod], str]:
    segments = {job.name: job.segments for job in jobs if job.segments[1].segment_size}

    def leaf(pod: Pod) -> str:
        labels = pod.metadata.labels
        job = labels.get(REPLICATED_JOB_LABEL, "")
        name = f"{job}-{labels.get(JOB_INDEX_LABEL, '0')}"
        if job not in segments:
            return name
        return leaf_reader(name, *segments[job], COMPLETION_INDEX_LABEL)(pod)

    return leaf


_pod_index = number_label_reader(COMPLETION_INDEX_LABEL)


def _rank(names: Sequence[str]) -> Callable[[Pod], int]:
    """Replicated jobs in listing order, in each the Jobs and their pods by index."""
    positions = {name: position for position, name in enumerate(names)}
    job_index = number_label_reader(JOB_INDEX_LABEL)

    def rank(pod: Pod) -> int:
        position = positions.get(pod.metadata.labels.get(REPLICATED_JOB_LABEL, ""), 0)
        return (position << 40) + (job_index(pod) << 20) + _pod_index(pod)

    return rank


JOB_SET = Framework(
    field_paths=(
        "spec.startupPolicy.startupPolicyOrder",
        f"{JOBS}.name",
        f"{JOBS}.replicas",
        f"{JOBS}.dependsOn",
        f"{JOBS}.template.metadata.annotations",
        *template_paths(f"{JOBS}.{POD_TEMPLATE}"),
        f"{JOBS}.template.spec.parallelism",
        f"{JOBS}.template.spec.completions",
        f"{JOBS}.{PER_INDEX}",
        f"{STATUSES}.name",
        f"{STATUSES}.ready",
        f"{STATUSES}.succeeded",
    ),
    gang_template=_gang_template,
)
