"""Placeholders for pods that do not exist yet, made from a pod template.

Some frameworks create pods only once others run. A gang of such a framework starts when all of it
would fit, so the expected pods are members with a shape, a charge and claims, but no object. A
claim that will be made from a template has the template's spec.

A Job that was suspended instead of evicting its pods has none, so placeholders wait in their place.
They are made from its template: as many as the Job controller would keep, owned by the Job, so that
gangs, queues and order apply to them as to pods. When they can be placed the Job is resumed; the
placeholders are removed, and the pods that the controller creates take their place. Only Jobs with
our annotation have placeholders: a Job that was suspended for another reason is not resumed by us.

Anyone may write that annotation on a Job of 2**31 - 1 pods. A Job of more than ``MAX_PLACEHOLDERS``
is not suspended by this scheduler; one that is suspended nevertheless has a single placeholder,
which reports this and is never placed. The same applies to a Job whose placeholders, together with
those of earlier suspended Jobs, would exceed ``MAX_PER_NAMESPACE``, until some of these are resumed
or deleted.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime

from msgspec import Struct, field, structs

from kai_py.api.records.core import ObjectMeta, OwnerReference, Pod, PodResourceClaim, PodStatus
from kai_py.api.records.job import SUSPENDED_AT_KEY, SuspendedJob
from kai_py.api.records.policy import PriorityClass
from kai_py.api.records.resource import ResourceClaimTemplate
from kai_py.api.references import ClaimRef
from kai_py.api.times import parse_time
from kai_py.grouping.frameworks.job import COMPLETION_INDEX_LABEL, active_pods
from kai_py.grouping.owner_chain import Owners
from kai_py.snapshot.dependencies import RecordingOwners
from kai_py.snapshot.derived_pod import ExpectedMembers
from kai_py.snapshot.gangs import Member, PodState
from kai_py.snapshot.missing_objects import TEMPLATES
from kai_py.snapshot.pod_claims import PodClaims, group_claims, pod_claims
from kai_py.snapshot.shape import ClaimUse

MAX_PLACEHOLDERS = 1000
MAX_PER_NAMESPACE = 10_000
"""Placeholders, of 3 KB each; those for whole Jobs do not count."""
_PLACEHOLDER_UID_PART = "/suspended/"
_WHOLE_JOB = "all"
"""In place of an index: the placeholder is for all pods of its Job together."""


def expected_claims(pod: Pod, owners: RecordingOwners) -> PodClaims:
    """The claims that ``pod`` will have; those that cannot be known yet are left out."""
    group = group_claims(pod, owners.named)
    entries = pod.spec.resource_claims
    named = tuple(each for each in entries if each.resource_claim_name or group.has(each))
    existing = pod_claims(_with_claims(pod, named), owners.claim, group)
    uses, references = list(existing.uses), list(existing.references)
    for entry in (each for each in entries if each not in named):
        template = _claim_template(pod, entry.resource_claim_template_name, owners)
        if template is not None:
            uses.append(ClaimUse(entry.name, template.spec.spec))
            references.append(ClaimRef(pod.metadata.namespace, entry.name, ""))
    return PodClaims(tuple(uses), tuple(references))


def missing_placeholders(
    gang: str, expected: Collection[ExpectedMembers], members: Sequence[Member]
) -> tuple[Member, ...]:
    """Placeholders for those of the ``expected`` pods that are not among ``members`` yet."""
    if not expected:
        return ()
    existing = Counter(member.subgroup for member in present_members(members))
    return tuple(
        _numbered_member(each.member, f"{gang}/{each.member.subgroup}/{number}")
        for each in expected
        for number in range(existing[each.member.subgroup], each.count)
    )


def present_members(members: Sequence[Member]) -> Sequence[Member]:
    """The pods that a gang consists of: those that end only while others of them run.

    Where none runs any more, they are of an attempt that is over, and others take their place.
    """
    if any(each.state is PodState.BOUND for each in members):
        return members
    return [each for each in members if each.state is not PodState.RELEASING] or members


def placeholder_for(member: Member) -> Member:
    """A placeholder that keeps the capacity for a pod that exists and may not start yet."""
    reference = structs.replace(member.pod, uid=f"{member.pod.uid}/stand-in")
    return structs.replace(member, pod=reference, state=PodState.EXPECTED)


def _numbered_member(member: Member, uid: str) -> Member:
    claims = tuple(_numbered_claim(each, uid) for each in member.claims)
    return structs.replace(member, pod=structs.replace(member.pod, uid=uid), claims=claims)


def _with_claims(pod: Pod, claims: tuple[PodResourceClaim, ...]) -> Pod:
    spec = structs.replace(pod.spec, resource_claims=claims)
    return structs.replace(pod, spec=spec)


def _claim_template(pod: Pod, name: str, owners: Owners) -> ResourceClaimTemplate | None:
    if not name:
        return None
    found = owners.named(TEMPLATES, pod.metadata.namespace, name)
    return found if isinstance(found, ResourceClaimTemplate) else None


def is_placeholder(uid: str) -> bool:
    """Whether the pod with this uid is a placeholder for one that a suspended Job will have."""
    return _PLACEHOLDER_UID_PART in uid


def job_of_placeholder(uid: str) -> str:
    """The uid of the suspended Job for whose pod a placeholder waits."""
    return uid.partition(_PLACEHOLDER_UID_PART)[0]


def has_placeholder(uids: Iterable[str]) -> bool:
    """Whether any of the pods is such a placeholder."""
    return _PLACEHOLDER_UID_PART in "\n".join(uids)


class _Namespace(Struct, eq=False):
    """``placeholders``: how many each Job has, by uid; ``waiting``: Jobs that have one for all."""

    placeholders: dict[str, int] = field(default_factory=dict)
    total: int = 0
    waiting: dict[str, SuspendedJob] = field(default_factory=dict)

    def remove(self, uid: str) -> None:
        """The Job is not suspended any more, or is to be counted again."""
        self.total -= self.placeholders.pop(uid, 0)

    def add(self, job: SuspendedJob) -> bool:
        """Count the placeholders of a Job; False if they would be too many."""
        pods = max(active_pods(job), 0)
        if pods > MAX_PLACEHOLDERS:
            return True
        if self.total + pods > MAX_PER_NAMESPACE:
            return False
        self.placeholders[job.metadata.uid] = pods
        self.total += pods
        return True


class SuspendedJobs:
    """The suspended Jobs of each namespace, and their placeholders."""

    def __init__(self) -> None:
        """No Job is known."""
        self._namespaces: dict[str, _Namespace] = {}

    def change(self, old: object | None, new: object | None) -> Iterator[tuple[str, Pod | None]]:
        """By uid, the placeholders after a Job has changed, and None for those that it removes."""
        before, after = _suspended_by_us(old), _suspended_by_us(new)
        if before is None and after is None:
            return
        removed = [] if before is None else self._remove(before)
        present = {} if after is None else self._add(after)
        yield from ((uid, None) for uid in removed if uid not in present)
        yield from present.items()
        changed = [job.metadata.namespace for job in (before, after) if job is not None]
        yield from self._materialise(changed[0])

    def _remove(self, job: SuspendedJob) -> list[str]:
        meta = job.metadata
        of_namespace = self._namespaces.setdefault(meta.namespace, _Namespace())
        uids = _uids(job, of_namespace.placeholders.get(meta.uid))
        of_namespace.remove(meta.uid)
        of_namespace.waiting.pop(meta.uid, None)
        if not (of_namespace.placeholders or of_namespace.waiting):
            del self._namespaces[meta.namespace]
        return uids

    def _add(self, job: SuspendedJob) -> dict[str, Pod | None]:
        of_namespace = self._namespaces.setdefault(job.metadata.namespace, _Namespace())
        if not of_namespace.add(job):
            of_namespace.waiting[job.metadata.uid] = job
        return _pods(job, of_namespace.placeholders.get(job.metadata.uid))

    def _materialise(self, namespace: str) -> Iterator[tuple[str, Pod | None]]:
        """The placeholders of Jobs that waited for others, in order, as many as are allowed."""
        of_namespace = self._namespaces.get(namespace, _Namespace())
        while of_namespace.waiting:
            uid, job = next(iter(of_namespace.waiting.items()))
            if not of_namespace.add(job):
                return
            del of_namespace.waiting[uid]
            yield from ((each, None) for each in _uids(job, None))
            yield from _pods(job, of_namespace.placeholders[uid]).items()


def is_suspended_by_us(job: object | None) -> bool:
    """Whether a Job has placeholders."""
    return _suspended_by_us(job) is not None


def _suspended_by_us(job: object | None) -> SuspendedJob | None:
    if not isinstance(job, SuspendedJob) or job.metadata.deletion_timestamp is not None:
        return None
    return job


def _uids(job: SuspendedJob, count: int | None) -> list[str]:
    indexes = (_WHOLE_JOB,) if count is None else range(count)
    return [f"{job.metadata.uid}{_PLACEHOLDER_UID_PART}{index}" for index in indexes]


def _pods(job: SuspendedJob, count: int | None) -> dict[str, Pod | None]:
    """The placeholders of a Job by uid; ``count``: None for one that stands for all its pods."""
    meta, template = job.metadata, job.spec.template
    # A template may name a node, but no pod of a suspended Job is on it.
    spec = structs.replace(template.spec, node_name="")
    owner = OwnerReference(
        api_version="batch/v1", kind="Job", name=meta.name, uid=meta.uid, controller=True
    )
    return {
        uid: Pod(
            metadata=ObjectMeta(
                name=f"{meta.name}-{index}",
                namespace=meta.namespace,
                uid=uid,
                creation_timestamp=_suspended_since(job),
                labels={**template.metadata.labels, COMPLETION_INDEX_LABEL: str(index)},
                annotations=template.metadata.annotations,
                owner_references=(owner,),
            ),
            spec=spec,
            status=PodStatus(phase="Pending"),
        )
        for index, uid in enumerate(_uids(job, count))
    }


def placeholder_problem(pod: Pod, owners: RecordingOwners) -> str:
    """Why the Job behind a placeholder is not resumed; "" for any other pod."""
    if not pod.metadata.uid.endswith(f"{_PLACEHOLDER_UID_PART}{_WHOLE_JOB}"):
        return ""
    job = owners.owner(pod.metadata.owner_references[0])
    if not isinstance(job, SuspendedJob):
        return ""
    name = f"{job.metadata.namespace}/{job.metadata.name}"
    if active_pods(job) <= MAX_PLACEHOLDERS:
        return (
            f"Job {name}: the suspended Jobs of its namespace have more than {MAX_PER_NAMESPACE} "
            "pods; it is resumed after others of them"
        )
    return (
        f"Job {name}: spec.parallelism: a suspended Job of {active_pods(job)} pods is not resumed, "
        f"the maximum is {MAX_PLACEHOLDERS}; set spec.suspend to false"
    )


def with_admission_defaults(pod: Pod, owners: RecordingOwners) -> tuple[Pod, PodClaims | None]:
    """A placeholder with the priority that admission sets, and the claims that it will have.

    Any other pod is returned as it is, with None: its claims have to be looked up.
    """
    if not is_placeholder(pod.metadata.uid):
        return pod, None
    found = owners.named("priorityclasses", "", pod.spec.priority_class_name)
    if isinstance(found, PriorityClass):
        spec = structs.replace(
            pod.spec, priority=found.value, preemption_policy=found.preemption_policy
        )
        pod = structs.replace(pod, spec=spec)
    claims = expected_claims(pod, owners)
    references = tuple(_numbered_claim(each, pod.metadata.uid) for each in claims.references)
    return pod, structs.replace(claims, references=references)


def _numbered_claim(claim: ClaimRef, uid: str) -> ClaimRef:
    return claim if claim.uid else structs.replace(claim, uid=f"{uid}/{claim.name}")


def _suspended_since(job: SuspendedJob) -> datetime | None:
    suspended_at = parse_time(job.metadata.annotations.get(SUSPENDED_AT_KEY, ""))
    return suspended_at or job.metadata.creation_timestamp
