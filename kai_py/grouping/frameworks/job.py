"""batch/v1 Job: its parallel pods are one gang, unless it says how many it needs.

    floor = min-available, else KAI's or Kueue's word for it, else spec.scheduling (Kubernetes
            1.37; its basic policy is a floor of 1), else 1 in KAI's words and where Kueue lets
            the Job grow, else all pods that run at a time

Pods that run at a time: min(parallelism, completions - succeeded); no floor is above that, or the
last pods of a Job would wait for ever. A Job without a queue is no gang: nobody asked for one.
"""

from kai_py.api.records.job import Job
from kai_py.grouping.blueprint import Blueprint, Framework, Unusable, Workload, number_label
from kai_py.grouping.counts import marked_count
from kai_py.grouping.explicit import MIN_AVAILABLE_KEY
from kai_py.grouping.gang import Subgroup
from kai_py.grouping.marks import marked
from kai_py.grouping.queue_choice import Defaults

COMPLETION_INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
FLOOR_KEYS = (
    MIN_AVAILABLE_KEY,
    "kai.scheduler/batch-min-member",
    "kueue.x-k8s.io/job-min-parallelism",
)
"""In KAI's words only the first is read here: its dialect knows the others' defaults."""
ELASTIC_KEY = "kueue.x-k8s.io/elastic-job"


def active_pods(job: Job) -> int:
    """How many pods the Job controller keeps at a time: fewer when little is left to complete."""
    parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
    if job.spec.completions is None:
        return parallelism
    return max(min(parallelism, job.spec.completions - job.status.succeeded), 0)


def _blueprint(workload: Workload) -> Blueprint:
    job = workload.link.found
    if not isinstance(job, Job):
        raise Unusable("its spec is not known, so neither is the size of the gang")
    parallel = active_pods(job)
    floor, problem = _floor(job, workload, parallel)
    return Blueprint(
        tree=Subgroup(min_members=floor),
        rank=number_label(COMPLETION_INDEX_LABEL),
        expected_pods=parallel,
        problem=problem,
    )


def _floor(job: Job, workload: Workload, parallel: int) -> tuple[int, str]:
    in_kai_words = workload.defaults is Defaults.KAI
    written = marked_count(job.metadata, *(FLOOR_KEYS[:1] if in_kai_words else FLOOR_KEYS))
    if written is not None:
        return reachable(job, written)
    policy = job.spec.scheduling.scheduling_policy if job.spec.scheduling is not None else None
    if policy is not None and policy.gang is not None:
        return min(policy.gang.min_count or parallel, parallel), ""
    one_by_one = in_kai_words or not workload.has_queue or _is_elastic(job)
    basic = policy is not None and policy.basic is not None
    return (1 if one_by_one or basic else parallel), ""


def _is_elastic(job: Job) -> bool:
    """Whether Kueue lets the Job grow while it runs: what is added later must not be missed."""
    return marked(job.metadata, ELASTIC_KEY) == "true"


def reachable(job: Job, floor: int) -> tuple[int, str]:
    """``floor``, as far as pods are left to complete, and what is wrong with it."""
    parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
    most = min(parallelism, parallelism if job.spec.completions is None else job.spec.completions)
    if floor > most:
        return floor, f"a gang of {floor} can never start: at most {most} pods exist at once"
    return min(floor, active_pods(job)), ""


JOB = Framework(paths=(), blueprint=_blueprint)
