"""Claims of a pod and of its PodGroup, resolved by name (KEP-4381, KEP-5729).

A claim from a template is named in ``pod.status.resourceClaimStatuses`` once the claim controller
made it; until then the pod waits. An entry without a name means that no claim is needed. Claims of
the pod's group are reserved for the group.

A claim of a pod is its group's where ``spec.resourceClaims`` of the group has an entry of the same
name and source. There is one such claim for the whole group, allocated once and reserved for the
group in place of its pods. The claim controller names the claim made from a template in the status
of the group, and then in that of every pod.
"""

from collections import Counter
from collections.abc import Callable, Mapping

from msgspec import Struct, field

from kai_py.api.records.core import Pod, PodResourceClaim, PodResourceClaimStatus
from kai_py.api.records.partial import unreadable_fields
from kai_py.api.records.record import convert_record
from kai_py.api.records.resource import MAX_RESERVED_FOR, ResourceClaim
from kai_py.api.records.unstructured import Unstructured
from kai_py.api.references import ClaimRef, GroupRef
from kai_py.snapshot.gangs import GroupReservation
from kai_py.snapshot.missing_objects import CLAIMS, TEMPLATES, MissingObject
from kai_py.snapshot.shape import ClaimUse

POD_GROUPS = "podgroups"

GroupKey = tuple[str, str]
"""Namespace and name of a PodGroup."""

FindNamed = Callable[[str, str, str], object | None]
"""(collection, namespace, name) to the object."""


class GroupClaims(Struct, frozen=True):
    """What the group of a pod claims; nothing for a pod without a group.

    ``claim_names``: the claims made from templates, None where none is needed, by entry.
    """

    group: GroupRef | None = None
    entries: tuple[PodResourceClaim, ...] = ()
    claim_names: Mapping[str, str | None] = field(default_factory=dict)

    def has(self, entry: PodResourceClaim) -> bool:
        """Whether an entry of a pod is the group's."""
        return entry in self.entries


NO_GROUP_CLAIMS = GroupClaims()


def pod_group_of(pod: Pod) -> GroupKey | None:
    """The PodGroup that ``pod`` names, whether it exists or not."""
    group = pod.spec.scheduling_group
    if group is None or not group.pod_group_name:
        return None
    return pod.metadata.namespace, group.pod_group_name


def group_claims(pod: Pod, find: FindNamed) -> GroupClaims:
    """What the PodGroup of ``pod`` claims, as far as it is known."""
    named = pod_group_of(pod) if pod.spec.resource_claims else None
    if named is None:
        return NO_GROUP_CLAIMS
    found = find(POD_GROUPS, *named)
    return claims_of(found) if isinstance(found, Unstructured) else NO_GROUP_CLAIMS


def claims_of(found: Unstructured) -> GroupClaims:
    """What a PodGroup claims."""
    entries = found.first_at("spec.resourceClaims") or []
    listed = found.first_at("status.resourceClaimStatuses") or []
    statuses = convert_record(listed, tuple[PodResourceClaimStatus, ...])
    meta = found.metadata
    return GroupClaims(
        group=GroupRef(meta.namespace, meta.name, meta.uid),
        entries=convert_record(entries, tuple[PodResourceClaim, ...]),
        claim_names={each.name: each.resource_claim_name for each in statuses},
    )


ClaimLookup = Callable[[str, str], ResourceClaim | None]
"""(namespace, name) to the claim."""


class PodClaims(Struct, frozen=True):
    """The claims of a pod, as placement sees them; ``waiting_for``: what is missing.

    ``missing``: the object that it waits for, if that does not exist.

    ``extended_claims``: the claim that serves its extended resources, once the pod is bound.
    ``group_reservation``: those of ``references`` that are its group's. ``unreadable``: it is
    unknown which devices one of the claims has. ``unready``: existing claims that it cannot use.
    """

    uses: tuple[ClaimUse, ...] = ()
    references: tuple[ClaimRef, ...] = ()
    waiting_for: str = ""
    missing: MissingObject | None = None
    extended_claims: tuple[ClaimRef, ...] = ()
    group_reservation: GroupReservation | None = None
    unreadable: bool = False
    unready: tuple[ClaimRef, ...] = ()


NO_CLAIMS = PodClaims()


def pod_claims(pod: Pod, lookup: ClaimLookup, group: GroupClaims = NO_GROUP_CLAIMS) -> PodClaims:
    """Resolve every claim of ``pod``; of what is missing the first is reported."""
    if not pod.spec.resource_claims and pod.status.extended_resource_claim_status is None:
        return NO_CLAIMS
    uses: list[ClaimUse] = []
    references: list[ClaimRef] = []
    shared: list[ClaimRef] = []
    unready: list[ClaimRef] = []
    waiting, missing, unreadable = "", None, False
    created, containers = created_claims(pod), _containers_by_entry(pod)
    for entry in pod.spec.resource_claims:
        name, reason = _claim_name(pod, entry, created, group)
        if name is None and not reason:
            continue
        claim = None
        if name is not None:
            claim = lookup(pod.metadata.namespace, name)
            reason = _not_ready_reason(pod, entry, name, claim, group)
            unreadable |= claim is not None and bool(claim.metadata.unreadable)
        if claim is None or reason:
            missing = missing if waiting or claim is not None else _missing(entry)
            waiting = waiting or reason
            unready += () if claim is None else (ClaimRef.of(claim.metadata),)
            continue
        uses.append(_claim_use(entry, claim, containers[entry.name], shared=group.has(entry)))
        references.append(ClaimRef.of(claim.metadata))
        if group.has(entry):
            shared.append(references[-1])
    extended = _extended_claims(pod, lookup)
    reservation = None
    if group.group is not None and shared:
        reservation = GroupReservation(group.group, tuple(shared))
    return PodClaims(
        uses=tuple(uses),
        references=tuple(references),
        waiting_for=waiting,
        missing=missing,
        extended_claims=extended,
        group_reservation=reservation,
        unreadable=unreadable,
        unready=tuple(unready),
    )


