"""Which claims hold devices for pods that nobody is going to bind?

A scheduler that ended between a claim write and a binding leaves claims allocated and reserved for
pods that still wait. The next plan normally uses them as they are: an allocated claim pins its pod
to the node. A claim is left over when its waiting consumers are neither placed nor nominated by
the present plan nor part of a running transaction; after a grace its devices are given back, so
that the gang may be placed anywhere, and others may use the devices until then.

A claim that is reserved for a PodGroup is left over when all of the group's pods have ended, were
deleted or are waiting consumers of that kind: a gang that was evicted frees its devices, although
the PodGroup stays.

Pods that are gone are the claim controller's business, other schedulers' pods are theirs.
Cost: O(claims + pods) per look, which is done every few seconds, not every cycle.

Whose is a claim that is reserved for a PodGroup of which no pod was ever seen?

A scheduler that ended just after the last pod of a group leaves the claim of the group allocated,
and the next one has nothing to know the group by. The API server notes who wrote which field of an
object: the group is ours if the allocation is. Every such claim is read once.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Protocol

from kai_py.api.records.core import Pod
from kai_py.api.records.resource import ResourceClaim
from kai_py.api.records.unstructured import Unstructured, unstructured_decoder
from kai_py.api.references import ClaimRef
from kai_py.commit.api_access import ApiAccess
from kai_py.commit.retry import ObjectBackoff
from kai_py.plan.plan import Plan
from kai_py.snapshot.assumptions import FINISHED_PHASES
from kai_py.snapshot.tables.claims import POD_GROUPS, GroupKey, pod_group_of
from kai_py.watch.errors import ApiError, NotFound
from kai_py.watch.kinds import RESOURCE_CLAIMS
from kai_py.watch.resource import Kind
from kai_py.watch.transport import FIELD_MANAGER


@dataclass(frozen=True, slots=True)
class LeftoverClaim:
    """A claim and the uids of the consumers it holds devices for in vain."""

    claim: ClaimRef
    consumers: frozenset[str]


def planned_pods(plan: Plan) -> frozenset[str]:
    """Pods, by uid, for which the plan uses claims."""
    placed = (placement.pod.uid for gang in plan.placements for placement in gang.pods)
    return frozenset((*placed, *(nomination.pod.uid for nomination in plan.nominations)))


def find_leftover_claims(
    claims: Iterable[ResourceClaim],
    pods: Collection[Pod],
    scheduler_names: Set[str],
    in_use: Set[str],
    groups: Collection[GroupKey] = (),
) -> tuple[LeftoverClaim, ...]:
    """Left-over claims of pods that name one of ``schedulers``.

    ``wanted`` are the uids of pods whose claims are in use; ``groups`` are ours, with or without
    pods.
    """
    waiting = {
        pod.metadata.uid: pod
        for pod in pods
        if pod.spec.scheduler_name in scheduler_names and not pod.spec.node_name
    }
    idle = waiting.keys() - in_use
    idle_groups = _unused_groups(pods, idle, groups)
    used = {
        (pod.metadata.namespace, use.resource_claim_name)
        for pod in waiting.values()
        if pod.metadata.uid not in in_use
        for use in pod.spec.resource_claims
    }
    return tuple(
        LeftoverClaim(ClaimRef.of(claim.metadata), leaving)
        for claim in claims
        if claim.status.allocation is not None
        and (leaving := _removable_consumers(claim, idle, used, idle_groups)) is not None
    )


def _unused_groups(
    pods: Iterable[Pod], unused: Set[str], groups: Collection[GroupKey]
) -> frozenset[GroupKey]:
    """PodGroups all of whose pods that have not ended are ``idle``."""
    found = dict.fromkeys(groups, True)
    for pod in pods:
        key = pod_group_of(pod)
        if key is not None and pod.status.phase not in FINISHED_PHASES:
            found[key] = found.get(key, True) and pod.metadata.uid in unused
    return frozenset(key for key, every in found.items() if every)


def _removable_consumers(
    claim: ResourceClaim,
    unused: Set[str],
    used: Set[tuple[str, str]],
    groups: Set[GroupKey],
) -> frozenset[str] | None:
    if claim.status.reserved_for:
        namespace = claim.metadata.namespace
        leaving = frozenset(
            each.uid
            for each in claim.status.reserved_for
            if each.uid in unused
            or (each.resource == POD_GROUPS and (namespace, each.name) in groups)
        )
        return leaving or None
    owned = any(owner.uid in unused for owner in claim.metadata.owner_references)
    named = (claim.metadata.namespace, claim.metadata.name) in used
    return frozenset() if owned or named else None


class LeftoverTracker:
    """Since when each left-over claim has been seen, to give others time to finish with it."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._since: dict[LeftoverClaim, float] = {}

    def due(self, leftovers: Iterable[LeftoverClaim], now: float) -> tuple[LeftoverClaim, ...]:
        """Those that have been left over, unchanged, for the whole grace."""
        self._since = {left: self._since.get(left, now) for left in leftovers}
        return tuple(left for left, since in self._since.items() if now - since >= self._grace)


