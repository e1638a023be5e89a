"""JobSet: a subgroup per replicated job, in it a leaf per Job, all of them needed at once.

    leaf floor   = pods that the Job runs at a time
    needed Jobs  = replicas - succeeded, of every replicated job that is due

A replicated job is due when what it depends on (``dependsOn``, or the ones before it with
``startupPolicyOrder: InOrder``) is as far as it asks for. Until then its pods do not exist, and a
floor with them in it would never be reached. Once a pod of it exists it is due, whatever the
status, which lags behind, says.

Source: jobset.x-k8s.io/v1alpha2, KEP-672 (DependsOn), KEP-262 (startup policy).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kai_py.api.records.core import Pod
from kai_py.api.records.job import Job
from kai_py.api.records.unstructured import Unstructured
from kai_py.grouping.counts import annotated_count, count_at, entries, parse_count
from kai_py.grouping.frameworks.job import COMPLETION_INDEX_LABEL, active_pods
from kai_py.grouping.gang import Subgroup
from kai_py.grouping.gang_template import (
    Framework,
    GangTemplate,
    InvalidWorkloadError,
    WorkloadOwner,
    full_owner,
    number_label_reader,
)

REPLICATED_JOB_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX_LABEL = "jobset.sigs.k8s.io/job-index"
MIN_MEMBERS_KEY = "kai.scheduler/batch-min-member"
JOBS = "spec.replicatedJobs.*"
STATUSES = "status.replicatedJobsStatus.*"
READY = "Ready"


@dataclass(frozen=True, slots=True)
class _ReplicatedJob:
    """A replicated job; ``after``: names it depends on, and the state they must have."""

    name: str
    replicas: int
    tree: Subgroup
    pods: int
    depends_on: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Status:
    ready: int = 0
    succeeded: int = 0


def _gang_template(workload: WorkloadOwner) -> GangTemplate:
    found = full_owner(workload)
    statuses = {str(each.get("name")): _status(each) for each in entries(found.content, STATUSES)}
    jobs = _replicated_jobs(found, workload, statuses)
    if not jobs:
        raise InvalidWorkloadError("spec.replicatedJobs is empty")
    by_name = {job.name: job for job in jobs}
    due = [job.name for job in jobs if _is_started(job, by_name, statuses)]
    least = annotated_count(found.metadata, MIN_MEMBERS_KEY)
    waiting = [job for job in jobs if job.name not in due]
    tree = _tree(jobs, due, least)
    trees = {job.name: _tree(jobs, [*due, job.name], least) for job in waiting}
    return GangTemplate(
        tree=tree,
        tree_with=lambda pod: trees.get(pod.metadata.labels.get(REPLICATED_JOB_LABEL, ""), tree),
        subgroup_of=_leaf,
        order_of=_rank([job.name for job in jobs]),
        total_pods=sum(job.pods for job in jobs if job.name in due),
    )


def _replicated_jobs(
    found: Unstructured, workload: WorkloadOwner, statuses: Mapping[str, _Status]
) -> tuple[_ReplicatedJob, ...]:
    in_order = found.first_at("spec.startupPolicy.startupPolicyOrder") == "InOrder"
    jobs: list[_ReplicatedJob] = []
    for position, each in enumerate(entries(found.content, JOBS)):
        name = str(each.get("name", ""))
        where = f"spec.replicatedJobs[{position}]"
        replicas = count_at(each, "replicas", 1, location=where)
        floors = [_job_min_members(each, where, workload, name, index) for index in range(replicas)]
        leaves = tuple(
            Subgroup(name=f"{name}-{index}", min_members=floor)
            for index, floor in enumerate(floors)
        )
        needed = max(replicas - statuses.get(name, _Status()).succeeded, 0)
        after = [
            (str(on.get("name")), str(on.get("status"))) for on in entries(each, "dependsOn.*")
        ]
        if in_order and jobs:
            after += [(before.name, READY) for before in jobs]
        tree = Subgroup(name=name, min_subgroups=needed if leaves else None, children=leaves)
        jobs.append(_ReplicatedJob(name, replicas, tree, sum(floors), tuple(after)))
    return tuple(jobs)


def _job_min_members(
    each: Mapping[str, Any], location: str, workload: WorkloadOwner, name: str, index: int
) -> int:
    marks = next(iter(entries(each, "template.metadata.annotations")), {})
    if MIN_MEMBERS_KEY in marks:
        return parse_count(marks[MIN_MEMBERS_KEY], f"{location}: {MIN_MEMBERS_KEY}")
    parallelism = count_at(each, "template.spec.parallelism", 1, location=location)
    completions = count_at(each, "template.spec.completions", parallelism, location=location)
    if completions <= parallelism:
        return completions
    meta = workload.link.found.metadata
    job = workload.owners.named("jobs", meta.namespace, f"{meta.name}-{name}-{index}")
    return active_pods(job) if isinstance(job, Job) else parallelism


def _is_started(
    job: _ReplicatedJob, jobs: Mapping[str, _ReplicatedJob], statuses: Mapping[str, _Status]
) -> bool:
    for name, wanted in job.depends_on:
        status = statuses.get(name, _Status())
        done = status.succeeded + (status.ready if wanted == READY else 0)
        if name in jobs and done < jobs[name].replicas:
            return False
    return True


def _tree(
    jobs: Sequence[_ReplicatedJob], started: Sequence[str], min_members: int | None
) -> Subgroup:
    """``least``: how many of the due replicated jobs are enough."""
    children = tuple(
        job.tree
        if job.name in started or not job.tree.children
        else replace(job.tree, min_subgroups=0)
        for job in jobs
    )
    needed = (
        None if min_members is None else min(min_members, len(started)) + len(jobs) - len(started)
    )
    return Subgroup(min_subgroups=needed, children=children)


def _status(each: Mapping[str, Any]) -> _Status:
    return _Status(count_at(each, "ready", 0), count_at(each, "succeeded", 0))


def _leaf(pod: Pod) -> str:
    labels = pod.metadata.labels
    return f"{labels.get(REPLICATED_JOB_LABEL, '')}-{labels.get(JOB_INDEX_LABEL, '0')}"


def _rank(names: Sequence[str]) -> Callable[[Pod], int]:
    """Replicated jobs in listing order, in each the Jobs and their pods by index."""
    positions = {name: position for position, name in enumerate(names)}
    job_index, pod_index = (
        number_label_reader(JOB_INDEX_LABEL),
        number_label_reader(COMPLETION_INDEX_LABEL),
    )

    def rank(pod: Pod) -> int:
        position = positions.get(pod.metadata.labels.get(REPLICATED_JOB_LABEL, ""), 0)
        return (position << 40) + (job_index(pod) << 20) + pod_index(pod)

    return rank


JOB_SET = Framework(
    field_paths=(
        "spec.startupPolicy.startupPolicyOrder",
        f"{JOBS}.name",
        f"{JOBS}.replicas",
        f"{JOBS}.dependsOn",
        f"{JOBS}.template.metadata.annotations",
        f"{JOBS}.template.spec.parallelism",
        f"{JOBS}.template.spec.completions",
        f"{STATUSES}.name",
        f"{STATUSES}.ready",
        f"{STATUSES}.succeeded",
    ),
    gang_template=_gang_template,
)