def _missing(entry: PodResourceClaim) -> MissingObject | None:
    """What ``entry`` names, a claim or the template of one."""
    if entry.resource_claim_name:
        return MissingObject(CLAIMS, entry.resource_claim_name)
    template = entry.resource_claim_template_name
    return MissingObject(TEMPLATES, template) if template else None


def _extended_claims(pod: Pod, lookup: ClaimLookup) -> tuple[ClaimRef, ...]:
    status = pod.status.extended_resource_claim_status
    if status is None or not pod.spec.node_name:
        return ()
    claim = lookup(pod.metadata.namespace, status.resource_claim_name)
    if claim is None or not (_owned_by(claim, pod) or _is_reserved(claim, pod)):
        return ()
    return (ClaimRef.of(claim.metadata),)


def created_claims(pod: Pod) -> dict[str, str | None]:
    """The claims that were created from templates, by entry; None: the entry needs no claim."""
    return {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}


def _claim_name(
    pod: Pod, entry: PodResourceClaim, created: Mapping[str, str | None], group: GroupClaims
) -> tuple[str | None, str]:
    if entry.resource_claim_name:
        return entry.resource_claim_name, ""
    if not entry.resource_claim_template_name:
        return None, f'spec.resourceClaims["{entry.name}"] names neither a claim nor a template'
    if entry.name in created:
        return created[entry.name], ""
    if group.has(entry) and entry.name in group.claim_names:
        return group.claim_names[entry.name], ""
    return None, (
        f'ResourceClaim for spec.resourceClaims["{entry.name}"] not created yet; it is created '
        f'from ResourceClaimTemplate "{entry.resource_claim_template_name}", which must exist in '
        f'namespace "{pod.metadata.namespace}"'
    )


def _not_ready_reason(
    pod: Pod, entry: PodResourceClaim, name: str, claim: ResourceClaim | None, group: GroupClaims
) -> str:
    if claim is None:
        return f'resourceclaim "{name}" not found in namespace "{pod.metadata.namespace}"'
    if claim.metadata.unreadable:
        return f'resourceclaim "{name}": {unreadable_fields(claim.metadata)}'
    is_reserved = _is_reserved(claim, pod, group)
    if pod.spec.node_name and is_reserved:
        # It is in use, whatever its tenant has made of its owners since then.
        return ""
    if claim.metadata.deletion_timestamp is not None:
        return f'resourceclaim "{name}" is being deleted'
    if entry.resource_claim_template_name and not _owned_by(claim, pod):
        return (
            f"ResourceClaim {claim.metadata.namespace}/{name} was not created for Pod "
            f"{pod.metadata.namespace}/{pod.metadata.name} (Pod is not owner)"
        )
    return "" if is_reserved else _fully_reserved(claim)


def _fully_reserved(claim: ResourceClaim) -> str:
    users = len(claim.status.reserved_for)
    if users < MAX_RESERVED_FOR:
        return ""
    return (
        f'resourceclaim "{claim.metadata.name}" is reserved for {users} pods already, the maximum'
    )


def _is_reserved(claim: ResourceClaim, pod: Pod, group: GroupClaims = NO_GROUP_CLAIMS) -> bool:
    """Whether the claim is reserved for the pod, or for its group."""
    known = {pod.metadata.uid, "" if group.group is None else group.group.uid}
    return any(user.uid in known for user in claim.status.reserved_for)


def _owned_by(claim: ResourceClaim, pod: Pod) -> bool:
    group = pod.spec.scheduling_group
    return any(
        owner.controller
        and (
            owner.uid == pod.metadata.uid
            or (
                group is not None
                and owner.kind == "PodGroup"
                and owner.name == group.pod_group_name
            )
        )
        for owner in claim.metadata.owner_references
    )


def _containers_by_entry(pod: Pod) -> Counter[str]:
    """How many containers refer to each entry of ``spec.resourceClaims``."""
    return Counter(
        name
        for container in (*pod.spec.init_containers, *pod.spec.containers)
        for name in {each.name for each in container.resources.claims}
    )


def _claim_use(
    entry: PodResourceClaim, claim: ResourceClaim, containers: int, *, shared: bool
) -> ClaimUse:
    allocation = claim.status.allocation
    identity_matters = shared or allocation is not None or not entry.resource_claim_template_name
    return ClaimUse(
        name=entry.name,
        spec=claim.spec,
        claim=claim if identity_matters else None,
        node_selector=allocation.node_selector if allocation else None,
        containers=containers,
    )
