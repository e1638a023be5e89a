"""Reconciliation of one claim with the allocation in the plan, and its release.

A claim is up to date when it carries the desired allocation and lists every consumer in
``status.reservedFor``. From any state of the API exactly one of these follows, so a repeated or
interrupted reconciliation ends in the same place:

    deleted, created again, or allocated to other devices   failure
    no allocation, no finalizer                              patch metadata: add the finalizer
    no allocation                                            patch status: allocation and consumers
    allocated as desired, consumers missing                  patch status: consumers
    allocated as desired, consumers listed                   up to date

Patches carry uid and resourceVersion, which makes a patch as strict as an update without sending
fields we do not read. Where the server cannot carry the rest of the claim through a patch, the same
change is written exactly (``exact_writes``). An allocation with opaque parameters is written by a
JSON patch, since a merge patch drops the nulls in them. Every allocation carries its time:
kube-scheduler adds a missing one when it reserves the claim, which the server refuses. Releasing
needs no fresh copy: consumers are removed by a strategic merge patch; the allocation is cleared,
against a resourceVersion, once no consumer is left.

After a conflict, or a failure that leaves open whether the write happened, the claim is read again.
The mirror's copy may be older than our own release: only a write that the server accepts against
its version, or a fresh copy, proves the state of a claim.

Sources: KEP-4381; kube-scheduler plugin dynamicresources (PreBind, Unreserve, PostFilter).
"""

from collections.abc import Iterable, Sequence, Set
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from kai_py.api.queue import WITHDRAWN_RELEASES
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
from kai_py.commit.api_access import ApiAccess, is_gone, preconditions
from kai_py.commit.claims.exact_writes import (
    ClaimPatch,
    adding_consumers,
    adding_finalizer,
    annotating,
    reencoding_hint,
    removing_consumers,
    send_patch,
)
from kai_py.commit.retry import TRANSIENT
from kai_py.plan.plan import GangPlacement, Placement
from kai_py.watch.client import PatchType
from kai_py.watch.errors import ApiError, Conflict


class DesiredClaim(Struct, frozen=True):
    """The state a claim must reach before its consumers are bound.

    ``allocation`` is None for a claim that is allocated in the snapshot: it must still be, and for
    every one of ``nodes``. ``consumers`` are its ``pods``, or their PodGroup instead of them.
    """

    claim: ClaimRef
    pods: tuple[PodRef, ...]
    consumers: tuple[ResourceClaimConsumerReference, ...]
    nodes: tuple[str, ...]
    allocation: AllocationResult | None

    def released_consumers(self, pods: Set[str]) -> frozenset[str]:
        """Uids of the consumers to remove when ``pods`` (uids) are released.

        A PodGroup is removed only with all of its pods, and only if it was allocated in this
        attempt: other pods of the group may use an earlier allocation.
        """
        own = {pod.uid for pod in self.pods}
        group_released = self.allocation is not None and own <= pods
        return frozenset(
            each.uid
            for each in self.consumers
            if each.uid in pods or (group_released and each.uid not in own)
        )


class ClaimUpToDate(Struct, frozen=True):
    """The claim is as desired."""


class ClaimFailure(Struct, frozen=True):
    """The claim can't be reconciled; ``reason`` names it and says why."""

    reason: str


def desired_claims(gang: GangPlacement) -> tuple[DesiredClaim, ...]:
    """The desired state of every claim of a gang, in the order in which its pods mention them."""
    users: dict[ClaimRef, list[Placement]] = {}
    allocations: dict[ClaimRef, AllocationResult] = {}
    for placement in gang.pods:
        allocated = {new.claim: new.allocation for new in placement.allocate}
        allocations |= allocated
        for claim in dict.fromkeys((*allocated, *placement.reserve)):
            users.setdefault(claim, []).append(placement)
    return tuple(
        DesiredClaim(
            claim=claim,
            pods=tuple(each.pod for each in placements),
            consumers=_consumers(claim, placements),
            nodes=tuple(dict.fromkeys(each.node for each in placements)),
            allocation=allocations.get(claim),
        )
        for claim, placements in users.items()
    )


