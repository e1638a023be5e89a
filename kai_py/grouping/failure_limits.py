"""Failure limits: how many evicted pods a workload survives before its controller fails it.

    Job        backoffLimit (6 by default) - failed, unless podFailurePolicy ignores evictions;
               with backoffLimitPerIndex also that limit for the index of the pod
    JobSet     a Job that fails costs a restart (failurePolicy.maxRestarts, none by default); with
               the action RestartJob each Job that fails costs one
    RayJob     a head, or a submitter's Job, that fails costs a retry (backoffLimit, 0 by default)
    MPIJob     an evicted worker ends the launcher, which costs a retry of runPolicy.backoffLimit
    Volcano    a policy for PodEvicted: RestartJob costs a retry (maxRetry, 3 by default), AbortJob,
               TerminateJob and CompleteJob end it; without one the pod is made again
    other jobs of Kubeflow's training operator: runPolicy.backoffLimit, if set; a replica whose
               restartPolicy is Never may not fail at all; neither may one of a TFJob, but for
               workers with enableDynamicWorker, nor one of an XGBoostJob or an MPIJob (v1) but
               with restartPolicy ExitCode: the operator counts a deleted pod as failed

A pod of a Job counts as failed when it is deleted, or with ``podReplacementPolicy: Failed`` when it
has ended, so both count alike. Of ``podFailurePolicy`` the first rule that matches decides: evicted
pods have the condition DisruptionTarget, and their processes exit with 143 or 137.

Sources: batch/v1 Job, KEP-3329 (pod failure policy), KEP-3850 (backoff limit per index), KEP-3939
(pod replacement policy); JobSet KEP-262 (failure policy; RestartJob as of v0.12); kubeflow.org/v1
and v2beta1; ray.io/v1; training operator v1.9.2 (UpdateJobReplicaStatuses, and UpdateJobStatus of
each kind).
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from kai_py.api.numbers import MAX_COUNT, parse_int64
from kai_py.api.records.core import Pod
from kai_py.api.records.job import Job, PodFailurePolicy, PodFailureRule
from kai_py.api.records.unstructured import Unstructured, values_at
from kai_py.api.texts import count_of
from kai_py.grouping.gang import FailureLimit, named_owner
from kai_py.grouping.owner_chain import GroupKind, OwnerChain, OwnerLink

DEFAULT_BACKOFF_LIMIT = 6
"""The default backoffLimit of Jobs, and of the launchers of MPIJobs."""

INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"
INDEX_FAILURES_ANNOTATION = "batch.kubernetes.io/job-index-failure-count"
REPLICATED_JOB_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_RESTARTS = "status.replicatedJobsStatus.*.jobRestartsCountTowardsMax"
"""In a JobSet: for each replicated job, how often each of its Jobs was restarted alone."""
REPLICA_TYPE_LABEL = "training.kubeflow.org/replica-type"
VOLCANO_TASK_LABEL = "volcano.sh/task-spec"
VOLCANO_ENDS = frozenset({"AbortJob", "TerminateJob", "CompleteJob"})
VOLCANO_RETRIES = 3
RAY_NODE_TYPE_LABEL = "ray.io/node-type"
EXIT_CODES = frozenset({137, 143})
"""Exit codes of processes that end by SIGKILL and SIGTERM, as those of evicted pods do."""


def failure_limits(chain: OwnerChain) -> tuple[FailureLimit, ...]:
    """What the workloads that own the pod survive; none if they survive every eviction."""
    limits: tuple[FailureLimit, ...] = ()
    for link in chain.owners:
        if isinstance(link.found, Job):
            limits = tuple(_job_limits(link, link.found, chain.pod))
        elif link.kind in _WRAPPERS:
            limits = _WRAPPERS[link.kind](link, chain.pod, limits)
    return _kept_once(limits) if limits else limits


def failure_limit_paths(kind: GroupKind) -> tuple[str, ...]:
    """The fields of owners of ``kind`` that ``failure_limits`` reads."""
    return _PATHS.get(kind, ())


def _job_limits(link: OwnerLink, job: Job, pod: Pod) -> Iterator[FailureLimit]:
    spec, annotations = job.spec, pod.metadata.annotations
    number, action = _action_on_eviction(spec.pod_failure_policy)
    if action == "Ignore":
        return
    if action == "FailJob":
        cause = f"spec.podFailurePolicy.rules[{number}] fails the Job"
        yield _limit(link, 0, cause)
        return
    per_index = spec.backoff_limit_per_index
    if per_index is not None:
        index = annotations.get(INDEX_ANNOTATION, "")
        failed = parse_int64(annotations.get(INDEX_FAILURES_ANNOTATION, "0")) or 0
        # The failures are those at the pod's creation, and what was left then is the limit that
        # it was admitted with: what its tenant writes there later protects nothing.
        remaining = 0 if action == "FailIndex" else max(per_index - failed, 0)
        cause = f"spec.backoffLimitPerIndex is {per_index}"
        yield _limit(link, remaining, cause, part=f"/{index}", most=remaining)
        if action == "FailIndex":
            return
    default = DEFAULT_BACKOFF_LIMIT if per_index is None else MAX_COUNT
    backoff = default if spec.backoff_limit is None else spec.backoff_limit
    failed_pods = job.status.failed_pods
    have = "has" if failed_pods == 1 else "have"
    already = f", and {count_of(failed_pods, 'pod')} {have} failed" if failed_pods > 0 else ""
    if backoff < MAX_COUNT:
        cause = f"spec.backoffLimit is {backoff}{already}"
        yield _limit(link, backoff - failed_pods, cause, most=backoff)


def _action_on_eviction(policy: PodFailurePolicy | None) -> tuple[int, str]:
    """Position and action of the first rule that matches an evicted pod, else (-1, "Count")."""
    rules = () if policy is None else policy.rules
    return next(((n, rule.action) for n, rule in enumerate(rules) if _matches(rule)), (-1, "Count"))


def _matches(rule: PodFailureRule) -> bool:
    disrupted = any(
        each.type == "DisruptionTarget" and each.status in ("", "True")
        for each in rule.on_pod_conditions
    )
    codes = rule.on_exit_codes
    if disrupted or codes is None:
        return disrupted
    return any((code in codes.values) is (codes.operator == "In") for code in EXIT_CODES)


Limits = tuple[FailureLimit, ...]


@lru_cache(maxsize=4096)
def _kept_once(limits: Limits) -> Limits:
    """Itself; pods of one workload, which are read one after the other, share one copy."""
    return limits


def _job_set(link: OwnerLink, pod: Pod, below: Limits) -> Limits:
    """``below``, unless the JobSet restarts when the Job of the pod has failed."""
    found = link.found
    if not below or not isinstance(found, Unstructured):
        return below
    if found.first_at("spec.failurePolicy") is None:
        return _also(below, link, "it has no spec.failurePolicy")
    replicated_job = pod.metadata.labels.get(REPLICATED_JOB_LABEL, "")
    action = _job_set_action(found, replicated_job)
    if action.endswith("IgnoreMaxRestarts"):
        return ()
    if not action.startswith("Restart"):
        return _also(below, link, f"a rule of spec.failurePolicy has action {action}")
    most = _count(found, "spec.failurePolicy.maxRestarts", 0)
    left, cause = most - _job_set_restarts(found), f"spec.failurePolicy.maxRestarts is {most}"
    if action == "RestartJob" and most > 0:
        # The loss of any pod may fail its Job. Pods of the other Jobs keep running, with the limit
        # that they were admitted with.
        job = below[0].owner.name
        return (replace(_limit(link, left, cause, most=most), counted_once=job),)
    return () if left > 0 else _also(below, link, cause)


def _job_set_restarts(found: Unstructured) -> int:
    """How many restarts of all Jobs, and of single ones, count towards its maximum."""
    of_all = _count(found, "status.restartsCountTowardsMax", _count(found, "status.restarts", 0))
    of_one = values_at(found.content, f"{JOB_RESTARTS}.*")
    return of_all + sum(each for each in of_one if isinstance(each, int))


def _job_set_action(found: Unstructured, replicated_job: str) -> str:
    """The action of the first rule of the failure policy for the Job of an evicted pod."""
    for rule in values_at(found.content, "spec.failurePolicy.rules.*"):
        if not isinstance(rule, dict):
            continue
        targets, reasons = rule.get("targetReplicatedJobs"), rule.get("onJobFailureReasons")
        concerned = not targets or (isinstance(targets, list) and replicated_job in targets)
        expected = not reasons or (isinstance(reasons, list) and "BackoffLimitExceeded" in reasons)
        if concerned and expected and not rule.get("onJobFailureMessagePatterns"):
            return str(rule.get("action"))
    return "RestartJobSet"


def _ray_job(link: OwnerLink, pod: Pod, below: Limits) -> Limits:
    """The submitter's limits, or that of the head; Ray replaces its workers."""
    is_head = pod.metadata.labels.get(RAY_NODE_TYPE_LABEL) == "head"
    found = link.found
    if not isinstance(found, Unstructured):
        return below
    retries = _count(found, "spec.backoffLimit", 0)
    if _count(found, "status.failed", 0) < retries:
        return ()
    cause = f"spec.backoffLimit is {retries}"
    return (_limit(link, 0, cause, part="/head"),) if is_head else _also(below, link, cause)


