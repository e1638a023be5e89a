"""Records of batch/v1 Job: the fields from which the gang of its pods is derived.

The pod template is kept of Jobs that this scheduler suspended; that of others is dropped, so that
many Jobs cost little memory.
"""

from collections.abc import Callable

import msgspec

from kai_py.api.numbers import parse_int64
from kai_py.api.queue import GROUP
from kai_py.api.records.core import ObjectMeta, PodSpec
from kai_py.api.records.record import Record, record_decoder


class GangPolicy(Record, frozen=True):
    """How many pods start together; 0 means all parallel pods."""

    min_count: int = 0


class BasicPolicy(Record, frozen=True):
    """A policy without settings."""


class JobSchedulingPolicy(Record, frozen=True):
    """spec.scheduling.schedulingPolicy of a Job: a gang, or pod by pod."""

    gang: GangPolicy | None = None
    basic: BasicPolicy | None = None


class JobScheduling(Record, frozen=True):
    """spec.scheduling of a Job (Kubernetes 1.37)."""

    scheduling_policy: JobSchedulingPolicy = JobSchedulingPolicy()


class ExitCodes(Record, frozen=True):
    """onExitCodes of a rule of podFailurePolicy; ``operator`` is In or NotIn."""

    operator: str = ""
    values: tuple[int, ...] = ()


class PodConditionPattern(Record, frozen=True):
    """An entry of onPodConditions."""

    type: str = ""
    status: str = "True"


class PodFailureRule(Record, frozen=True):
    """A rule of podFailurePolicy; the first that matches a failed pod decides."""

    action: str = ""
    on_exit_codes: ExitCodes | None = None
    on_pod_conditions: tuple[PodConditionPattern, ...] = ()


class PodFailurePolicy(Record, frozen=True):
    """job.spec.podFailurePolicy."""

    rules: tuple[PodFailureRule, ...] = ()


class JobSpec(Record, frozen=True):
    """job.spec: the fields from which its gang is derived, and those that say when it fails.

    Unset means 1 for both counts of pods.
    """

    parallelism: int | None = None
    completions: int | None = None
    suspend: bool = False
    scheduling: JobScheduling | None = None
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    pod_failure_policy: PodFailurePolicy | None = None

    @property
    def pods_at_a_time(self) -> int:
        """``parallelism`` with its default."""
        return 1 if self.parallelism is None else self.parallelism


class UncountedTerminatedPods(Record, frozen=True):
    """Uids of pods that have ended and that the counts of the status do not contain yet."""

    failed: tuple[str, ...] = ()


class JobStatus(Record, frozen=True):
    """Counts written by the Job controller."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0
    failed_indexes: str = ""
    """Indexes that the Job gives up, with ``backoffLimitPerIndex``: ``1,3-5``."""
    uncounted_terminated_pods: UncountedTerminatedPods = UncountedTerminatedPods()

    @property
    def failed_pods(self) -> int:
        """How many pods have failed, counted or not: those not counted yet may be gone already."""
        return self.failed + len(self.uncounted_terminated_pods.failed)

    @property
    def ended_completions(self) -> int:
        """How many completions need no pod any more: those that succeeded, and failed indexes."""
        if not self.failed_indexes:
            return self.succeeded
        return self.succeeded + sum(map(_interval_length, self.failed_indexes.split(",")))


def _interval_length(text: str) -> int:
    """How many indexes an interval has, ``3`` or ``3-5``; 0 for any other text."""
    first, _, last = text.partition("-")
    low, high = parse_int64(first), parse_int64(last or first)
    return 0 if low is None or high is None else max(high - low + 1, 0)


class Job(Record, frozen=True):
    """batch/v1 Job."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


SUSPENDED_BY_KEY = f"{GROUP}/suspended-by"
"""Annotation of a suspended Job: the scheduler that suspended it, and that will resume it."""

SUSPENDED_AT_KEY = f"{GROUP}/suspended-at"
"""Annotation with the time of suspension, since when the gang waits."""


class PodTemplate(Record, frozen=True):
    """spec.template of a Job."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class SuspendedJobSpec(JobSpec, frozen=True):
    """spec of a suspended Job."""

    template: PodTemplate = PodTemplate()


class SuspendedJob(Job, frozen=True):
    """batch/v1 Job with its template."""

    spec: SuspendedJobSpec = SuspendedJobSpec()


def job_decoder() -> Callable[[bytes | msgspec.Raw], Job]:
    """A decoder of Jobs: a SuspendedJob if it is suspended and has our annotation."""
    plain, suspended = record_decoder(Job), record_decoder(SuspendedJob)

    def decode(data: bytes | msgspec.Raw) -> Job:
        job = plain(data)
        is_ours = job.spec.suspend and SUSPENDED_BY_KEY in job.metadata.annotations
        return suspended(data) if is_ours else job

    return decode
