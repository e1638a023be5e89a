"""Status of Jobs: counts of their finished pods, and the conditions that follow.

Finished pods that still carry the tracking finalizer are new and counted; a pod deleted before it
finished counts as failed unless podReplacementPolicy is Failed or the Job is suspended. The Job is
complete when enough pods succeeded, failed by its failure policy, its backoff limit or its
deadline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kai_py.api.timestamp import format_time
from kai_py.embedded.conditions import is_true, with_condition
from kai_py.embedded.controllers.failure_policy import FailureAction, failure_action
from kai_py.embedded.controllers.indexes import format_indexes, index_of, parse_indexes
from kai_py.embedded.controllers.owned_pods import is_active, is_finished, is_ready
from kai_py.embedded.documents import is_deleting, seconds_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kai_py.embedded.controllers.runtime import Work
    from kai_py.embedded.documents import Json

TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"


@dataclass(frozen=True)
class PodTally:
    """Counts of the Job's pods for its status, and the failure if the Job has failed."""

    succeeded: int
    failed: int
    completed_indexes: frozenset[int]
    newly_finished: tuple[Json, ...]
    new_failures: int
    failure: tuple[str, str] | None


def tally_pods(job: Json, pods: Sequence[Json]) -> PodTally:
    """Count the pods that finished since the last reconciliation."""
    status = job.get("status") or {}
    succeeded, failed = status.get("succeeded", 0), status.get("failed", 0)
    indexes = set(parse_indexes(status.get("completedIndexes", "")))
    indexed = job["spec"]["completionMode"] == "Indexed"
    counted: list[Json] = []
    new_failures, failure = 0, None
    for pod in pods:
        if not is_tracked(pod):
            continue
        if pod["status"].get("phase") == "Succeeded":
            counted.append(pod)
            succeeded += 1
            if indexed and (index := index_of(pod)) is not None:
                indexes.add(index)
        elif _is_ignored(job, pod):
            counted.append(pod)
        elif _has_failed(job, pod):
            counted.append(pod)
            action, message = failure_action(job, pod)
            failure = failure or (
                (("PodFailurePolicy", message)) if action is FailureAction.FAIL else None
            )
            new_failures += action is not FailureAction.IGNORE
    if indexed:
        succeeded = len(indexes)
    return PodTally(
        succeeded, failed + new_failures, frozenset(indexes), tuple(counted), new_failures, failure
    )


def status_of(work: Work, job: Json, pods: Sequence[Json], tally: PodTally) -> Json:
    """Return the Job's new status; requeue for its deadline."""
    now, spec = work.now, job["spec"]
    status = dict(job.get("status") or {})
    active = [pod for pod in pods if is_active(pod)]
    status |= {
        "active": len(active) or None,
        "ready": sum(is_ready(pod) for pod in active),
        "terminating": sum(is_deleting(pod) and not is_finished(pod) for pod in pods),
        "succeeded": tally.succeeded or None,
        "failed": tally.failed or None,
        "completedIndexes": format_indexes(tally.completed_indexes) or None,
    }
    if is_job_finished(job):
        return status
    if spec.get("suspend"):
        suspended = {"type": "Suspended", "status": "True", "reason": "JobSuspended"}
        return {**with_condition(status, suspended, now=now), "startTime": None}
    if is_true(job, "Suspended"):
        resumed = {"type": "Suspended", "status": "False", "reason": "JobResumed"}
        status = with_condition(status, resumed, now=now)
    status["startTime"] = status.get("startTime") or format_time(now)
    if failure := tally.failure or _exceeded_limit(work, job, pods, tally, status):
        return _failed(status, failure, now)
    if _is_complete(job, len(active), tally):
        return _complete(status, now)
    return status


def _exceeded_limit(
    work: Work, job: Json, pods: Sequence[Json], tally: PodTally, status: Json
) -> tuple[str, str] | None:
    spec = job["spec"]
    restarts = sum(
        each.get("restartCount", 0)
        for pod in pods
        for each in pod["status"].get("containerStatuses") or ()
        if spec["template"]["spec"]["restartPolicy"] == "OnFailure"
    )
    if tally.failed + restarts > spec["backoffLimit"]:
        return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    if (deadline := spec.get("activeDeadlineSeconds")) is not None:
        remaining = seconds_of(status["startTime"]) + deadline - work.now
        if remaining <= 0:
            return "DeadlineExceeded", "Job was active longer than specified deadline"
        work.requeue_after(remaining)
    return None


def _is_complete(job: Json, active: int, tally: PodTally) -> bool:
    completions = job["spec"].get("completions")
    if completions is None:
        return tally.succeeded > 0 and active == 0
    return bool(tally.succeeded >= completions)


def _complete(status: Json, now: float) -> Json:
    reason = {
        "reason": "CompletionsReached",
        "message": "Reached expected number of succeeded pods",
    }
    for kind in ("SuccessCriteriaMet", "Complete"):
        status = with_condition(status, {"type": kind, "status": "True", **reason}, now=now)
    return {**status, "completionTime": format_time(now)}


def _failed(status: Json, failure: tuple[str, str], now: float) -> Json:
    reason = {"reason": failure[0], "message": failure[1]}
    for kind in ("FailureTarget", "Failed"):
        status = with_condition(status, {"type": kind, "status": "True", **reason}, now=now)
    return {**status, "active": None}


def is_job_finished(job: Json) -> bool:
    """Whether the Job is complete or failed."""
    return is_true(job, "Complete") or is_true(job, "Failed")


def _is_ignored(job: Json, pod: Json) -> bool:
    return bool(job["spec"].get("suspend")) and is_deleting(pod) and not is_finished(pod)


def _has_failed(job: Json, pod: Json) -> bool:
    if pod["status"].get("phase") == "Failed":
        return True
    if job["spec"]["podReplacementPolicy"] == "Failed":
        return False
    return is_deleting(pod) and pod["status"].get("phase") != "Succeeded"


def is_tracked(pod: Json) -> bool:
    """Whether the pod has not been counted yet."""
    return TRACKING_FINALIZER in (pod["metadata"].get("finalizers") or ())