def _mpi_job(link: OwnerLink, pod: Pod, below: Limits) -> Limits:
    """The limits of the launcher's Job; of pods without a Job what is left to the launcher."""
    found = link.found
    if below or not isinstance(found, Unstructured):
        return below
    if link.reference.api_version == TRAINING_OPERATOR:
        return _training_job(link, pod, below)
    most = _count(found, "spec.runPolicy.backoffLimit", DEFAULT_BACKOFF_LIMIT)
    if _count(found, "status.replicaStatuses.Launcher.failed", 0) < most:
        return ()
    return (_limit(link, 0, f"spec.runPolicy.backoffLimit is {most}"),)


def _training_job(link: OwnerLink, pod: Pod, below: Limits) -> Limits:
    found = link.found
    if not isinstance(found, Unstructured):
        return below
    role = pod.metadata.labels.get(REPLICA_TYPE_LABEL, "").lower()
    for specs in values_at(found.content, "spec"):
        for name, replicas in _replica_specs(specs):
            cause = _end_of_job(link.kind.kind, found, name, replicas)
            if name.lower() == role and cause:
                return (_limit(link, 0, cause),)
    if found.first_at("spec.runPolicy.backoffLimit") is None:
        return below
    most = _count(found, "spec.runPolicy.backoffLimit", 0)
    failed = sum(
        each
        for each in values_at(found.content, "status.replicaStatuses.*.failed")
        if isinstance(each, int)
    )
    return (_limit(link, most - failed, f"spec.runPolicy.backoffLimit is {most}", most=most),)


