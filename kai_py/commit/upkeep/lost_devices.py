"""Repair of bound pods whose claims have lost their allocation or reservation.

Nothing that this scheduler does takes a claim from a bound pod. Other programs can, and so can an
older scheduler. Such a pod runs on devices that count as free, and the next gang may get them. It
is found in the mirror, and once reads of pod and claim confirm it:

    allocated for the pod's node, not reserved for it   it is reserved for the pod again
    not allocated, its devices are known and free       they are allocated to the claim again
    otherwise                                           the pod is evicted, if its workload survives

Its devices are known if this process saw the allocation that was cleared. Other devices would not
do: the containers keep those that they started with, and these would still count as free. A pod
whose devices are not known, or now belong to another claim, can only be started again.

Cost: O(bound pods with claims) per pass, two reads per pod that is found.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct

from kai_py.api.pod_phases import is_finished
from kai_py.api.records.core import Pod
from kai_py.api.records.resource import (
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from kai_py.api.references import ClaimRef, PodRef
from kai_py.commit.api_access import ApiAccess
from kai_py.commit.claims.device_holders import DeviceHolders
from kai_py.commit.claims.reconcile import ClaimFailure, DesiredClaim, reconcile_claim, selects_node
from kai_py.commit.event_writer import EventWriter
from kai_py.commit.eviction import EvictionOutcome, ForcedEvictions
from kai_py.commit.pod_state import ReadState, read_pod_state
from kai_py.snapshot.pod_claims import POD_GROUPS, created_claims, pod_group_of
from kai_py.watch.errors import ApiError

log = logging.getLogger(__name__)


class RepairOutcome(StrEnum):
    """The outcome for a pod without its devices; the values are metric labels."""

    RESERVED = "reserved"
    RESTORED = "restored"
    EVICTED = "evicted"
    FAILED = "failed"


class DamagedPod(Struct, frozen=True):
    """A bound pod of ours, and a claim of it that is not allocated or not reserved for it."""

    pod: PodRef
    claim: ClaimRef


def find_damaged_pods(
    pods: Iterable[Pod],
    claims: Mapping[tuple[str, str], ResourceClaim],
    scheduler_names: Set[str],
) -> Iterator[DamagedPod]:
    """Bound, unfinished pods that name one of ``scheduler_names`` and lack a claim of theirs.

    ``claims`` by (namespace, name); a claim that does not exist is left to its controller.
    """
    for pod in pods:
        if (
            not pod.spec.node_name
            or pod.spec.scheduler_name not in scheduler_names
            or is_finished(pod)
            or pod.metadata.deletion_timestamp is not None
        ):
            continue
        for name in claim_names(pod):
            claim = claims.get((pod.metadata.namespace, name))
            if claim is not None and not _is_held(claim, pod):
                yield DamagedPod(PodRef.of(pod.metadata), ClaimRef.of(claim.metadata))


def claim_names(pod: Pod) -> list[str]:
    """Names of the claims of a pod, as far as they are known."""
    created = created_claims(pod)
    named = [
        each.resource_claim_name or created.get(each.name) or ""
        for each in pod.spec.resource_claims
    ]
    extended = pod.status.extended_resource_claim_status
    named.append(extended.resource_claim_name if extended is not None else "")
    return [name for name in dict.fromkeys(named) if name]


def _is_held(claim: ResourceClaim, pod: Pod) -> bool:
    group = pod_group_of(pod)
    return claim.status.allocation is not None and any(
        each.uid == pod.metadata.uid
        or (each.resource == POD_GROUPS and group == (pod.metadata.namespace, each.name))
        for each in claim.status.reserved_for
    )


class PodRepair(Struct, frozen=True, kw_only=True):
    """Gives pods their devices back; ``count`` is called once per outcome of a pod."""

    access: ApiAccess
    holders: DeviceHolders
    event_writer: EventWriter
    evictions: ForcedEvictions
    count: Callable[[str], None]

    async def repair(self, damaged: DamagedPod) -> None:
        """Repair one pod if reads confirm that it is damaged; failures are tried again later."""
        reading = await read_pod_state(self.access, damaged.pod)
        if reading.state is not ReadState.BOUND or reading.pod is None:
            return
        try:
            claim = await self.access.read_claim(damaged.claim)
        except ApiError as error:
            log.warning("claim %s of bound pod %s: %s", damaged.claim, damaged.pod, error)
            return
        if claim.metadata.uid != damaged.claim.uid or _is_held(claim, reading.pod):
            return
        outcome, detail = await self._restore(damaged, reading.pod, claim)
        self.count(outcome.value)
        note = f"claim {damaged.claim} of this bound pod had lost its devices: {detail}"
        self.event_writer.report_repair(damaged.pod, damaged.claim, note)
        log.warning("pod %s: %s", damaged.pod, note)

    async def _restore(
        self, damaged: DamagedPod, pod: Pod, claim: ResourceClaim
    ) -> tuple[RepairOutcome, str]:
        allocated, node = claim.status.allocation, pod.spec.node_name
        allocation = allocated or self.holders.lost_allocation(claim.metadata.uid)
        problem = self._problem(damaged.claim, allocation, node)
        if not problem:
            consumer = ResourceClaimConsumerReference(
                resource="pods", name=damaged.pod.name, uid=damaged.pod.uid
            )
            new = None if allocated is not None else allocation
            desired = DesiredClaim(damaged.claim, (damaged.pod,), (consumer,), (node,), new)
            # Write against the copy that was read, so that any change since then is a conflict.
            result = await reconcile_claim(self.access, desired, claim)
            if not isinstance(result, ClaimFailure):
                if allocated is not None:
                    return RepairOutcome.RESERVED, "it is reserved for the pod again"
                return RepairOutcome.RESTORED, "the same devices are allocated to it again"
            return RepairOutcome.FAILED, f"{result.reason}; this is tried again"
        reason = f"{problem}, so the pod is evicted"
        outcome, effect = await self.evictions.evict(pod, reason)
        if outcome in (EvictionOutcome.EVICTED, EvictionOutcome.DELETED):
            return RepairOutcome.EVICTED, f"{problem}, so {effect}"
        return RepairOutcome.FAILED, f"{problem}, but {effect}"

    def _problem(self, ref: ClaimRef, allocation: AllocationResult | None, node: str) -> str:
        """Why the pod can't have ``allocation`` back, "" if it can."""
        if allocation is None:
            return "it is not known which ones it had"
        if not selects_node(allocation.node_selector, node):
            return f"its devices are not on node {node}"
        others = self.holders.other_holders(ref, allocation)
        return str(others[0]) if others else ""


@dataclass(kw_only=True)
class RepairPasses:
    """Repairs pods that were found damaged in two passes: the mirror may be a moment behind.

    ``find``: what the mirror shows; ``is_written``: whether a transaction or release is at work on
    it; ``catch_up``: why the mirror doesn't show our own writes, "" if it does.
    """

    repair: PodRepair
    find: Callable[[], Iterable[DamagedPod]]
    is_written: Callable[[DamagedPod], bool]
    catch_up: Callable[[], Awaitable[str]]
    _previous: frozenset[DamagedPod] = frozenset()

    async def run_once(self) -> None:
        """One pass."""
        damaged = {each: None for each in self.find() if not self.is_written(each)}
        for each in damaged:
            if each in self._previous and not await self.catch_up():
                await self.repair.repair(each)
        self._previous = frozenset(damaged)
