"""From a pod's claim names to the claims themselves (KEP-4381, resource.k8s.io life cycle).

A claim from a template is named in ``pod.status.resourceClaimStatuses`` once the claim controller
made it; until then the pod waits. An entry without a name means that no claim is needed. Claims of
the pod's group are reserved for the group.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kai_py.api.records.core import Pod, PodResourceClaim
from kai_py.api.records.resource import ResourceClaim
from kai_py.api.references import ClaimRef
from kai_py.snapshot.gangs import GroupReservation
from kai_py.snapshot.group_claims import NO_GROUP_CLAIMS, GroupClaims
from kai_py.snapshot.shape import ClaimUse

ClaimLookup = Callable[[str, str], ResourceClaim | None]
"""(namespace, name) to the claim."""

MAX_CONSUMERS = 256
"""The API takes no more consumers of a claim."""


@dataclass(frozen=True, slots=True)
class PodClaims:
    """The claims of a pod, as placement sees them and by name; ``waiting`` says what is missing.

    ``made``: the claim that serves its extended resources, once it is bound. ``for_group``: those
    of ``references`` that are its group's.
    """

    uses: tuple[ClaimUse, ...] = ()
    references: tuple[ClaimRef, ...] = ()
    keys: tuple[tuple[str, str], ...] = ()
    waiting_for: str = ""
    extended_claims: tuple[ClaimRef, ...] = ()
    group_reservation: GroupReservation | None = None


NO_CLAIMS = PodClaims()


def pod_claims(pod: Pod, lookup: ClaimLookup, group: GroupClaims = NO_GROUP_CLAIMS) -> PodClaims:
    """Resolve every claim of ``pod``; the first obstacle is reported, the rest still resolved."""
    if not pod.spec.resource_claims and pod.status.extended_resource_claim_status is None:
        return NO_CLAIMS
    uses: list[ClaimUse] = []
    references: list[ClaimRef] = []
    keys: list[tuple[str, str]] = []
    shared: list[ClaimRef] = []
    waiting = ""
    for wanted in pod.spec.resource_claims:
        name, obstacle = _claim_name(pod, wanted, group)
        if name is None and not obstacle:
            continue
        claim = None
        if name is not None:
            keys.append((pod.metadata.namespace, name))
            claim = lookup(pod.metadata.namespace, name)
            obstacle = _not_ready_reason(pod, wanted, name, claim)
        if claim is None or obstacle:
            waiting = waiting or obstacle
            continue
        uses.append(_claim_use(wanted, claim, shared=group.has(wanted)))
        references.append(ClaimRef.of(claim.metadata))
        if group.has(wanted):
            shared.append(references[-1])
    made = _extended_claims(pod, lookup)
    for_group = None
    if group.group is not None and shared:
        for_group = GroupReservation(group.group, tuple(shared))
    return PodClaims(tuple(uses), tuple(references), tuple(keys), waiting, made, for_group)


def _extended_claims(pod: Pod, lookup: ClaimLookup) -> tuple[ClaimRef, ...]:
    told = pod.status.extended_resource_claim_status
    if told is None or not pod.spec.node_name:
        return ()
    claim = lookup(pod.metadata.namespace, told.resource_claim_name)
    if claim is None or not _owned_by(claim, pod):
        return ()
    return (ClaimRef.of(claim.metadata),)


def _claim_name(pod: Pod, entry: PodResourceClaim, group: GroupClaims) -> tuple[str | None, str]:
    if entry.resource_claim_name:
        return entry.resource_claim_name, ""
    if not entry.resource_claim_template_name:
        return None, f'spec.resourceClaims["{entry.name}"] names neither a claim nor a template'
    for status in pod.status.resource_claim_statuses:
        if status.name == entry.name:
            return status.resource_claim_name, ""
    if group.has(entry) and entry.name in group.claim_names:
        return group.claim_names[entry.name], ""
    return None, (
        f'ResourceClaim for spec.resourceClaims["{entry.name}"] not created yet; it is made from '
        f'ResourceClaimTemplate "{entry.resource_claim_template_name}", which must exist in '
        f'namespace "{pod.metadata.namespace}"'
    )


def _not_ready_reason(
    pod: Pod, entry: PodResourceClaim, name: str, claim: ResourceClaim | None
) -> str:
    if claim is None:
        return f'resourceclaim "{name}" not found in namespace "{pod.metadata.namespace}"'
    if claim.metadata.deletion_timestamp is not None:
        return f'resourceclaim "{name}" is being deleted'
    if entry.resource_claim_template_name and not _owned_by(claim, pod):
        return (
            f"ResourceClaim {claim.metadata.namespace}/{name} was not created for Pod "
            f"{pod.metadata.namespace}/{pod.metadata.name} (Pod is not owner)"
        )
    users = claim.status.reserved_for
    if len(users) >= MAX_CONSUMERS and all(user.uid != pod.metadata.uid for user in users):
        return f'resourceclaim "{name}" is in use by {len(users)} pods, no more may share it'
    return ""


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


def _claim_use(entry: PodResourceClaim, claim: ResourceClaim, *, shared: bool) -> ClaimUse:
    allocation = claim.status.allocation
    identity_matters = shared or allocation is not None or not entry.resource_claim_template_name
    return ClaimUse(
        name=entry.name,
        spec=claim.spec,
        claim=claim if identity_matters else None,
        node_selector=allocation.node_selector if allocation else None,
    )