def _volcano_job(link: OwnerLink, pod: Pod, below: Limits) -> Limits:
    """What its policies do when a pod is evicted; without one its controller makes it again."""
    found = link.found
    if not isinstance(found, Unstructured):
        return below
    task = pod.metadata.labels.get(VOLCANO_TASK_LABEL, "")
    tasks = (each for each in values_at(found.content, "spec.tasks.*") if isinstance(each, dict))
    own = next((each for each in tasks if each.get("name") == task), {})
    for where, policies in (("its task", own), ("spec.policies", found.content.get("spec"))):
        action = _volcano_action(policies.get("policies") if isinstance(policies, dict) else None)
        if action in VOLCANO_ENDS:
            return (_limit(link, 0, f"a policy of {where} has action {action} for PodEvicted"),)
        if action == "RestartJob":
            most = _count(found, "spec.maxRetry", VOLCANO_RETRIES)
            left = most - _count(found, "status.retryCount", 0)
            return (_limit(link, left, f"spec.maxRetry is {most}", most=most),)
        if action:
            return below
    return below


def _volcano_action(policies: Any) -> str:
    """The action for evicted pods; empty without one."""
    for each in policies if isinstance(policies, list) else ():
        if not isinstance(each, dict):
            continue
        listed = each.get("events")
        events = [each.get("event"), *(listed if isinstance(listed, list) else ())]
        if "PodEvicted" in events or "*" in events:
            return str(each.get("action"))
    return ""


