"""Status of Jobs: counts of their finished pods, and the conditions that follow.

Finished pods that still carry the tracking finalizer are new and counted; a pod deleted before it
finished counts as failed unless podReplacementPolicy is Failed or the Job is suspended. The Job is
complete when enough pods succeeded, failed by its failure policy, its backoff limit or its
deadline. Of an Indexed Job the completed indexes are listed as text such as `1,3-5`.

Of podFailurePolicy (KEP-3329) the first matching rule decides on a failed pod. FailIndex needs
per-index backoff, which Jobs here refuse, so it counts as Count.
"""

from collections.abc import Collection, Sequence
from enum import Enum
from itertools import islice

from msgspec import Struct

from kai_py.api.times import format_time
from kai_py.embedded.controllers.runtime import Work
from kai_py.embedded.documents import (
    Json,
    condition_states,
    is_active,
    is_deleting,
    is_finished,
    is_ready,
    is_true,
    name_of,
    seconds_of,
    with_condition,
)

INDEX_KEY = "batch.kubernetes.io/job-completion-index"
TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"


class FailureAction(Enum):
    """Effect of a failed pod on its Job."""

    COUNT = "Count"
    IGNORE = "Ignore"
    FAIL = "FailJob"


def failure_action(job: Json, pod: Json) -> tuple[FailureAction, str]:
    """The action for a failed pod and, for FAIL, the message for the condition."""
    rules = (job["spec"].get("podFailurePolicy") or {}).get("rules") or ()
    for number, rule in enumerate(rules):
        if _matches_conditions(rule, pod) or _matches_exit_code(rule, pod):
            action = (
                FailureAction(rule["action"])
                if rule["action"] != "FailIndex"
                else FailureAction.COUNT
            )
            return (
                action,
                f"Pod {name_of(pod)} failed, matching {rule['action']} rule at index {number}",
            )
    return FailureAction.COUNT, ""


def _matches_conditions(rule: Json, pod: Json) -> bool:
    present = condition_states(pod)
    patterns = rule.get("onPodConditions") or ()
    return any((each.get("type"), each.get("status") or "True") in present for each in patterns)


def _matches_exit_code(rule: Json, pod: Json) -> bool:
    exit_codes = rule.get("onExitCodes")
    if not exit_codes:
        return False
    container = exit_codes.get("containerName")
    for status in pod["status"].get("containerStatuses") or ():
        terminated = (status.get("state") or {}).get("terminated")
        if not terminated or (container and status.get("name") != container):
            continue
        code = terminated.get("exitCode", 0)
        if code != 0 and (code in exit_codes["values"]) is (exit_codes["operator"] == "In"):
            return True
    return False


def index_of(pod: Json) -> int | None:
    """A pod's completion index."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX_KEY)
    return int(text) if text is not None else None


def missing_indexes(completions: int, taken: Collection[int | None], count: int) -> Sequence[int]:
    """The lowest `count` indexes below `completions` that are not taken."""
    return [*islice((index for index in range(completions) if index not in taken), count)]


def parse_indexes(text: str) -> Sequence[int]:
    """Parse `1,3-5` into [1, 3, 4, 5]."""
    indexes: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        indexes.extend(range(int(first), int(last or first) + 1))
    return indexes


def format_indexes(indexes: Collection[int]) -> str:
    """Format indexes as `1,3-5`."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][-1] == index - 1:
            runs[-1] = [runs[-1][0], index]
        else:
            runs.append([index])
    return ",".join("-".join(str(end) for end in run) for run in runs)


class PodTally(Struct, frozen=True):
    """Counts of the Job's pods for its status, and the failure if the Job has failed."""

    succeeded: int
    failed: int
    completed_indexes: frozenset[int]
    newly_finished: tuple[Json, ...]
    newly_failed: tuple[Json, ...]
    failure: tuple[str, str] | None


def tally_pods(job: Json, pods: Sequence[Json]) -> PodTally:
    """Count the pods that finished since the last reconciliation."""
    status = job.get("status") or {}
    succeeded, failed = status.get("succeeded", 0), status.get("failed", 0)
    indexes = set(parse_indexes(status.get("completedIndexes", "")))
    indexed = job["spec"]["completionMode"] == "Indexed"
    counted: list[Json] = []
    new_failures: list[Json] = []
    failure = None
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
            if action is not FailureAction.IGNORE:
                new_failures.append(pod)
    if indexed:
        succeeded = len(indexes)
    return PodTally(
        succeeded,
        failed + len(new_failures),
        frozenset(indexes),
        tuple(counted),
        tuple(new_failures),
        failure,
    )


def status_of(work: Work, job: Json, pods: Sequence[Json], tally: PodTally) -> Json:
    """The Job's new status; requeue for its deadline."""
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
        "uncountedTerminatedPods": {},
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
        each.get("restartCount") or 0
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
