"""Recovery of leftover claims, and ownership of claims reserved for PodGroups.

A scheduler that ended between a claim write and a binding leaves claims allocated and reserved for
pods that still wait. The next plan normally uses them as they are: an allocated claim pins its pod
to the node. A claim is left over when its waiting consumers are neither placed nor nominated by the
present plan, nor part of a running transaction, nor assumed to be bound. After a grace period its
devices are released, so that the gang may be placed anywhere, and other pods may use the devices
until then. All this is read off the watch, which may be late; so it only says what to look at: a
claim is released once reads, made then, prove each of these consumers to be on no node.

A claim that is reserved for a PodGroup is left over when all of the group's pods have ended, were
deleted or are such waiting consumers: an evicted gang releases its devices, although the PodGroup
stays. Deleted pods are left to the claim controller, pods of other schedulers to those schedulers.

A scheduler that ended just after the last pod of a PodGroup leaves the group's claim allocated, and
no pod shows its successor which scheduler the group belongs to. ``managedFields`` does: the group
is ours if we wrote the allocation. Every such claim is read once.

Cost: O(claims + pods) per pass; there is one every few seconds, not one per cycle.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Set
from typing import Any

from msgspec import Struct

from kai_py.api.pod_phases import is_finished
from kai_py.api.records.core import Pod
from kai_py.api.records.resource import ResourceClaim
from kai_py.api.records.unstructured import Unstructured, unstructured_decoder
from kai_py.api.references import ClaimRef, GroupRef, PodRef
from kai_py.commit.api_access import ApiAccess
from kai_py.commit.claims.reconcile import release_claim
from kai_py.commit.pod_state import fence_group, fence_pod
from kai_py.commit.retry import ObjectBackoff
from kai_py.plan.plan import Plan
from kai_py.snapshot.pod_claims import POD_GROUPS, GroupKey, pod_group_of
from kai_py.snapshot.tables.ended_pods import ReleasableClaims
from kai_py.watch.errors import ApiError, is_absent
from kai_py.watch.kinds import RESOURCE_CLAIMS
from kai_py.watch.resource import Kind
from kai_py.watch.transport import FIELD_MANAGER


class LeftoverClaim(Struct, frozen=True):
    """A claim, the uids of consumers that are not going to use it, and whom to read first.

    ``pods`` and ``groups`` are those consumers; where the claim names none, the pods that it was
    allocated for: its owner, or pods that mention it.
    """

    claim: ClaimRef
    consumers: frozenset[str]
    pods: frozenset[PodRef] = frozenset()
    groups: frozenset[GroupRef] = frozenset()


def planned_pods(plan: Plan) -> frozenset[str]:
    """Uids of the pods whose claims the plan uses."""
    placed = (placement.pod.uid for gang in plan.placements for placement in gang.pods)
    return frozenset((*placed, *(nomination.pod.uid for nomination in plan.nominations)))


def find_leftover_claims(
    claims: Iterable[ResourceClaim],
    pods: Collection[Pod],
    scheduler_names: Set[str],
    in_use: Set[str],
    groups: Collection[GroupKey] = (),
) -> tuple[LeftoverClaim, ...]:
    """Leftover claims of pods that name one of ``scheduler_names``.

    ``in_use``: uids of pods that are planned, being bound or assumed to be bound; ``groups``:
    PodGroups of ours, with or without pods.
    """
    waiting = {
        pod.metadata.uid: pod
        for pod in pods
        if pod.spec.scheduler_name in scheduler_names and not pod.spec.node_name
    }
    idle = {uid: pod for uid, pod in waiting.items() if uid not in in_use}
    bound = {
        pod.metadata.uid: pod
        for pod in pods
        if not is_finished(pod) and (pod.spec.node_name or pod.metadata.uid in in_use)
    }
    view = _Consumers(
        idle=idle,
        idle_by_claim=_pods_by_claim(idle.values()),
        bound_uids=bound.keys(),
        bound_claims=_pods_by_claim(bound.values()).keys(),
        idle_groups=_unused_groups(pods, idle.keys(), groups),
    )
    allocated = (claim for claim in claims if claim.status.allocation is not None)
    found = (_leftover(claim, view) for claim in allocated)
    return tuple(leftover for leftover in found if leftover is not None)


class _Consumers(Struct, frozen=True):
    """Pods and PodGroups by what the watch shows; claims by (namespace, name)."""

    idle: Mapping[str, Pod]
    idle_by_claim: Mapping[tuple[str, str], list[Pod]]
    bound_uids: Set[str]
    bound_claims: Set[tuple[str, str]]
    idle_groups: Set[GroupKey]


def _pods_by_claim(pods: Iterable[Pod]) -> dict[tuple[str, str], list[Pod]]:
    """Pods by the claims that they mention, in their spec or their status."""
    found: dict[tuple[str, str], list[Pod]] = {}
    for pod in pods:
        named = (use.resource_claim_name for use in pod.spec.resource_claims)
        made = (use.resource_claim_name or "" for use in pod.status.resource_claim_statuses)
        for name in dict.fromkeys((*named, *made)):
            if name:
                found.setdefault((pod.metadata.namespace, name), []).append(pod)
    return found


def _unused_groups(
    pods: Iterable[Pod], unused: Set[str], groups: Collection[GroupKey]
) -> frozenset[GroupKey]:
    """PodGroups whose unfinished pods all are in ``unused``, a set of uids."""
    unused_by_key = dict.fromkeys(groups, True)
    for pod in pods:
        key = pod_group_of(pod)
        if key is not None and not is_finished(pod):
            unused_by_key[key] = unused_by_key.get(key, True) and pod.metadata.uid in unused
    return frozenset(key for key, is_unused in unused_by_key.items() if is_unused)


def _leftover(claim: ResourceClaim, view: _Consumers) -> LeftoverClaim | None:
    ref, namespace = ClaimRef.of(claim.metadata), claim.metadata.namespace
    owners = {owner.uid for owner in claim.metadata.owner_references}
    key = namespace, claim.metadata.name
    runs = bool(owners & view.bound_uids) or key in view.bound_claims
    if runs and not any(each.uid in view.bound_uids for each in claim.status.reserved_for):
        return None  # a pod runs with it and has lost its reservation
    if claim.status.reserved_for:
        listed = claim.status.reserved_for
        pods = {each.uid: PodRef(namespace, each.name, each.uid) for each in listed}
        leaving = frozenset(pods[each.uid] for each in listed if each.uid in view.idle)
        groups = frozenset(
            GroupRef(namespace, each.name, each.uid)
            for each in listed
            if each.resource == POD_GROUPS and (namespace, each.name) in view.idle_groups
        )
        uids = frozenset(pod.uid for pod in leaving) | {group.uid for group in groups}
        return LeftoverClaim(ref, uids, leaving, groups) if uids else None
    users = [view.idle[uid] for uid in owners & view.idle.keys()]
    users += view.idle_by_claim.get(key, ())
    pods_to_read = frozenset(PodRef.of(pod.metadata) for pod in users)
    return LeftoverClaim(ref, frozenset(), pods_to_read) if users else None


async def release_leftover(access: ApiAccess, leftover: LeftoverClaim) -> str:
    """Release a leftover claim if reads prove it unused; returns why it is kept, else "".

    The claim is read before its pods: whoever reserves it afterwards makes the release a conflict.
    Raises ApiError if the release fails.
    """
    claim = await access.read_claim(leftover.claim)
    readings = await asyncio.gather(
        *(fence_pod(access, pod) for pod in sorted(leftover.pods)),
        *(fence_group(access, group) for group in sorted(leftover.groups)),
    )
    for reading in readings:
        if not reading.proves_unused:
            return reading.problem or "a pod that uses it is on a node"
    if claim.status.reserved_for and not leftover.consumers:
        return "it has been reserved meanwhile"
    await release_claim(access, leftover.claim, leftover.consumers, claim)
    return ""


class LeftoverTracker:
    """Since when each leftover claim has been seen; ``grace`` in seconds."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._since: dict[LeftoverClaim, float] = {}

    def due(self, leftovers: Iterable[LeftoverClaim], now: float) -> tuple[LeftoverClaim, ...]:
        """Claims that have been left over, unchanged, for the whole grace period."""
        self._since = {leftover: self._since.get(leftover, now) for leftover in leftovers}
        return tuple(
            leftover for leftover, since in self._since.items() if now - since >= self._grace
        )


