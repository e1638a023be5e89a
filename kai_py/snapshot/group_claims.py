"""Which claims of a pod are those of its PodGroup? (KEP-5729)

A claim of a pod is its group's where ``spec.resourceClaims`` of the group has an entry of the same
name and source. There is one such claim for the whole group, allocated once and reserved for the
group in place of its pods. The claim controller names what it made from a template in the status of
the group, and then in that of every pod.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from kai_py.api.records.core import Pod, PodResourceClaim, PodResourceClaimStatus
from kai_py.api.records.document import Unstructured
from kai_py.api.references import ClaimRef, GroupRef
from kai_py.snapshot.gangs import Gang

POD_GROUPS = "podgroups"

GroupKey = tuple[str, str]
"""Namespace and name of a PodGroup."""

FindNamed = Callable[[str, str, str], object | None]
"""(collection, namespace, name) to the object."""


@dataclass(frozen=True, slots=True)
class GroupClaims:
    """What the group of a pod claims; nothing for a pod without a group.

    ``made``: the claims that were made from templates, None where none is needed, by entry.
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
    if not isinstance(found, Unstructured):
        return NO_GROUP_CLAIMS
    wanted = found.first_at("spec.resourceClaims") or []
    statuses = found.first_at("status.resourceClaimStatuses") or []
    made = msgspec.convert(statuses, tuple[PodResourceClaimStatus, ...])
    meta = found.metadata
    return GroupClaims(
        group=GroupRef(meta.namespace, meta.name, meta.uid),
        entries=msgspec.convert(wanted, tuple[PodResourceClaim, ...]),
        claim_names={each.name: each.resource_claim_name for each in made},
    )


def group_claim_users(
    claims: Sequence[ClaimRef], gangs: Iterable[Gang]
) -> Mapping[ClaimRef, frozenset[str]]:
    """Pods on nodes, also leaving ones, that use ``claims`` of their groups; O(pods) if any."""
    users: dict[ClaimRef, set[str]] = {ref: set() for ref in claims}
    for gang in gangs if users else ():
        for member in gang.members:
            used = (
                member.group_reservation.claims if member.group_reservation and member.node else ()
            )
            for ref in used:
                users.setdefault(ref, set()).add(member.pod.uid)
    return {ref: frozenset(users[ref]) for ref in claims}
