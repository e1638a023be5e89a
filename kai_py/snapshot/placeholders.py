"""Placeholders for pods that do not exist yet, made from a pod template.

Some frameworks create pods only once others run. A gang of such a framework starts when all of it
would fit, so the expected pods are members with a shape, a charge and claims, but no object. A
claim that will be made from a template has the template's spec.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from msgspec import structs

from kai_py.api.records.core import Pod, PodResourceClaim
from kai_py.api.records.resource import ResourceClaim, ResourceClaimTemplate
from kai_py.api.references import ClaimRef, PodRef
from kai_py.grouping.gang import ExpectedPods
from kai_py.grouping.owner_chain import Owners
from kai_py.snapshot.accounting import Accounting
from kai_py.snapshot.charges import charge
from kai_py.snapshot.dependencies import RecordingOwners
from kai_py.snapshot.gangs import Member, PodState
from kai_py.snapshot.pod_demand import pod_demand
from kai_py.snapshot.shape import ClaimUse, ShapeTable
from kai_py.snapshot.tables.claims import PodClaims, group_claims, pod_claims
from kai_py.snapshot.tables.gpu_memory import GpuMemory

TEMPLATES = "resourceclaimtemplates"


@dataclass(frozen=True, slots=True)
class ExpectedMembers:
    """``count`` pods of a leaf, existing ones included, that all equal ``member``."""

    count: int
    member: Member


def expected_members(
    expected: Iterable[ExpectedPods],
    owners: RecordingOwners,
    shapes: ShapeTable,
    accounting: Accounting,
    gpu_memory: GpuMemory,
) -> tuple[ExpectedMembers, ...]:
    """Members for the pods that the framework of a gang creates later."""

    def member_of(each: ExpectedPods) -> Member:
        claims = expected_claims(each.pod, owners)
        demand = pod_demand(each.pod, owners, shapes, accounting, labels_matter=True, claims=claims)
        meta = each.pod.metadata
        return Member(
            pod=PodRef(meta.namespace, meta.name, each.subgroup),
            shape=demand.shape,
            subgroup=each.subgroup,
            state=PodState.EXPECTED,
            node="",
            nominated="",
            priority=0,
            created=0.0,
            bound_since=0.0,
            charge=charge(
                demand, accounting, gpu_memory=gpu_memory.on_node(""), is_charged=_never_charged
            ),
            labels=meta.labels,
            claims=claims.references,
        )

    return tuple(ExpectedMembers(each.count, member_of(each)) for each in expected)


def _never_charged(_claim: ResourceClaim) -> bool:
    """A claim that exists is charged to a pod that exists."""
    return False


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
    gang: str, expected: Collection[ExpectedMembers], members: Iterable[Member]
) -> tuple[Member, ...]:
    """Placeholders for those of the ``expected`` pods that are not among ``members`` yet."""
    if not expected:
        return ()
    existing = Counter(member.subgroup for member in members)
    return tuple(
        _numbered_member(each.member, f"{gang}/{each.member.subgroup}/{number}")
        for each in expected
        for number in range(existing[each.member.subgroup], each.count)
    )


def placeholder_for(member: Member) -> Member:
    """A placeholder that keeps the capacity for a pod that exists and may not start yet."""
    reference = replace(member.pod, uid=f"{member.pod.uid}/stand-in")
    return structs.replace(member, pod=reference, state=PodState.EXPECTED)


def _numbered_member(member: Member, uid: str) -> Member:
    claims = tuple(
        ref if ref.uid else replace(ref, uid=f"{uid}/{ref.name}") for ref in member.claims
    )
    return structs.replace(member, pod=replace(member.pod, uid=uid), claims=claims)


def _with_claims(pod: Pod, claims: tuple[PodResourceClaim, ...]) -> Pod:
    spec = structs.replace(pod.spec, resource_claims=claims)
    return structs.replace(pod, spec=spec)


def _claim_template(pod: Pod, name: str, owners: Owners) -> ResourceClaimTemplate | None:
    if not name:
        return None
    found = owners.named(TEMPLATES, pod.metadata.namespace, name)
    return found if isinstance(found, ResourceClaimTemplate) else None