log = logging.getLogger(__name__)

CLAIMS_WITH_MANAGERS: Kind[Unstructured] = Kind(
    name=RESOURCE_CLAIMS.name,
    plural=RESOURCE_CLAIMS.plural,
    group=RESOURCE_CLAIMS.group,
    versions=dict.fromkeys(
        RESOURCE_CLAIMS.versions, unstructured_decoder(("metadata.managedFields",))
    ),
)
"""Claims, read for who wrote them."""


class ClaimingGroups(Protocol):
    """PodGroups that claims are reserved for, and whose these groups are."""

    def our_groups(self) -> frozenset[GroupKey]:
        """Groups of ours, with pods or without: their claims are ours to give back."""

    def unknown_groups(self) -> Mapping[ClaimRef, frozenset[str]]:
        """Names of the groups, all without pods, of which it is not known whose they are."""

    def adopt_group(self, namespace: str, name: str) -> None:
        """The group is ours, also once it has no pods; nothing for one that is not there."""


class GroupOwnership:
    """Tells ``groups`` of those whose claims were allocated by us."""

    def __init__(self, access: ApiAccess, groups: ClaimingGroups, backoff: ObjectBackoff) -> None:
        """No claim was read yet."""
        self._access, self._groups, self._backoff = access, groups, backoff
        self._read_claims: set[ClaimRef] = set()

    async def refresh(self) -> None:
        """Read the claims that are new; one that can't be read is read again later."""
        now = asyncio.get_running_loop().time()
        unknown = self._groups.unknown_groups()
        self._read_claims &= unknown.keys()
        for claim, groups in unknown.items():
            if claim in self._read_claims or not self._backoff.is_ready(claim.uid, now):
                continue
            try:
                ours = await self._is_ours(claim)
            except ApiError as error:
                self._backoff.record_failure(claim.uid, now)
                log.warning("claim %s, reserved for a PodGroup without pods: %s", claim, error)
                continue
            self._backoff.reset(claim.uid)
            self._read_claims.add(claim)
            for group in groups if ours else ():
                self._groups.adopt_group(claim.namespace, group)

    async def _is_ours(self, claim: ClaimRef) -> bool:
        served = CLAIMS_WITH_MANAGERS.at(self._access.claims.version)
        try:
            found = await self._access.call(
                lambda: self._access.client.get(served, claim.name, namespace=claim.namespace)
            )
        except NotFound:
            return False
        return any(map(_wrote_allocation, found.all_at("metadata.managedFields.*")))


def _wrote_allocation(managed_fields: Mapping[str, Any]) -> bool:
    """Whether an entry of ``managedFields`` says that we wrote the allocation."""
    status = managed_fields.get("fieldsV1", {}).get("f:status", {})
    return managed_fields.get("manager") == FIELD_MANAGER and "f:allocation" in status
