"""Job controller: creates the pods that a Job needs, and ends it.

Finished pods are counted once: a pod carries the tracking finalizer until the Job's status has
counted it. A pod deleted before it finished counts as failed unless podReplacementPolicy is Failed.
Simplified: after a failure new pods wait one fixed period instead of an exponential backoff.

Source: KEP-2307 (tracking), KEP-3329 (podFailurePolicy), pkg/controller/job of k8s.io/kubernetes.
"""

from collections.abc import Iterable, Sequence
from functools import partial

from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.controllers.job_status import (
    INDEX_KEY,
    TRACKING_FINALIZER,
    PodTally,
    index_of,
    is_job_finished,
    is_tracked,
    missing_indexes,
    status_of,
    tally_pods,
)
from kai_py.embedded.controllers.runtime import (
    Controller,
    Key,
    Work,
    key_of,
    keys_of,
    owned_objects,
)
from kai_py.embedded.deletion import delete
from kai_py.embedded.documents import (
    Json,
    controller_of,
    deletion_order,
    is_active,
    is_deleting,
    is_finished,
    name_of,
    namespace_of,
    pod_from_template,
    seconds_of,
    uid_of,
    without_finalizer,
)
from kai_py.embedded.resources import JOBS, PODS
from kai_py.embedded.store import Change

RETRY_PERIOD_SECONDS = 10.0


class JobController:
    """Creates and deletes the pods of Jobs; remembers when a Job may retry after a failure."""

    def __init__(self) -> None:
        self._retry_at: dict[str, float] = {}

    def controller(self) -> Controller:
        """The controller to run."""
        return Controller(
            name="job",
            reconcile=self.reconcile,
            keys=keys_of(JOBS),
            storages=frozenset({JOBS.storage, PODS.storage}),
        )

    def reconcile(self, work: Work) -> None:
        """Bring one Job's pods and status up to date."""
        namespace, name = work.key
        job = work.api.find(JOBS, name, namespace)
        if job is None or is_deleting(job):
            _release_orphans(work, job)
            return
        pods = owned_objects(work.api, job)
        tally = tally_pods(job, pods)
        if tally.newly_failed:
            waiting = {uid: at for uid, at in self._retry_at.items() if at > work.now}
            self._retry_at = waiting | {uid_of(job): work.now + RETRY_PERIOD_SECONDS}
        status = status_of(work, job, pods, tally)
        _list_failed(work.api, job, tally)
        _remove_finalizers(work.api, tally.newly_finished)
        job = work.api.patch_status(JOBS, job, status)
        if is_job_finished(job):
            _delete_all(work.api, [pod for pod in pods if is_active(pod)])
            _delete_after_ttl(work, job)
        elif job["spec"].get("suspend"):
            _delete_all(work.api, [pod for pod in pods if is_active(pod)])
        else:
            remaining = owned_objects(work.api, job) if tally.newly_finished else pods
            self._create_pods(work, job, remaining, tally)

    def _create_pods(self, work: Work, job: Json, pods: Sequence[Json], tally: PodTally) -> None:
        active = [pod for pod in pods if is_active(pod)]
        desired = _desired_pods(job, len(active), tally)
        if (surplus := len(active) - desired) > 0:
            _delete_all(work.api, sorted(active, key=deletion_order)[:surplus])
        occupied = [*active]
        if job["spec"]["podReplacementPolicy"] == "Failed":
            occupied += [pod for pod in pods if is_deleting(pod) and not is_finished(pod)]
        missing = desired - len(occupied)
        if missing <= 0:
            return
        wait = self._retry_at.get(uid_of(job), 0.0) - work.now
        if wait > 0:
            work.requeue_after(wait)
            return
        for pod in _new_pods(job, occupied, tally, missing):
            work.api.create(PODS, pod, namespace_of(job))


def _desired_pods(job: Json, active: int, tally: PodTally) -> int:
    parallelism, completions = job["spec"]["parallelism"], job["spec"].get("completions")
    if completions is not None:
        return int(min(parallelism, completions - tally.succeeded))
    return min(active, parallelism) if tally.succeeded else int(parallelism)


def _new_pods(job: Json, occupied: Sequence[Json], tally: PodTally, missing: int) -> Iterable[Json]:
    template, name = job["spec"]["template"], name_of(job)
    if job["spec"]["completionMode"] != "Indexed":
        for _ in range(missing):
            pod = pod_from_template(job, template)
            pod["metadata"]["generateName"] = f"{name}-"
            pod["metadata"]["finalizers"].append(TRACKING_FINALIZER)
            yield pod
        return
    used_indexes = {index_of(pod) for pod in occupied} | tally.completed_indexes
    for index in missing_indexes(job["spec"]["completions"], used_indexes, missing):
        pod = pod_from_template(job, template)
        meta = pod["metadata"]
        meta["generateName"] = f"{name}-{index}-"
        meta["finalizers"].append(TRACKING_FINALIZER)
        meta["labels"][INDEX_KEY] = meta["annotations"][INDEX_KEY] = str(index)
        pod["spec"].setdefault("hostname", f"{name}-{index}")
        yield pod


def _delete_after_ttl(work: Work, job: Json) -> None:
    lifetime = job["spec"].get("ttlSecondsAfterFinished")
    if lifetime is None:
        return
    ended = [
        seconds_of(each["lastTransitionTime"])
        for each in job["status"]["conditions"]
        if each.get("type") in ("Complete", "Failed") and each.get("lastTransitionTime")
    ]
    remaining = max(ended, default=work.now) + lifetime - work.now
    if remaining > 0:
        work.requeue_after(remaining)
    else:
        delete(work.api, JOBS, name_of(job), namespace_of(job))


def _delete_all(api: ApiServer, pods: Sequence[Json]) -> None:
    for pod in pods:
        delete(api, PODS, name_of(pod), namespace_of(pod))


def _list_failed(api: ApiServer, job: Json, tally: PodTally) -> None:
    """Say that pods have failed before their finalizers go, as they may be gone then."""
    failed = [uid_of(pod) for pod in tally.newly_failed]
    if failed:
        api.patch_status(JOBS, job, {"uncountedTerminatedPods": {"failed": failed}})


def _remove_finalizers(api: ApiServer, pods: Sequence[Json]) -> None:
    for pod in pods:
        without = partial(without_finalizer, finalizer=TRACKING_FINALIZER)
        api.edit(PODS, name_of(pod), namespace_of(pod), without)


def _release_orphans(work: Work, job: Json | None) -> None:
    if job is not None:
        _remove_finalizers(
            work.api, [pod for pod in owned_objects(work.api, job) if is_tracked(pod)]
        )


def release_orphan(work: Work) -> None:
    """Remove the tracking finalizer from a pod whose Job is deleted."""
    namespace, name = work.key
    pod = work.api.find(PODS, name, namespace)
    if pod is None or not is_tracked(pod):
        return
    owner = controller_of(pod)
    if owner is None or work.api.store.by_uid(owner["uid"]) is None:
        _remove_finalizers(work.api, [pod])


def _tracked_key(_api: ApiServer, change: Change) -> Iterable[Key]:
    if is_tracked(change.object):
        yield key_of(change.object)


ORPHANED_POD_CONTROLLER = Controller(
    name="job-orphans",
    reconcile=release_orphan,
    keys=_tracked_key,
    storages=frozenset({PODS.storage}),
)
