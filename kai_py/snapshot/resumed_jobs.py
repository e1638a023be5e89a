"""Resumed Jobs: their placeholders keep their nodes until as many pods exist.

A suspended Job is resumed when its placeholders are placed. Its controller then creates the pods,
which takes some milliseconds, or longer where it is busy. Meanwhile other gangs must not take the
capacity, or a Job that was evicted once would lose it each time. So the placeholders that are
assumed to be on nodes stay there, and the pods that come are set aside. Once there is one for each
placeholder the pods take their places, each nominated for the node of one. The same happens with
those that came by then when the Job is deleted, suspended again, or could not be resumed, when a
placeholder is evicted, and some time after the watch has shown that the Job is resumed.
"""

import math
from collections.abc import Collection, Iterator, Mapping

from msgspec import Struct, field

from kai_py.api.pod_phases import is_finished
from kai_py.api.records.core import Pod
from kai_py.api.records.job import Job
from kai_py.api.times import lies_ahead
from kai_py.snapshot.placeholders import (
    is_placeholder,
    is_suspended_by_us,
    job_of_placeholder,
)


class _ResumedJob(Struct, eq=False):
    """``nodes``: by the uid of its placeholder; ``pods``: those that came, by uid.

    ``until``: when it is not waited for any longer, in seconds since the epoch; infinite before the
    watch shows that the Job is resumed, and 0 until the time is known.
    """

    nodes: dict[str, str] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    until: float = math.inf


class ResumedJobs:
    """The Jobs that are being resumed, by uid."""

    def __init__(self, seconds: float) -> None:
        """None is being resumed; pods of one that is are waited for ``seconds``."""
        self._seconds = seconds
        self._jobs: dict[str, _ResumedJob] = {}

    def assume(self, uid: str, node: str) -> None:
        """A pod is assumed to be on a node; if it is a placeholder, its Job is being resumed."""
        if is_placeholder(uid):
            self._jobs.setdefault(job_of_placeholder(uid), _ResumedJob()).nodes[uid] = node

    def change(self, old: object | None, new: object | None) -> str:
        """Take in a change of an object: the uid of a Job that is waited for no longer, or ""."""
        job = old if new is None else new
        if not self._jobs or not isinstance(job, Job) or job.metadata.uid not in self._jobs:
            return ""
        if new is not None and job.metadata.deletion_timestamp is None:
            known = self._jobs[job.metadata.uid]
            if not job.spec.suspend:
                known.until = 0.0 if known.until == math.inf else known.until
                return ""
            if known.until == math.inf and is_suspended_by_us(job):
                return ""  # the watch does not show yet that it is resumed
        return job.metadata.uid

    def job_of(self, uid: str) -> str:
        """The uid of the Job whose placeholder is kept; "" for any other pod."""
        job_uid = job_of_placeholder(uid) if self._jobs and is_placeholder(uid) else ""
        return job_uid if job_uid in self._jobs and uid in self._jobs[job_uid].nodes else ""

    def add(self, pod: Pod) -> str | None:
        """Set a new pod aside, if it is of such a Job: its uid once there are enough, else ""."""
        uid = pod.metadata.uid
        if not self._jobs or pod.spec.node_name or is_finished(pod) or is_placeholder(uid):
            return None
        owners = (each.uid for each in pod.metadata.owner_references if each.controller)
        job_uid = next((each for each in owners if each in self._jobs), None)
        if job_uid is None:
            return None
        job = self._jobs[job_uid]
        job.pods[uid] = pod
        return job_uid if len(job.pods) >= len(job.nodes) else ""

    def discard(self, pod_uid: str) -> bool:
        """A pod is gone; whether it had been set aside."""
        return any(job.pods.pop(pod_uid, None) is not None for job in self._jobs.values())

    def end(self, job_uid: str) -> tuple[Mapping[str, str], Collection[Pod]]:
        """A Job is not waited for any longer: the nodes of its placeholders, its pods that came."""
        job = self._jobs.pop(job_uid)
        return job.nodes, job.pods.values()

    def expired(self, now: float) -> Iterator[str]:
        """The Jobs that have been waited for too long; the time of others begins."""
        for uid, job in list(self._jobs.items()):
            if job.until == 0.0:
                job.until = now + self._seconds
            elif job.until < math.inf and not lies_ahead(job.until, now, self._seconds):
                yield uid

    def next_end(self) -> float:
        """When the next of them is not waited for any longer, seconds since the epoch."""
        return min((job.until for job in self._jobs.values()), default=math.inf)
