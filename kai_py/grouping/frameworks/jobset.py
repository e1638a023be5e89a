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
from kai_py.api.records.document import Document
from kai_py.api.records.job import Job
from kai_py.grouping.blueprint import (
    Blueprint,
    Framework,
    Unusable,
    Workload,
    number_label,
    whole_document,
)
from kai_py.grouping.counts import count_at, entries, marked_count, whole
from kai_py.grouping.frameworks.job import COMPLETION_INDEX_LABEL, active_pods
from kai_py.grouping.gang import Subgroup

REPLICATED_JOB_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX_LABEL = "jobset.sigs.k8s.io/job-index"
MIN_MEMBERS_KEY = "kai.scheduler/batch-min-member"
JOBS = "spec.replicatedJobs.*"
STATUSES = "status.replicatedJobsStatus.*"
READY = "Ready"


@dataclass(frozen=True, slots=True)
class _Replicated:
    """A replicated job; ``after``: names it depends on, and the state they must have."""

    name: str
    replicas: int
    tree: Subgroup
    pods: int
    after: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Status:
    ready: int = 0
    succeeded: int = 0


def _blueprint(workload: Workload) -> Blueprint:
    found = whole_document(workload)
    statuses = {str(each.get("name")): _status(each) for each in entries(found.content, STATUSES)}
    jobs = _replicated_jobs(found, workload, statuses)
    if not jobs:
        raise Unusable("spec.replicatedJobs is empty")
    by_name = {job.name: job for job in jobs}
    due = [job.name for job in jobs if _is_due(job, by_name, statuses)]
    least = marked_count(found.metadata, MIN_MEMBERS_KEY)
    waiting = [job for job in jobs if job.name not in due]
    tree = _tree(jobs, due, least)
    trees = {job.name: _tree(jobs, [*due, job.name], least) for job in waiting}
    return Blueprint(
        tree=tree,
        grown=lambda pod: trees.get(pod.metadata.labels.get(REPLICATED_JOB_LABEL, ""), tree),
        leaf=_leaf,
        rank=_rank([job.name for job in jobs]),
        expected_pods=sum(job.pods for job in jobs if job.name in due),
    )


def _replicated_jobs(
    found: Document, workload: Workload, statuses: Mapping[str, _Status]
) -> tuple[_Replicated, ...]:
    in_order = found.first_at("spec.startupPolicy.startupPolicyOrder") == "InOrder"
    jobs: list[_Replicated] = []
    for position, each in enumerate(entries(found.content, JOBS)):
        name = str(each.get("name", ""))
        where = f"spec.replicatedJobs[{position}]"
        replicas = count_at(each, "replicas", 1, where=where)
        floors = [_leaf_floor(each, where, workload, name, index) for index in range(replicas)]
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
        jobs.append(_Replicated(name, replicas, tree, sum(floors), tuple(after)))
    return tuple(jobs)


def _leaf_floor(
    each: Mapping[str, Any], where: str, workload: Workload, name: str, index: int
) -> int:
    marks = next(iter(entries(each, "template.metadata.annotations")), {})
    if MIN_MEMBERS_KEY in marks:
        return whole(marks[MIN_MEMBERS_KEY], f"{where}: {MIN_MEMBERS_KEY}")
    parallelism = count_at(each, "template.spec.parallelism", 1, where=where)
    completions = count_at(each, "template.spec.completions", parallelism, where=where)
    if completions <= parallelism:
        return completions
    meta = workload.link.found.metadata
    job = workload.owners.named("jobs", meta.namespace, f"{meta.name}-{name}-{index}")
    return active_pods(job) if isinstance(job, Job) else parallelism


def _is_due(
    job: _Replicated, jobs: Mapping[str, _Replicated], statuses: Mapping[str, _Status]
) -> bool:
    for name, wanted in job.after:
        status = statuses.get(name, _Status())
        done = status.succeeded + (status.ready if wanted == READY else 0)
        if name in jobs and done < jobs[name].replicas:
            return False
    return True


def _tree(jobs: Sequence[_Replicated], due: Sequence[str], least: int | None) -> Subgroup:
    """``least``: how many of the due replicated jobs are enough."""
    children = tuple(
        job.tree if job.name in due or not job.tree.children else replace(job.tree, min_subgroups=0)
        for job in jobs
    )
    needed = None if least is None else min(least, len(due)) + len(jobs) - len(due)
    return Subgroup(min_subgroups=needed, children=children)


def _status(each: Mapping[str, Any]) -> _Status:
    return _Status(count_at(each, "ready", 0), count_at(each, "succeeded", 0))


def _leaf(pod: Pod) -> str:
    labels = pod.metadata.labels
    return f"{labels.get(REPLICATED_JOB_LABEL, '')}-{labels.get(JOB_INDEX_LABEL, '0')}"


def _rank(names: Sequence[str]) -> Callable[[Pod], int]:
    """Replicated jobs in listing order, in each the Jobs and their pods by index."""
    positions = {name: position for position, name in enumerate(names)}
    job_index, pod_index = number_label(JOB_INDEX_LABEL), number_label(COMPLETION_INDEX_LABEL)

    def rank(pod: Pod) -> int:
        position = positions.get(pod.metadata.labels.get(REPLICATED_JOB_LABEL, ""), 0)
        return (position << 40) + (job_index(pod) << 20) + pod_index(pod)

    return rank


JOB_SET = Framework(
    paths=(
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
    blueprint=_blueprint,
)
