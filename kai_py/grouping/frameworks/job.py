"""Jobs, Deployments and StatefulSets of Kubernetes: which of their pods are one gang.

The parallel pods of a batch/v1 Job are one gang, unless it sets a smaller minMember:

    minMember = min-available, else KAI's or Kueue's key for it, else spec.scheduling (Kubernetes
                1.37; its basic policy is a minMember of 1), else 1 with KAI's defaults and where
                Kueue lets the Job grow, else all pods that run at a time

Pods that run at a time: min(parallelism, completions - succeeded - failed indexes); minMember is
never above that, or the last pods of a Job would wait forever. A Job without a queue is no gang.

The pods of a Deployment or StatefulSet are one gang where KAI's annotation sets minMember. Without
it, each pod is a gang of its own, or one pod starts the gang (StatefulSets with KAI's queue label).

    StatefulSet  ``kai.scheduler/min-member``; needs ``podManagementPolicy: Parallel``, as with
                 OrderedReady no pod is created before the one before it is ready
    Deployment   ``kai.scheduler/batch-min-member``; the pods of all its revisions, so that a
                 roll-out does not wait for the revision it replaces

Source: KAI-Scheduler, pkg/podgrouper/podgrouper/plugins/statefulset and plugins/deployment.
"""

from kai_py.api.records.job import Job
from kai_py.grouping.annotations import MIN_AVAILABLE_KEY
from kai_py.grouping.counts import annotated_count, count_at
from kai_py.grouping.gang import Subgroup
from kai_py.grouping.gang_template import (
    Framework,
    GangTemplate,
    InvalidWorkloadError,
    WorkloadOwner,
    annotation_or_label,
    full_owner,
    number_label_reader,
)
from kai_py.grouping.queue_choice import Defaults

COMPLETION_INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
BATCH_MIN_MEMBER_KEY = "kai.scheduler/batch-min-member"
"""KAI's, of Jobs, JobSets and Deployments."""
MIN_MEMBERS_KEYS = (
    MIN_AVAILABLE_KEY,
    BATCH_MIN_MEMBER_KEY,
    "kueue.x-k8s.io/job-min-parallelism",
)
"""With KAI's defaults only the first is read here: the KAI dialect reads the others."""
ELASTIC_KEY = "kueue.x-k8s.io/elastic-job"


def active_pods(job: Job) -> int:
    """How many pods the Job controller runs at a time: fewer when little is left to complete."""
    parallelism = job.spec.pods_at_a_time
    if job.spec.completions is None:
        return parallelism
    return max(min(parallelism, job.spec.completions - job.status.ended_completions), 0)


def _gang_template(workload: WorkloadOwner) -> GangTemplate:
    job = workload.link.found
    if not isinstance(job, Job):
        raise InvalidWorkloadError("its spec cannot be read, so the size of the gang is unknown")
    parallel = active_pods(job)
    min_members, problem = _min_members(job, workload, parallel)
    return GangTemplate(
        tree=Subgroup(min_members=min_members),
        order_of=number_label_reader(COMPLETION_INDEX_LABEL),
        total_pods=parallel,
        problem=problem,
    )


def _min_members(job: Job, workload: WorkloadOwner, parallel: int) -> tuple[int, str]:
    has_kai_defaults = workload.defaults is Defaults.KAI
    annotated = annotated_count(
        job.metadata, *(MIN_MEMBERS_KEYS[:1] if has_kai_defaults else MIN_MEMBERS_KEYS)
    )
    if annotated is not None:
        return reachable_min_members(job, annotated)
    policy = job.spec.scheduling.scheduling_policy if job.spec.scheduling is not None else None
    if policy is not None and policy.gang is not None:
        return min(policy.gang.min_count or parallel, parallel), ""
    one_by_one = has_kai_defaults or not workload.has_queue or _is_elastic(job)
    basic = policy is not None and policy.basic is not None
    return (1 if one_by_one or basic else parallel), ""


def _is_elastic(job: Job) -> bool:
    """Whether Kueue lets the Job grow while it runs: pods added later must not be required."""
    return annotation_or_label(job.metadata, ELASTIC_KEY) == "true"


def reachable_min_members(job: Job, min_members: int) -> tuple[int, str]:
    """``min_members``, as far as pods are left to complete, and what is wrong with it."""
    parallelism = job.spec.pods_at_a_time
    max_pods = min(
        parallelism, parallelism if job.spec.completions is None else job.spec.completions
    )
    if min_members > max_pods:
        return (
            min_members,
            f"minMember {min_members} can never be reached: at most {max_pods} pods exist at once",
        )
    return min(min_members, active_pods(job)), ""


JOB = Framework(field_paths=(), gang_template=_gang_template)


MIN_MEMBER_KEY = "kai.scheduler/min-member"
POLICY = "spec.podManagementPolicy"
REPLICAS = "spec.replicas"
POD_INDEX_LABEL = "apps.kubernetes.io/pod-index"


def _stateful_set(workload: WorkloadOwner) -> GangTemplate:
    found = full_owner(workload)
    min_members = annotated_count(found.metadata, MIN_MEMBER_KEY, least=1) or 1
    replicas = count_at(found.content, REPLICAS, 1)
    policy = found.first_at(POLICY) or "OrderedReady"
    if min_members > 1 and policy != "Parallel":
        raise InvalidWorkloadError(
            f"{MIN_MEMBER_KEY} {min_members} needs {POLICY} Parallel: with {policy}, each pod is "
            "created once the one before it is ready"
        )
    if min_members > max(replicas, 1):
        raise InvalidWorkloadError(
            f"minMember {min_members} can never be reached: {REPLICAS} is {replicas}"
        )
    return GangTemplate(
        tree=Subgroup(min_members=min_members),
        order_of=number_label_reader(POD_INDEX_LABEL),
        total_pods=replicas,
    )


def _deployment(workload: WorkloadOwner) -> GangTemplate:
    annotated = annotated_count(workload.link.found.metadata, BATCH_MIN_MEMBER_KEY, least=1)
    return GangTemplate(tree=Subgroup(min_members=annotated or 1))


STATEFUL_SET = Framework(field_paths=(POLICY, REPLICAS), gang_template=_stateful_set)
DEPLOYMENT = Framework(field_paths=(), gang_template=_deployment)
