"""Jobs that this scheduler suspended; their pod templates are kept as well.

The template of other Jobs is dropped, so many Jobs cost little memory.
"""

from collections.abc import Callable

import msgspec

from kai_py.api.queue import GROUP
from kai_py.api.records.core import ObjectMeta, PodSpec, Record
from kai_py.api.records.job import Job, JobSpec

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
    plain, suspended = msgspec.json.Decoder(Job).decode, msgspec.json.Decoder(SuspendedJob).decode

    def decode(data: bytes | msgspec.Raw) -> Job:
        job = plain(data)
        is_ours = job.spec.suspend and SUSPENDED_BY_KEY in job.metadata.annotations
        return suspended(data) if is_ours else job

    return decode
