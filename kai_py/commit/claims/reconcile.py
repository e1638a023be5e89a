"""Reconciles one claim with the allocation that the plan wants, or takes it back.

A claim is up to date when it carries the desired allocation and lists every consumer in
``status.reservedFor``. From any state of the API exactly one of these follows, so a repeated or
interrupted reconciliation ends in the same place:

    deleted, created again, or allocated to other devices   failure
    no allocation, no finalizer                              patch metadata: add the finalizer
    no allocation                                            patch status: allocation and consumers
    allocated as desired, consumers missing                  patch status: consumers
    allocated as desired, consumers listed                   up to date

Patches carry uid and resourceVersion, which makes a merge patch as strict as an update without
sending fields we do not read. Releasing needs no fresh copy: consumers are removed by a strategic
merge patch; the allocation is cleared, against a resourceVersion, once no consumer is left.

A conflict, and a failure that leaves open whether the write happened, is answered by reading the
claim again. The watch's copy may be older than our own release: only a write that the server
accepts against its version, or a fresh copy, proves the state of a claim.

Sources: KEP 4381; k8s.io/kubernetes plugin dynamicresources (PreBind, Unreserve, PostFilter).
"""

from collections.abc import Iterable, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from kai_py.api.records.core import NodeSelector
from kai_py.api.records.resource import (
    DELETE_PROTECTION_FINALIZER,
    MAX_RESERVED_FOR,
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from kai_py.api.records.resource_versions import encode_allocation
from kai_py.api.references import ClaimRef, PodRef
from kai_py.commit.api_access import ApiAccess, is_gone
from kai_py.commit.patches import preconditions
from kai_py.commit.retry import TRANSIENT
from kai_py.plan.plan import GangPlacement
from kai_py.watch.client import PatchType
from kai_py.watch.errors import ApiError, Conflict


@dataclass(frozen=True, slots=True)
class DesiredClaim:
    """Where a claim must be before its consumers are bound.

    ``allocation`` is None for a claim that the plan saw allocated: it must still be, and for
    every one of ``nodes``. ``consumers`` are its ``pods``, or their group in place of them.
    """

    claim: ClaimRef
    pods: tuple[PodRef, ...]
    consumers: tuple[ResourceClaimConsumerReference, ...]
    nodes: tuple[str, ...]
    allocation: AllocationResult | None

    def released_consumers(self, pods: Set[str]) -> frozenset[str]:
        """Consumers, by uid, that leave when ``pods`` do.

        A group leaves with all of its pods, and only what it got in this attempt: others of its
        pods may use what it had before.
        """
        own = {pod.uid for pod in self.pods}
        group_leaves = self.allocation is not None and own <= pods
        return frozenset(
            each.uid
            for each in self.consumers
            if each.uid in pods or (group_leaves and each.uid not in own)
        )


@dataclass(frozen=True, slots=True)
class ClaimPatch:
    """One request that changes a claim; an empty ``subresource`` means the object itself."""

    body: dict[str, Any]
    subresource: str = "status"
    patch_type: PatchType = PatchType.MERGE


@dataclass(frozen=True, slots=True)
class ClaimUpToDate:
    """The claim is where the plan wants it."""


@dataclass(frozen=True, slots=True)
class ClaimFailure:
    """The claim can't be brought there; ``reason`` names it and says why."""

    reason: str


def desired_claims(gang: GangPlacement) -> tuple[DesiredClaim, ...]:
    """Goals of every claim that a gang's pods use, in the order in which pods mention them."""
    claims: dict[str, ClaimRef] = {}
    pods: dict[str, list[PodRef]] = {}
    consumers: dict[str, dict[str, ResourceClaimConsumerReference]] = {}
    nodes: dict[str, list[str]] = {}
    allocations: dict[str, AllocationResult] = {}
    for placement in gang.pods:
        allocations |= {new.claim.uid: new.allocation for new in placement.allocate}
        allocated = (new.claim for new in placement.allocate)
        for claim in dict.fromkeys((*allocated, *placement.reserve)):
            claims[claim.uid] = claim
            pods.setdefault(claim.uid, []).append(placement.pod)
            consumer = placement.consumer(claim)
            consumers.setdefault(claim.uid, {})[consumer.uid] = consumer
            nodes.setdefault(claim.uid, []).append(placement.node)
    return tuple(
        DesiredClaim(
            claim=claim,
            pods=tuple(pods[uid]),
            consumers=tuple(consumers[uid].values()),
            nodes=tuple(dict.fromkeys(nodes[uid])),
            allocation=allocations.get(uid),
        )
        for uid, claim in claims.items()
    )


def next_patch(
    desired: DesiredClaim, claim: ResourceClaim
) -> ClaimUpToDate | ClaimFailure | ClaimPatch:
    """The one step that follows from what the API holds for ``goal``'s claim."""
    problem = _problem(desired, claim)
    if problem:
        return ClaimFailure(f"claim {desired.claim}: {problem}")
    missing = _missing_consumers(desired, claim)
    if claim.status.allocation is not None:
        return _status_patch(claim, missing, None) if missing else ClaimUpToDate()
    if DELETE_PROTECTION_FINALIZER not in claim.metadata.finalizers:
        return _finalizer_patch(claim)
    return _status_patch(claim, missing, desired.allocation)


def _problem(desired: DesiredClaim, claim: ResourceClaim) -> str:
    if claim.metadata.uid != desired.claim.uid:
        return "was deleted and made again"
    if claim.metadata.deletion_timestamp is not None:
        return "is being deleted"
    consumers = len(claim.status.reserved_for) + len(_missing_consumers(desired, claim))
    if consumers > MAX_RESERVED_FOR:
        return f"would be reserved for {consumers} consumers, {MAX_RESERVED_FOR} are allowed"
    return _allocation_problem(desired, claim.status.allocation)


def _allocation_problem(desired: DesiredClaim, allocated: AllocationResult | None) -> str:
    if allocated is None:
        return "" if desired.allocation else "lost its allocation meanwhile"
    if desired.allocation and not same_devices(allocated, desired.allocation):
        return "was allocated to other devices meanwhile"
    if not all(selects_node(allocated.node_selector, node) for node in desired.nodes):
        return "was allocated for another node meanwhile"
    return ""


def same_devices(one: AllocationResult, other: AllocationResult) -> bool:
    """Whether two allocations give the same devices to the same requests."""
    return _devices(one) == _devices(other)


def _devices(allocation: AllocationResult) -> list[tuple[str, str, str, str, str]]:
    return sorted(
        (result.request, result.driver, result.pool, result.device, result.share_id)
        for result in allocation.devices.results
    )


def selects_node(selector: NodeSelector | None, node: str) -> bool:
    """Whether the selector's fields allow ``node``; labels are the snapshot's question.

    Node-local devices are pinned by ``metadata.name``, which is all that can differ between the
    allocation a plan saw and a new one of the same claim on local devices.
    """
    if selector is None:
        return True
    return any(
        all(
            node in field.values
            for field in term.match_fields
            if field.key == "metadata.name" and field.operator == "In"
        )
        for term in selector.node_selector_terms
    )


def _missing_consumers(
    desired: DesiredClaim, claim: ResourceClaim
) -> tuple[ResourceClaimConsumerReference, ...]:
    listed = {consumer.uid for consumer in claim.status.reserved_for}
    return tuple(each for each in desired.consumers if each.uid not in listed)


def _finalizer_patch(claim: ResourceClaim) -> ClaimPatch:
    finalizers = [*claim.metadata.finalizers, DELETE_PROTECTION_FINALIZER]
    metadata = preconditions(claim) | {"finalizers": finalizers}
    return ClaimPatch(body={"metadata": metadata}, subresource="")


def _status_patch(
    claim: ResourceClaim,
    added: Iterable[ResourceClaimConsumerReference],
    allocation: AllocationResult | None,
) -> ClaimPatch:
    status: dict[str, Any] = {
        "reservedFor": msgspec.to_builtins([*claim.status.reserved_for, *added])
    }
    if allocation is not None:
        status["allocation"] = encode_allocation(_with_timestamp(allocation))
    return ClaimPatch(body={"metadata": preconditions(claim), "status": status})


def _with_timestamp(allocation: AllocationResult) -> AllocationResult:
    """With the time from which drivers and schedulers count how long devices take to be ready."""
    if not any(result.binding_conditions for result in allocation.devices.results):
        return allocation
    now = datetime.now(UTC).replace(microsecond=0)
    return msgspec.structs.replace(allocation, allocation_timestamp=now)


def release_patch(claim: ResourceClaim, leaving: frozenset[str]) -> ClaimPatch | None:
    """The write that frees ``claim`` from consumers with these uids; None when nothing is left.

    The last consumer takes the allocation along in the same write, so no state in between holds a
    device for nobody. While others stay, only the leaving entries are touched and a concurrent
    reservation is no conflict.
    """
    uids = [consumer.uid for consumer in claim.status.reserved_for if consumer.uid in leaving]
    if len(uids) < len(claim.status.reserved_for):
        return _remove_consumers_patch(claim, uids) if uids else None
    if claim.status.allocation is None:
        return None
    cleared = {"allocation": None, "reservedFor": None, "devices": None}
    return ClaimPatch(body={"metadata": preconditions(claim), "status": cleared})


def _remove_consumers_patch(claim: ResourceClaim, uids: Iterable[str]) -> ClaimPatch:
    entries = [{"$patch": "delete", "uid": uid} for uid in uids]
    body = {"metadata": {"uid": claim.metadata.uid}, "status": {"reservedFor": entries}}
    return ClaimPatch(body=body, patch_type=PatchType.STRATEGIC)


async def reconcile_claim(
    access: ApiAccess, desired: DesiredClaim, cached: ResourceClaim | None
) -> ResourceClaim | ClaimFailure:
    """Bring a claim to its goal, starting from a copy that may be old; gives it as it then is."""
    try:
        claim = cached or await access.read_claim(desired.claim)
        failures, reason = 0, ""
        while failures < access.retry.attempts:
            step = next_patch(desired, claim)
            if claim is cached and not isinstance(step, ClaimPatch):
                claim, cached = await access.read_claim(desired.claim), None
                continue
            if isinstance(step, ClaimUpToDate):
                return claim
            if isinstance(step, ClaimFailure):
                return step
            try:
                claim = await _send_patch(access, desired.claim, step)
            except (Conflict, *TRANSIENT) as error:
                failures, reason = failures + 1, str(error)
                await access.retry.sleep(failures, error)
                claim = await access.read_claim(desired.claim)
    except ApiError as error:
        if is_gone(error):
            return ClaimFailure(f"claim {desired.claim}: was deleted")
        return ClaimFailure(f"claim {desired.claim}: {error}")
    return ClaimFailure(f"claim {desired.claim}: {failures} writes in a row failed: {reason}")


async def release_claim(
    access: ApiAccess, ref: ClaimRef, leaving: frozenset[str], cached: ResourceClaim | None = None
) -> None:
    """Take consumers with these uids from a claim, and its devices when nobody else is left.

    Raises ApiError when the API keeps failing; a claim that is gone holds nothing.
    """
    try:
        claim = cached or await access.read_claim(ref)
        for failures in range(1, access.retry.attempts + 1):
            step = release_patch(claim, leaving) if claim.metadata.uid == ref.uid else None
            if step is None:
                return
            try:
                claim = await _send_patch(access, ref, step)
            except (Conflict, *TRANSIENT) as error:
                if failures == access.retry.attempts:
                    raise
                await access.retry.sleep(failures, error)
                claim = await access.read_claim(ref)
    except ApiError as error:
        if not is_gone(error):
            raise


async def _send_patch(access: ApiAccess, claim: ClaimRef, patch: ClaimPatch) -> ResourceClaim:
    return await access.call(
        lambda: access.client.patch(
            access.claims,
            claim.name,
            patch.body,
            namespace=claim.namespace,
            subresource=patch.subresource,
            patch_type=patch.patch_type,
        )
    )
