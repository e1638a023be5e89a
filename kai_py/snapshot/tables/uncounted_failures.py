"""Pods of Jobs that failed and that the status of their Job, as we know it, does not count yet.

Pods and Jobs come by separate watches, so that a pod may be gone here while the Job that counts it
is still to come. Until then the Job would seem to survive more evictions than it does.

The Job controller lists a pod that failed in ``status.uncountedTerminatedPods`` before it removes
its finalizer from the pod. So a pod of it is counted once it was listed. The pods of a suspended
Job do not count as failures. One that was deleted to scale a Job down is never listed:
``LISTED_WITHIN`` is the limit for these.

Source: KEP-2307 (Job tracking without lingering pods).
"""

from collections.abc import Iterable, Iterator
from typing import ClassVar

from msgspec import Struct, field

from kai_py.api.pod_phases import FAILED, SUCCEEDED
from kai_py.api.records.core import Pod
from kai_py.api.records.job import Job
from kai_py.api.times import happened_within
from kai_py.snapshot.derived_pod import DerivedPod
from kai_py.snapshot.pod_failures import FailedPods
from kai_py.snapshot.tables.pod_table import PodTable, Uids

TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"
LISTED_WITHIN = 60.0
"""Seconds in which the Job is seen to list a pod that failed."""


class _Tracked(Struct):
    """A pod that the Job controller tracks; ``job``: its uid, ``gang``: its key."""

    job: str
    gang: str
    listed: bool = False


class _Failures(Struct):
    """Pods of one Job that it has not listed, and since when each is known to have failed."""

    gang: str
    since: dict[str, float | None] = field(default_factory=dict)


class UncountedFailures(PodTable):
    """The pods by Job. Of pods that failed before they were seen to wait or run none is known."""

    kinds: ClassVar[tuple[str, ...]] = ("jobs",)

    def __init__(self) -> None:
        """Start empty."""
        self._tracked: dict[str, _Tracked] = {}
        self._failures: dict[str, _Failures] = {}
        self._suspended: dict[str, None] = {}
        self._changed: dict[str, None] = {}

    def of_jobs(self, jobs: Iterable[str]) -> FailedPods:
        """Those of ``jobs``, by uid, that have such pods, with the uids of these."""
        if not self._failures:
            return ()
        known = [(job, self._failures[job]) for job in jobs if job in self._failures]
        return tuple((job, frozenset(failures.since)) for job, failures in known)

    def update(self, now: float) -> Iterator[str]:
        """Forget pods that were never listed; yields the gangs some of whose pods are counted."""
        for job, failures in tuple(self._failures.items()):
            for uid, since in tuple(failures.since.items()):
                if since is None:
                    failures.since[uid] = now
                elif not happened_within(LISTED_WITHIN, since, now):
                    self._drop(job, uid)
        changed, self._changed = self._changed, {}
        yield from changed

    def apply(self, _kind: str, old: object | None, new: object | None) -> None:
        """Take in one change of a Job."""
        job = new if new is not None else old
        if not isinstance(job, Job):
            return
        uid = job.metadata.uid
        self._suspended.pop(uid, None)
        if new is None or job.spec.suspend:
            self._failures.pop(uid, None)
        if new is not None and job.spec.suspend:
            self._suspended[uid] = None
        for failed in job.status.uncounted_terminated_pods.failed:
            if failed in self._tracked:
                self._tracked[failed].listed = True
            self._drop(uid, failed)

    def place(self, pod: DerivedPod) -> Uids:
        """Remember the Job of the pod, if the Job fails when it loses too many pods."""
        meta, spec = pod.parsed.pod.metadata, pod.parsed.gang_spec
        if spec is None or not spec.failure_limits:
            return ()
        known = self._tracked.get(pod.uid)
        if known is not None:
            known.gang = spec.key
        elif TRACKING_FINALIZER in meta.finalizers:
            controller = next((each.uid for each in meta.owner_references if each.controller), "")
            self._tracked[pod.uid] = _Tracked(controller, spec.key)
        return ()

    def observe(self, pod: Pod) -> Uids:
        """Note the pod if it has failed."""
        if pod.status.phase == FAILED:
            self._note(pod.metadata.uid)
        return ()

    def remove(self, pod: Pod) -> Uids:
        """Note the pod unless it has succeeded."""
        if pod.status.phase != SUCCEEDED:
            self._note(pod.metadata.uid)
        self._tracked.pop(pod.metadata.uid, None)
        return ()

    def _note(self, uid: str) -> None:
        tracked = self._tracked.get(uid)
        if tracked is not None and not tracked.listed and tracked.job not in self._suspended:
            failures = self._failures.setdefault(tracked.job, _Failures(tracked.gang))
            failures.since.setdefault(uid, None)

    def _drop(self, job: str, uid: str) -> None:
        failures = self._failures.get(job)
        if failures is None or uid not in failures.since:
            return
        del failures.since[uid]
        self._changed[failures.gang] = None
        if not failures.since:
            del self._failures[job]