def _consumers(
    claim: ClaimRef, placements: Iterable[Placement]
) -> tuple[ResourceClaimConsumerReference, ...]:
    """The consumers for which a claim is reserved; pods of one PodGroup have one together."""
    consumers = (each.consumer(claim) for each in placements)
    return tuple({each.uid: each for each in consumers}.values())


def next_patch(
    desired: DesiredClaim, claim: ResourceClaim, now: datetime
) -> ClaimUpToDate | ClaimFailure | ClaimPatch:
    """The single step from the claim as the API has it towards ``desired``."""
    problem = _problem(desired, claim)
    if problem:
        return ClaimFailure(f"claim {desired.claim}: {problem}")
    missing = _missing_consumers(desired, claim)
    if claim.status.allocation is not None:
        return _status_patch(claim, missing, None) if missing else ClaimUpToDate()
    if DELETE_PROTECTION_FINALIZER not in claim.metadata.finalizers:
        return _finalizer_patch(claim)
    return _status_patch(claim, missing, _with_time(desired.allocation, now))


def _problem(desired: DesiredClaim, claim: ResourceClaim) -> str:
    if claim.metadata.uid != desired.claim.uid:
        return "was deleted and recreated"
    if claim.metadata.deletion_timestamp is not None:
        return "is being deleted"
    consumers = len(claim.status.reserved_for) + len(_missing_consumers(desired, claim))
    if consumers > MAX_RESERVED_FOR:
        return f"would be reserved for {consumers} consumers, {MAX_RESERVED_FOR} are allowed"
    return _allocation_problem(desired, claim.status.allocation)


