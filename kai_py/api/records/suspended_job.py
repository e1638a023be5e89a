"""A Job that a scheduler of ours suspended: what its pods will be like matters as well.

Of other Jobs the template is not kept, so many Jobs cost little memory.
"""

from collections.abc import Callable

import msgspec

from kai_py.api.queue import GROUP
from kai_py.api.records.core import ObjectMeta, PodSpec, Record
from kai_py.api.records.job import Job, JobSpec

SUSPENDED_BY_KEY = f"{GROUP}/suspended-by"
"""Annotation of a suspended Job: the scheduler that suspended it, and that will resume it."""

SUSPENDED_AT_KEY = f"{GROUP}/suspended-at"
"""Since when: from then on it waits."""


class PodTemplate(Record, frozen=True):
    """spec.template of a Job."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class SuspendedJobSpec(JobSpec, frozen=True):
    """spec of such a Job."""

    template: PodTemplate = PodTemplate()


class SuspendedJob(Job, frozen=True):
    """batch/v1 Job with its template."""

    spec: SuspendedJobSpec = SuspendedJobSpec()


def job_decoder() -> Callable[[bytes | msgspec.Raw], Job]:
    """Reads a Job: a SuspendedJob if it is suspended and has our annotation."""
    plain, suspended = msgspec.json.Decoder(Job).decode, msgspec.json.Decoder(SuspendedJob).decode

    def decode(data: bytes | msgspec.Raw) -> Job:
        job = plain(data)
        waits = job.spec.suspend and SUSPENDED_BY_KEY in job.metadata.annotations
        return suspended(data) if waits else job

    return decode
