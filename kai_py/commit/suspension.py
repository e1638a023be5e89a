"""Jobs are suspended in place of evicting their pods, and resumed when there is room.

One patch each, under the Job's uid; the Job controller ends the pods, or makes them anew. What
disruption budgets allow was heeded when the plan was made: the controller does not ask them. An
annotation says who suspended the Job, so that nobody resumes what somebody else stopped.
"""

from typing import Any

from kai_py.api.records.suspended_job import SUSPENDED_AT_KEY, SUSPENDED_BY_KEY
from kai_py.api.timestamp import timestamp
from kai_py.commit.access import Access
from kai_py.grouping.gang import Owner
from kai_py.watch.kinds import JOBS


async def suspend_job(access: Access, job: Owner, scheduler: str, now: float) -> None:
    """End the pods of ``job``; raises ApiError. ``now`` in seconds since the epoch."""
    since = timestamp(now)
    marks = {SUSPENDED_BY_KEY: scheduler, SUSPENDED_AT_KEY: since}
    await _patch(access, job, suspend=True, annotations=marks)


async def resume_job(access: Access, job: Owner) -> None:
    """Let the pods of ``job`` be made; raises ApiError."""
    marks = {SUSPENDED_BY_KEY: None, SUSPENDED_AT_KEY: None}
    await _patch(access, job, suspend=False, annotations=marks)


async def _patch(access: Access, job: Owner, *, suspend: bool, annotations: dict[str, Any]) -> None:
    body = {"metadata": {"uid": job.uid, "annotations": annotations}, "spec": {"suspend": suspend}}
    await access.call(
        lambda: access.client.patch(JOBS.at(), job.name, body, namespace=job.namespace)
    )