def _allocation_problem(desired: DesiredClaim, allocated: AllocationResult | None) -> str:
    if allocated is None:
        return "" if desired.allocation else "is no longer allocated"
    if desired.allocation and not same_devices(allocated, desired.allocation):
        return "has been allocated other devices in the meantime"
    if not all(selects_node(allocated.node_selector, node) for node in desired.nodes):
        return "has been allocated for another node in the meantime"
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
    """Whether the selector's field terms allow ``node``; labels are matched in the snapshot.

    Node-local devices are pinned by ``metadata.name``, which is all that can differ between the
    allocation in a snapshot and a new one of the same claim on local devices.
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
    return ClaimPatch(body={"metadata": metadata}, subresource="", change=adding_finalizer(claim))


def _status_patch(
    claim: ResourceClaim,
    added: Sequence[ResourceClaimConsumerReference],
    allocation: AllocationResult | None,
) -> ClaimPatch:
    status: dict[str, Any] = {
        "reservedFor": msgspec.to_builtins([*claim.status.reserved_for, *added])
    }
    if allocation is None:
        change = adding_consumers(claim, added)
        return ClaimPatch({"metadata": preconditions(claim), "status": status}, change=change)
    status["allocation"] = encode_allocation(allocation)
    if not allocation.devices.config:
        return ClaimPatch({"metadata": preconditions(claim), "status": status})
    # "add" replaces what is there: the status of a claim that is not allocated has no other parts.
    operations: list[dict[str, Any]] = [
        {"op": "replace", "path": f"/metadata/{name}", "value": value}
        for name, value in preconditions(claim).items()
    ]
    operations.append({"op": "add", "path": "/status", "value": status})
    return ClaimPatch(operations, patch_type=PatchType.JSON)


def _fencing_patch(claim: ResourceClaim) -> ClaimPatch:
    version = claim.metadata.resource_version
    metadata = preconditions(claim) | {"annotations": {WITHDRAWN_RELEASES: version}}
    change = annotating(claim, WITHDRAWN_RELEASES, version)
    return ClaimPatch(body={"metadata": metadata}, subresource="", change=change)


def _with_time(allocation: AllocationResult | None, now: datetime) -> AllocationResult | None:
    """Set the time of the allocation, from which readiness timeouts count too (KEP-5007)."""
    if allocation is None:
        return None
    return msgspec.structs.replace(allocation, allocation_timestamp=now.replace(microsecond=0))


def release_patch(claim: ResourceClaim, leaving: frozenset[str]) -> ClaimPatch | None:
    """The patch that removes consumers with these uids; None when there is nothing to do.

    Removing the last consumer clears the allocation in the same write, so that no state in between
    leaves a device allocated without a consumer. While others stay, only the removed entries are
    touched. It holds for this version of the claim only: one that arrives late is refused.
    """
    uids = [consumer.uid for consumer in claim.status.reserved_for if consumer.uid in leaving]
    if len(uids) < len(claim.status.reserved_for):
        return _remove_consumers_patch(claim, uids) if uids else None
    if claim.status.allocation is None:
        return None
    cleared = {"allocation": None, "reservedFor": None, "devices": None}
    return ClaimPatch(body={"metadata": preconditions(claim), "status": cleared})


def _remove_consumers_patch(claim: ResourceClaim, uids: Sequence[str]) -> ClaimPatch:
    entries = [{"$patch": "delete", "uid": uid} for uid in uids]
    body = {"metadata": preconditions(claim), "status": {"reservedFor": entries}}
    return ClaimPatch(
        body, patch_type=PatchType.STRATEGIC, change=removing_consumers(claim, frozenset(uids))
    )


async def reconcile_claim(
    access: ApiAccess, desired: DesiredClaim, cached: ResourceClaim | None
) -> ResourceClaim | ClaimFailure:
    """Reconcile a claim, starting from a copy that may be old; returns it as it then is.

    Ends with an accepted write, also where the claim is as desired: it has a new version then, so
    the server refuses a release of an earlier attempt, or of a former leader, that arrives late.
    """
    try:
        claim = cached or await access.read_claim(desired.claim)
        failures, reason, written = 0, "", False
        while failures < access.retry.attempts:
            step = next_patch(desired, claim, access.client.machine.utc_now())
            if isinstance(step, ClaimUpToDate):
                if written:
                    return claim
                step = _fencing_patch(claim)
            # Only an accepted write proves that a cached copy is current.
            if claim is cached and isinstance(step, ClaimFailure):
                claim, cached = await access.read_claim(desired.claim), None
                continue
            if isinstance(step, ClaimFailure):
                return step
            try:
                claim, written = await send_patch(access, desired.claim, step), True
            except (Conflict, *TRANSIENT) as error:
                failures, reason = failures + 1, str(error)
                await access.retry.sleep(failures, error)
                claim = await access.read_claim(desired.claim)
    except ApiError as error:
        if is_gone(error, desired.claim.name):
            return ClaimFailure(f"claim {desired.claim}: was deleted")
        return ClaimFailure(f"claim {desired.claim}: {error}{reencoding_hint(error)}")
    return ClaimFailure(f"claim {desired.claim}: {failures} writes in a row failed: {reason}")


async def release_claim(
    access: ApiAccess, ref: ClaimRef, leaving: frozenset[str], cached: ResourceClaim | None = None
) -> None:
    """Remove consumers with these uids from a claim, and its allocation with the last of them.

    The caller has read every one of them and knows it to be on no node (``commit.pod_state``).
    Raises ApiError when the API keeps failing; a deleted claim counts as released.
    """
    try:
        claim = cached or await access.read_claim(ref)
        for failures in range(1, access.retry.attempts + 1):
            step = release_patch(claim, leaving) if claim.metadata.uid == ref.uid else None
            if step is None:
                return
            try:
                claim = await send_patch(access, ref, step)
            except (Conflict, *TRANSIENT) as error:
                if failures == access.retry.attempts:
                    raise
                await access.retry.sleep(failures, error)
                claim = await access.read_claim(ref)
    except ApiError as error:
        if not is_gone(error, ref.name):
            raise