log = logging.getLogger(__name__)

CLAIMS_WITH_MANAGERS: Kind[Unstructured] = Kind(
    name=RESOURCE_CLAIMS.name,
    plural=RESOURCE_CLAIMS.plural,
    group=RESOURCE_CLAIMS.group,
    versions=dict.fromkeys(
        RESOURCE_CLAIMS.versions, unstructured_decoder(("metadata.managedFields",))
    ),
)
"""Claims with their ``managedFields``, which the mirror does not keep."""


class GroupOwnership:
    """Finds out which PodGroups are ours from the writer of their claims' allocations."""

    def __init__(self, access: ApiAccess, groups: ReleasableClaims, backoff: ObjectBackoff) -> None:
        """Start with no claim read."""
        self._access, self._groups, self._backoff = access, groups, backoff
        self._read_claims: set[ClaimRef] = set()

    async def refresh(self) -> None:
        """Read the claims that are new; one that can't be read is tried again after its backoff."""
        now = asyncio.get_running_loop().time()
        unknown = self._groups.unknown_groups()
        self._read_claims &= unknown.keys()
        for claim, groups in unknown.items():
            if claim in self._read_claims or not self._backoff.is_ready(claim.uid, now):
                continue
            try:
                is_ours = await self._is_ours(claim)
            except ApiError as error:
                self._backoff.record_failure(claim.uid, now)
                log.warning("claim %s, reserved for a PodGroup without pods: %s", claim, error)
                continue
            self._backoff.reset(claim.uid)
            self._read_claims.add(claim)
            for group in groups if is_ours else ():
                self._groups.adopt_group(claim.namespace, group)

    async def _is_ours(self, claim: ClaimRef) -> bool:
        served = CLAIMS_WITH_MANAGERS.at(self._access.claims.version)
        try:
            found = await self._access.call(
                lambda: self._access.client.get(served, claim.name, namespace=claim.namespace)
            )
        except ApiError as error:
            if is_absent(error, claim.name):
                return False
            raise
        return any(map(_wrote_allocation, found.all_at("metadata.managedFields.*")))


def _wrote_allocation(managed_fields: Mapping[str, Any]) -> bool:
    """Whether an entry of ``managedFields`` shows that this scheduler wrote the allocation."""
    status = managed_fields.get("fieldsV1", {}).get("f:status", {})
    return managed_fields.get("manager") == FIELD_MANAGER and "f:allocation" in status
