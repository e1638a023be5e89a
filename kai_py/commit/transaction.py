"""All-or-nothing binding of a gang.

    0. create    claims for extended resources exist, on nodes without a device plugin for them
    1. allocate  every claim of the gang is allocated and reserved; one that can't be ends it
    2. observe   the mirror shows these allocations, and no other claim has one of the devices;
                 the latter is checked once more before the first binding, and so are its nodes
    3. ready     drivers have met the binding conditions of the devices, where there are any
    4. GPUs      a reservation pod keeps each GPU of a device plugin that pods of the gang share
    5. status    pods name in their status the claim for their extended resources, and nothing of
                 an attempt on a node that served them otherwise
    6. bind      all pods, as many at a time as the concurrency limit allows

Nothing is bound before 0 to 5 hold for the whole gang. Up to there any failure releases every
claim, and deletes those that were created; reservation pods that are left over are deleted by
``commit.upkeep.reservation_pods``. From 6 on a pod that can't be bound (deleted meanwhile, refused)
does not fail the others: its claims are released, and the next cycle completes the gang or evicts
it.

Claims are released only for pods that a read, made after the decision to release, proves to be on
no node, and that no binding under way can put on one (``kai_py.commit.pod_state``). In the same way
a claim is written before its pods are bound, so that no release under way can take it from them.
While the API gives no usable answer, whatever the error, the transaction stays open: its pods and
devices go on counting as allocated, and it reads again with backoff until it knows.

``withdraw`` ends a transaction before its first binding, when a gang of higher priority gets the
capacity: pods that never ran are not deleted, they stay pending.

Each step is idempotent: after a crash anywhere the next plan, made from the API's state, starts a
transaction that continues, or ``kai_py.commit.claims.recovery`` releases the claims. A pod that
another scheduler has bound to another node keeps its claims: they may be in use.

Cost: per pod one binding, per claim two patches (finalizer, status), or one where it was
allocated before; per undone claim one patch. A claim to create costs one create and one patch of
the pod more, and undoing it a read, a patch and a delete.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from msgspec import Struct

from kai_py.api.records.resource import AllocationResult, ResourceClaim
from kai_py.api.references import ClaimRef, GroupRef, PodRef
from kai_py.api.texts import first_of
from kai_py.commit.api_access import ApiAccess, FindPod
from kai_py.commit.binding import (
    BindingOutcome,
    BindingResult,
    FindNode,
    bind,
    node_problem,
    outcome_of,
    settle,
)
from kai_py.commit.claims.binding_conditions import (
    DeviceCondition,
    DevicesNotReady,
    format_conditions,
    readiness,
    wait_until_ready,
)
from kai_py.commit.claims.device_holders import DeviceHolders, OtherHolder
from kai_py.commit.claims.extended_resources import create_claim, delete_claim, write_pod_status
from kai_py.commit.claims.reconcile import (
    ClaimFailure,
    DesiredClaim,
    desired_claims,
    reconcile_claim,
    release_claim,
)
from kai_py.commit.gpu_reservations import GpuReservationError, GpuReservations
from kai_py.commit.pod_state import fence_group, fence_until_known
from kai_py.commit.settings import CommitSettings
from kai_py.plan.plan import GangPlacement, Placement
from kai_py.snapshot.pod_claims import POD_GROUPS
from kai_py.watch.errors import ApiError

Result = TypeVar("Result")

log = logging.getLogger(__name__)
RELEASING_OUTCOMES = (BindingOutcome.DELETED, BindingOutcome.FAILED)
FAILURE_OUTCOMES = (BindingOutcome.BOUND_ELSEWHERE, BindingOutcome.FAILED)


class GangOutcome(Struct, frozen=True):
    """Outcome of a gang; ``reason`` says why nothing was bound, empty when binding began."""

    gang: GangPlacement
    bindings: tuple[BindingResult, ...] = ()
    reason: str = ""
    other_holders: tuple[OtherHolder, ...] = ()
    failed_devices: tuple[DeviceCondition, ...] = ()
    """Devices that their drivers could not make ready, each with the condition that reports it."""

    @property
    def bound(self) -> tuple[PodRef, ...]:
        """Pods that are on their nodes."""
        return tuple(b.pod for b in self.bindings if b.outcome is BindingOutcome.BOUND)

    @property
    def unbound(self) -> tuple[PodRef, ...]:
        """Pods whose capacity is free again."""
        bound = {pod.uid for pod in self.bound}
        return tuple(p.pod for p in self.gang.pods if p.pod.uid not in bound)

    @property
    def failures(self) -> tuple[BindingResult, ...]:
        """Bindings that failed, except those of deleted pods."""
        return tuple(b for b in self.bindings if b.outcome in FAILURE_OUTCOMES)

    @property
    def is_overtaken(self) -> bool:
        """Whether nothing was bound and pods have been deleted: their claims go with them."""
        outcomes = {each.outcome for each in self.bindings}
        return bool(self.reason) and BindingOutcome.DELETED in outcomes


@dataclass
class GangTransaction:
    """One attempt to bind a gang; ``run`` is called once.

    ``cached_claims``: claims by uid from the mirror; they may be old. ``report_waiting`` is called
    with pods whose devices their drivers have to make ready, and a note of what is missing.
    ``is_shared`` tells whether another running transaction uses the claim with a uid. ``find_node``
    and ``find_pod`` know what the mirror has; a pod that it does not have is read, and nothing is
    removed that an earlier attempt wrote on it.
    """

    gang: GangPlacement
    access: ApiAccess
    holders: DeviceHolders
    settings: CommitSettings
    cached_claims: Mapping[str, ResourceClaim]
    report_waiting: Callable[[PodRef, str], None]
    is_shared: Callable[[str], bool]
    find_node: FindNode
    find_pod: FindPod
    gpu_reservations: GpuReservations | None = None
    """None where nothing restricts containers to the shared GPUs that were chosen for them."""

    def __post_init__(self) -> None:
        self._desired_claims = list(desired_claims(self.gang))
        self._created_claims: dict[str, ClaimRef] = {}
        self._limiter = asyncio.Semaphore(self.settings.concurrency)
        self._observed: dict[str, ResourceClaim | None] = {}
        self._problem = ""
        self._withdrawn = asyncio.Event()
        names = dict.fromkeys(placement.node for placement in self.gang.pods)
        self._nodes = {name: self.find_node(name) for name in names}
        self._other_holders: tuple[OtherHolder, ...] = ()
        self._failed_devices: tuple[DeviceCondition, ...] = ()
        self._visible_gpus: dict[str, str] = {}

    def withdraw(self, reason: str) -> None:
        """Bind nothing any more and release the claims; without effect once binding has begun."""
        self._fail(reason)
        self._withdrawn.set()

    def _fail(self, reason: str) -> None:
        """Note why nothing may be bound, unless ``reason`` is empty; the first one counts."""
        self._problem = self._problem or reason

    async def run(self) -> GangOutcome:
        """Run the transaction; every failure is in the outcome."""
        await gather_all(self._create_claim(placement) for placement in self.gang.pods)
        await gather_all(self._reconcile(desired) for desired in self._desired_claims)
        await self._wait_for_mirror()
        await self._wait_for_devices()
        await self._reserve_gpus()
        await self._write_pod_statuses()
        self._recheck_devices()
        self._recheck_nodes()
        if self._problem:
            deleted = await self._undo()
            return GangOutcome(
                self.gang,
                deleted,
                reason=self._problem,
                other_holders=self._other_holders,
                failed_devices=self._failed_devices,
            )
        bindings = await gather_all(self._bind(p) for p in self.gang.pods)
        # A pod bound elsewhere keeps its claims: they may be in use there.
        await self._release_claims(b.pod.uid for b in bindings if b.outcome in RELEASING_OUTCOMES)
        return GangOutcome(self.gang, tuple(bindings))

    async def _bind(self, placement: Placement) -> BindingResult:
        result = await bind(
            self.access,
            placement,
            self.find_pod(placement.pod),
            self.gang.terms(placement),
            self._visible_gpus.get(placement.pod.uid, ""),
        )
        if result.outcome is not BindingOutcome.UNKNOWN:
            return result
        log.warning(
            "pod %s: it is unknown whether it was bound; its devices stay allocated until a read "
            "shows it: %s",
            placement.pod,
            result.reason,
        )
        return await settle(self.access, placement, result)

    async def _create_claim(self, placement: Placement) -> None:
        claim_to_create, pod = placement.create_claim, placement.pod
        if claim_to_create is None or self._problem:
            return
        async with self._limiter:
            created = await create_claim(self.access, pod, claim_to_create)
        if isinstance(created, ClaimFailure):
            self._fail(created.reason)
            return
        claim = self._created_claims[pod.uid] = ClaimRef.of(created.metadata)
        allocation = claim_to_create.claim.status.allocation
        consumer = placement.consumer(claim)
        self._desired_claims.append(
            DesiredClaim(claim, (pod,), (consumer,), (placement.node,), allocation)
        )
        self._observed[claim.uid] = created

    async def _reconcile(self, desired: DesiredClaim) -> None:
        uid = desired.claim.uid
        async with self._limiter:
            if self._problem:
                return
            cached = self._observed.get(uid) or self.cached_claims.get(uid)
            # Marks the claim as touched: even a failed write may have arrived, so undoing must
            # release it.
            self._observed[uid] = None
            result = await reconcile_claim(self.access, desired, cached)
        if isinstance(result, ClaimFailure):
            self._fail(result.reason)
        else:
            self._observed[uid] = result

    async def _wait_for_mirror(self) -> None:
        for desired in self._desired_claims:
            if self._problem:
                return
            if desired.allocation is not None:
                self._fail(await self._wait_until_mirrored(desired.claim, desired.allocation))

    async def _wait_until_mirrored(self, claim: ClaimRef, allocation: AllocationResult) -> str:
        if not await self.holders.wait_until_seen(claim, allocation, self.settings.mirror_timeout):
            return f"claim {claim}: the watch did not show its allocation in time"
        return self._conflict(claim, allocation)

    def _recheck_devices(self) -> None:
        """Give way to a claim that has been allocated one of the devices meanwhile."""
        for desired in self._desired_claims:
            observed = self._observed.get(desired.claim.uid)
            allocation = observed.status.allocation if observed is not None else None
            if not self._problem and allocation is not None:
                self._fail(self._conflict(desired.claim, allocation))

    def _recheck_nodes(self) -> None:
        if self._problem:
            return
        for name, planned in self._nodes.items():
            self._fail(node_problem(name, planned, self.find_node(name)))

    def _conflict(self, claim: ClaimRef, allocation: AllocationResult) -> str:
        self._other_holders = tuple(self.holders.other_holders(claim, allocation))
        return f"claim {claim}: {self._other_holders[0]}" if self._other_holders else ""

    async def _wait_for_devices(self) -> None:
        if self._problem or not self._desired_claims:
            return
        waiting = asyncio.gather(*map(self._wait_until_ready, self._desired_claims))
        results = await self._unless_withdrawn(waiting)
        unready = [each for each in results or () if each is not None]
        self._failed_devices = tuple(device for each in unready for device in each.devices)
        if unready:
            self._fail(unready[0].reason)

    async def _unless_withdrawn(self, waiting: asyncio.Future[Result]) -> Result | None:
        """The result of ``waiting``; None if the gang is withdrawn first."""
        withdrawn = asyncio.create_task(self._withdrawn.wait())
        try:
            await asyncio.wait((waiting, withdrawn), return_when=asyncio.FIRST_COMPLETED)
        finally:
            withdrawn.cancel()
        if not self._problem:
            return await waiting
        waiting.cancel()
        await asyncio.wait((waiting,))
        return None

    async def _reserve_gpus(self) -> None:
        """Reserve the shared GPUs of the gang, and note what its containers are to see."""
        sharing = [placement for placement in self.gang.pods if placement.gpus]
        if self._problem or self.gpu_reservations is None or not sharing:
            return
        visible = map(self.gpu_reservations.visible_gpus, sharing)
        # Wait for all of them, so that none makes a reservation after the gang was given up.
        waiting = asyncio.gather(*visible, return_exceptions=True)
        results = await self._unless_withdrawn(waiting) or ()
        for placement, value in zip(sharing, results, strict=False):
            if isinstance(value, str):
                self._visible_gpus[placement.pod.uid] = value
            elif isinstance(value, GpuReservationError):
                self._fail(str(value))
            else:
                raise value

    async def _wait_until_ready(self, desired: DesiredClaim) -> DevicesNotReady | None:
        claim = self._observed[desired.claim.uid]
        if claim is None:
            return None
        missing = readiness(claim).missing
        if missing:
            nodes, conditions = first_of(desired.nodes), format_conditions(missing)
            note = f"waiting for binding conditions for device on node {nodes}: {conditions}"
            for pod in desired.pods:
                self.report_waiting(pod, note)
        return await wait_until_ready(self.access, self.holders, claim, self.settings.readiness)

    async def _write_pod_statuses(self) -> None:
        if self._problem:
            return
        find = self.find_pod
        writes = (write_pod_status(self.access, p, find(p.pod)) for p in self.gang.pods)
        for problem in await gather_all(writes):
            self._fail(problem)

    async def _undo(self) -> tuple[BindingResult, ...]:
        """Release all claims but those of a pod that was bound earlier; the pods that are gone."""
        placements = self.gang.pods if self._observed else ()
        pause = self.access.settle_pause
        readings = await gather_all(
            fence_until_known(self.access, each.pod, pause) for each in placements
        )
        read = list(zip(placements, readings, strict=True))
        await self._release_claims(each.pod.uid for each, found in read if found.proves_unused)
        outcomes = (outcome_of(found, each) for each, found in read)
        return tuple(o for o in outcomes if o and o.outcome is BindingOutcome.DELETED)

    async def _release_claims(self, pods: Iterable[str]) -> None:
        released = frozenset(pods)
        await gather_all(
            self._release(desired, consumers)
            for desired in self._desired_claims
            if desired.claim.uid in self._observed
            and (consumers := desired.released_consumers(released))
        )
        created = [claim for pod, claim in self._created_claims.items() if pod in released]
        await gather_all(self._delete_claim(claim) for claim in created)

    async def _delete_claim(self, claim: ClaimRef) -> None:
        try:
            await delete_claim(self.access, claim)
        except ApiError as error:
            log.warning("claim %s: kept until its pod is deleted: %s", claim, error)

    async def _release(self, desired: DesiredClaim, leaving: frozenset[str]) -> None:
        unused = leaving - await self._groups_in_use(desired, leaving)
        try:
            await release_claim(
                self.access, desired.claim, unused, self._observed[desired.claim.uid]
            )
        except ApiError as error:
            log.warning(
                "claim %s: devices not released; recovery retries: %s",
                desired.claim,
                error,
            )

    async def _groups_in_use(
        self, desired: DesiredClaim, leaving: frozenset[str]
    ) -> frozenset[str]:
        """Uids of leaving PodGroups that may have bound pods, of which this gang need not know."""
        namespace = desired.claim.namespace
        groups = [
            GroupRef(namespace, each.name, each.uid)
            for each in desired.consumers
            if each.resource == POD_GROUPS and each.uid in leaving
        ]
        readings = await gather_all(fence_group(self.access, each) for each in groups)
        # Other pods of the group that are being bound now rely on the group's reservation.
        shared = self.is_shared(desired.claim.uid)
        return frozenset(
            group.uid
            for group, read in zip(groups, readings, strict=True)
            if shared or not read.proves_unused
        )


async def gather_all(work: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """The results of ``work``, run concurrently, in its order; raises its first exception."""
    # Most gangs have one pod and no claim. ``asyncio.gather`` makes a task of each coroutine and
    # lets the event loop turn once more even for none, which costs much at 1000 bindings a second.
    coroutines = list(work)
    if len(coroutines) > 1:
        return await asyncio.gather(*coroutines)
    return [await each for each in coroutines]