def _end_of_job(kind: str, found: Unstructured, name: str, replicas: Mapping[str, Any]) -> str:
    """Why the job fails once it loses a pod of a role, empty if it does not."""
    if kind == "TFJob":
        is_dynamic = name.lower() == "worker" and found.first_at(DYNAMIC_WORKERS) is True
        return "" if is_dynamic else "a TFJob fails with the first pod that is deleted"
    policy = replicas.get("restartPolicy")
    if kind in _ENDED_UNLESS_EXIT_CODE and policy != "ExitCode":
        return f"restartPolicy of its {name} is {policy or 'Never'}, not ExitCode"
    return f"restartPolicy of its {name} is Never" if policy == "Never" else ""


def _replica_specs(spec: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for key, value in spec.items() if isinstance(spec, dict) else ():
        if key.endswith("ReplicaSpecs") and isinstance(value, dict):
            yield from ((name, each) for name, each in value.items() if isinstance(each, dict))


def _limit(
    link: OwnerLink, remaining: int, cause: str, *, part: str = "", most: int = 0
) -> FailureLimit:
    reference = link.reference
    owner = named_owner(reference, link.found.metadata.namespace)
    bounded = min(max(remaining, 0), MAX_COUNT)
    failed = max(most - remaining, 0)
    return FailureLimit(f"{reference.uid}{part}", owner, bounded, cause, most, failed)


def _also(below: Limits, link: OwnerLink, cause: str) -> Limits:
    """``below``, with why the workload of ``link`` fails with the one below it."""
    above = _limit(link, 0, cause)
    return tuple(
        replace(each, owner=above.owner, cause=f"{cause}, and its {each}") for each in below
    )


def _count(found: Unstructured, path: str, default: int) -> int:
    """A count that its controller checks; what is none counts as 0, which protects more."""
    value = found.first_at(path)
    if value is None:
        return default
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


VOLCANO_JOB = GroupKind("batch.volcano.sh", "Job")
JOB_SET = GroupKind("jobset.x-k8s.io", "JobSet")
RAY_JOB = GroupKind("ray.io", "RayJob")
MPI_JOB = GroupKind("kubeflow.org", "MPIJob")
TRAINING_OPERATOR = "kubeflow.org/v1"
"""The version of MPIJob that the training operator runs; the MPI operator runs v2beta1."""
DYNAMIC_WORKERS = "spec.enableDynamicWorker"
_ENDED_UNLESS_EXIT_CODE = frozenset({"XGBoostJob", "MPIJob"})
_REPLICA_SPECS = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
}
_WRAPPERS: dict[GroupKind, Callable[[OwnerLink, Pod, Limits], Limits]] = {
    JOB_SET: _job_set,
    RAY_JOB: _ray_job,
    MPI_JOB: _mpi_job,
    VOLCANO_JOB: _volcano_job,
    **{GroupKind("kubeflow.org", kind): _training_job for kind in _REPLICA_SPECS},
}
_PATHS: dict[GroupKind, tuple[str, ...]] = {
    JOB_SET: (
        "spec.failurePolicy",
        "status.restarts",
        "status.restartsCountTowardsMax",
        JOB_RESTARTS,
    ),
    RAY_JOB: ("spec.backoffLimit", "status.failed"),
    VOLCANO_JOB: (
        "spec.policies",
        "spec.maxRetry",
        "spec.tasks.*.name",
        "spec.tasks.*.policies",
        "status.retryCount",
    ),
    MPI_JOB: (
        "spec.runPolicy.backoffLimit",
        "spec.mpiReplicaSpecs.*.restartPolicy",
        "status.replicaStatuses.*.failed",
    ),
    **{
        GroupKind("kubeflow.org", kind): (
            "spec.runPolicy.backoffLimit",
            f"spec.{specs}.*.restartPolicy",
            "status.replicaStatuses.*.failed",
            *((DYNAMIC_WORKERS,) if kind == "TFJob" else ()),
        )
        for kind, specs in _REPLICA_SPECS.items()
    },
}
