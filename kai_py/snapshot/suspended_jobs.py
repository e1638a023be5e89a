"""Placeholder pods of Jobs that were suspended in place of evicting their pods.

A suspended Job has no pods, so that placeholders wait for it. They are made from its template: as
many as the Job controller would keep, owned by the Job, so that gangs, queues and order apply to
them as to pods. When they can be placed the Job is resumed; the placeholders are removed, and the
pods that the controller creates take their place. Only Jobs with our annotation have placeholders:
a Job that was suspended for another reason is not resumed by us.

Anyone may write that annotation on a Job of 2**31 - 1 pods. A Job of more than ``MAX_PLACEHOLDERS``
is not suspended by us; one that is has a single placeholder, which says so and is never placed.
"""

from collections.abc import Iterator
from dataclasses import replace as replaced
from datetime import datetime

from msgspec.structs import replace

from kai_py.api.records.core import ObjectMeta, OwnerReference, Pod, PodStatus
from kai_py.api.records.job import SUSPENDED_AT_KEY, SuspendedJob
from kai_py.api.records.priority_class import PriorityClass
from kai_py.api.references import ClaimRef
from kai_py.api.times import parse_time
from kai_py.grouping.frameworks.job import COMPLETION_INDEX_LABEL, active_pods
from kai_py.snapshot.dependencies import RecordingOwners
from kai_py.snapshot.placeholders import expected_claims
from kai_py.snapshot.tables.claims import PodClaims

MAX_PLACEHOLDERS = 1000
_PLACEHOLDER_UID_PART = "/suspended/"


def is_placeholder(uid: str) -> bool:
    """Whether the pod with this uid is a placeholder for one that a suspended Job will have."""
    return _PLACEHOLDER_UID_PART in uid


def placeholder_pods(job: object | None) -> Iterator[Pod]:
    """The pods that a Job will have, if it was suspended by us."""
    if not isinstance(job, SuspendedJob) or job.metadata.deletion_timestamp is not None:
        return
    meta, template = job.metadata, job.spec.template
    owner = OwnerReference(
        api_version="batch/v1", kind="Job", name=meta.name, uid=meta.uid, controller=True
    )
    for index in range(_count(job)):
        yield Pod(
            metadata=ObjectMeta(
                name=f"{meta.name}-{index}",
                namespace=meta.namespace,
                uid=f"{meta.uid}{_PLACEHOLDER_UID_PART}{index}",
                creation_timestamp=_suspended_since(job),
                labels={**template.metadata.labels, COMPLETION_INDEX_LABEL: str(index)},
                annotations=template.metadata.annotations,
                owner_references=(owner,),
            ),
            spec=template.spec,
            status=PodStatus(phase="Pending"),
        )


def changed_placeholders(
    old: object | None, new: object | None
) -> Iterator[tuple[str, Pod | None]]:
    """By uid, the placeholders of a Job after a change, and None for those that it removes."""
    present = {pod.metadata.uid: pod for pod in placeholder_pods(new)}
    for pod in placeholder_pods(old):
        if pod.metadata.uid not in present:
            yield pod.metadata.uid, None
    yield from present.items()


def placeholder_problem(pod: Pod, owners: RecordingOwners) -> str:
    """Why the Job behind a placeholder is not resumed; "" for any other pod."""
    if not is_placeholder(pod.metadata.uid):
        return ""
    job = owners.owner(pod.metadata.owner_references[0])
    if not isinstance(job, SuspendedJob) or active_pods(job) <= MAX_PLACEHOLDERS:
        return ""
    name = f"{job.metadata.namespace}/{job.metadata.name}"
    return (
        f"Job {name}: spec.parallelism: a suspended Job of {active_pods(job)} pods is not resumed, "
        f"the maximum is {MAX_PLACEHOLDERS}; set spec.suspend to false"
    )


def _count(job: SuspendedJob) -> int:
    """How many placeholders a Job has: one for each pod, unless these are too many."""
    pods = active_pods(job)
    return pods if pods <= MAX_PLACEHOLDERS else 1


def with_admission_defaults(pod: Pod, owners: RecordingOwners) -> tuple[Pod, PodClaims | None]:
    """A placeholder with the priority that admission sets, and the claims that it will have.

    Any other pod is returned as it is, with None: its claims have to be looked up.
    """
    if not is_placeholder(pod.metadata.uid):
        return pod, None
    found = owners.named("priorityclasses", "", pod.spec.priority_class_name)
    if isinstance(found, PriorityClass):
        spec = replace(pod.spec, priority=found.value, preemption_policy=found.preemption_policy)
        pod = replace(pod, spec=spec)
    claims = expected_claims(pod, owners)
    references = tuple(_numbered_claim(each, pod.metadata.uid) for each in claims.references)
    return pod, replaced(claims, references=references)


def _numbered_claim(claim: ClaimRef, uid: str) -> ClaimRef:
    return claim if claim.uid else ClaimRef(claim.namespace, claim.name, f"{uid}/{claim.name}")


def _suspended_since(job: SuspendedJob) -> datetime | None:
    suspended_at = parse_time(job.metadata.annotations.get(SUSPENDED_AT_KEY, ""))
    return suspended_at or job.metadata.creation_timestamp
