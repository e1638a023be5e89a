"""Records of batch/v1 Job: the fields from which the gang of its pods is derived."""

from kai_py.api.records.core import ObjectMeta, Record


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


class JobSpec(Record, frozen=True):
    """job.spec: the fields from which its gang is derived; unset means 1 for both counts."""

    parallelism: int | None = None
    completions: int | None = None
    suspend: bool = False
    scheduling: JobScheduling | None = None


class JobStatus(Record, frozen=True):
    """Counts written by the Job controller."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0


class Job(Record, frozen=True):
    """batch/v1 Job."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()
