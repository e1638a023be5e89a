"""How is a gang brought to the cluster, all or none?

    0. made      claims for extended resources, on nodes without a device plugin for them, exist
    1. claims    every claim of the gang is allocated and reserved; one that can't be ends it
    2. seen      the mirror shows these allocations, and nobody else holds one of the devices;
                 the latter is looked at once more before the first binding
    3. ready     drivers have met the binding conditions of the devices, where there are any
    4. told      pods say in their status which claim serves their extended resources
    5. binding   all pods, at most ``lane`` at a time

Nothing is bound before 0 to 4 hold for the whole gang. Up to there any failure gives back every
claim, and deletes those that were made. From 5 on a pod that can't be bound (deleted meanwhile,
refused) is no error of the others: its claims are given back, and the next cycle completes the gang
or evicts it.

Each step can be repeated: after a crash anywhere the next plan, made from what the API holds,
starts a transaction that continues, or ``kai_py.commit.claims.recovery`` gives the claims back.

A pod that somebody else has bound elsewhere keeps its claims: they may be in use.

Cost: per pod one binding, per claim two patches (finalizer, status), or a read where it was
allocated before; per undone claim one patch. A claim that is made costs one create and one patch of
the pod more, and to undo it a read, a patch and a delete.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kai_py.api.records.resource import AllocationResult, ResourceClaim
from kai_py.api.references import ClaimRef, PodRef
from kai_py.commit.api_access import ApiAccess
from kai_py.commit.binding import BindingOutcome, BindingResult, bind, is_unbound
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
from kai_py.commit.settings import CommitSettings
from kai_py.plan.plan import GangPlacement, Placement
from kai_py.watch.errors import ApiError

log = logging.getLogger(__name__)
RELEASING_OUTCOMES = (BindingOutcome.VANISHED, BindingOutcome.FAILED)
FAILURE_OUTCOMES = (BindingOutcome.ELSEWHERE, BindingOutcome.FAILED)


@dataclass(frozen=True, slots=True)
class GangOutcome:
    """What became of a gang; ``reason`` says why nothing was bound, empty when binding began."""

    gang: GangPlacement
    bindings: tuple[BindingResult, ...] = ()
    reason: str = ""
    other_holders: tuple[OtherHolder, ...] = ()
    failed_devices: tuple[DeviceCondition, ...] = ()
    """Devices that their drivers could not make ready, and the condition that says so."""

    @property
    def bound(self) -> tuple[PodRef, ...]:
        """Pods that are on their nodes."""
        return tuple(b.pod for b in self.bindings if b.outcome is BindingOutcome.BOUND)

    @property
    def unbound(self) -> tuple[PodRef, ...]:
        """Pods whose room is free again."""
        bound = {pod.uid for pod in self.bound}
        return tuple(p.pod for p in self.gang.pods if p.pod.uid not in bound)

    @property
    def failures(self) -> tuple[BindingResult, ...]:
        """Bindings that did not happen, other than of pods that went away."""
        return tuple(b for b in self.bindings if b.outcome in FAILURE_OUTCOMES)


def _ignore_waiting(_pod: PodRef, _note: str) -> None:
    """Nobody wants to know."""


@dataclass
class GangTransaction:
    """One attempt to bind a gang; ``run`` is called once.

    ``known``: claims by uid as the mirror has them; they may be old. ``tell_waiting`` is told of
    pods whose devices their drivers have to make ready, and what is missing.
    """

    gang: GangPlacement
    access: ApiAccess
    holders: DeviceHolders
    settings: CommitSettings
    cached_claims: Mapping[str, ResourceClaim] = field(default_factory=dict)
    report_waiting: Callable[[PodRef, str], None] = _ignore_waiting

    def __post_init__(self) -> None:
        self._desired_claims = list(desired_claims(self.gang))
        self._created_claims: dict[str, ClaimRef] = {}
        self._limiter = asyncio.Semaphore(self.settings.concurrency)
        self._observed: dict[str, ResourceClaim | None] = {}
        self._problem = ""
        self._other_holders: tuple[OtherHolder, ...] = ()
        self._failed_devices: tuple[DeviceCondition, ...] = ()

    async def run(self) -> GangOutcome:
        """Carry the gang out; every failure is in the outcome."""
        await asyncio.gather(*(self._create_claim(placement) for placement in self.gang.pods))
        await asyncio.gather(*(self._reconcile(goal) for goal in self._desired_claims))
        await self._wait_for_mirror()
        await self._wait_for_devices()
        await self._write_pod_statuses()
        self._recheck_devices()
        if self._problem:
            await self._undo()
            return GangOutcome(
                self.gang,
                reason=self._problem,
                other_holders=self._other_holders,
                failed_devices=self._failed_devices,
            )
        bindings = await asyncio.gather(*(bind(self.access, p) for p in self.gang.pods))
        await self._release_claims(b.pod.uid for b in bindings if b.outcome in RELEASING_OUTCOMES)
        return GangOutcome(self.gang, tuple(bindings))

    async def _create_claim(self, placement: Placement) -> None:
        wanted, pod = placement.create_claim, placement.pod
        if wanted is None or self._problem:
            return
        async with self._limiter:
            made = await create_claim(self.access, wanted)
        if isinstance(made, ClaimFailure):
            self._problem = self._problem or made.reason
            return
        claim = self._created_claims[pod.uid] = ClaimRef.of(made.metadata)
        allocation = wanted.claim.status.allocation
        consumer = placement.consumer(claim)
        self._desired_claims.append(
            DesiredClaim(claim, (pod,), (consumer,), (placement.node,), allocation)
        )
        self._observed[claim.uid] = made

    async def _reconcile(self, desired: DesiredClaim) -> None:
        uid = desired.claim.uid
        async with self._limiter:
            if self._problem:
                return
            known = self._observed.get(uid) or self.cached_claims.get(uid)
            self._observed[uid] = None
            reached = await reconcile_claim(self.access, desired, known)
        if isinstance(reached, ClaimFailure):
            self._problem = self._problem or reached.reason
        else:
            self._observed[uid] = reached

    async def _wait_for_mirror(self) -> None:
        for goal in self._desired_claims:
            if self._problem:
                return
            if goal.allocation is not None:
                self._problem = await self._wait_until_mirrored(goal.claim, goal.allocation)

    async def _wait_until_mirrored(self, claim: ClaimRef, allocation: AllocationResult) -> str:
        if not await self.holders.wait_until_seen(claim, allocation, self.settings.mirror_timeout):
            return f"claim {claim}: the watch did not show its allocation in time"
        return self._conflict(claim, allocation)

    def _recheck_devices(self) -> None:
        """Give way to whoever has been given one of the devices meanwhile."""
        for goal in self._desired_claims:
            held = self._observed.get(goal.claim.uid)
            if not self._problem and held is not None and held.status.allocation is not None:
                self._problem = self._conflict(goal.claim, held.status.allocation)

    def _conflict(self, claim: ClaimRef, allocation: AllocationResult) -> str:
        self._other_holders = tuple(self.holders.other_holders(claim, allocation))
        return f"claim {claim}: {self._other_holders[0]}" if self._other_holders else ""

    async def _wait_for_devices(self) -> None:
        if self._problem:
            return
        found = await asyncio.gather(
            *(self._wait_until_ready(goal) for goal in self._desired_claims)
        )
        unready = [each for each in found if each is not None]
        self._failed_devices = tuple(device for each in unready for device in each.devices)
        self._problem = unready[0].reason if unready else ""

    async def _wait_until_ready(self, desired: DesiredClaim) -> DevicesNotReady | None:
        claim = self._observed[desired.claim.uid]
        if claim is None:
            return None
        missing = readiness(claim).missing
        if missing:
            nodes, waits = ", ".join(desired.nodes), format_conditions(missing)
            note = f"waiting for binding conditions for device on node {nodes}: {waits}"
            for pod in desired.pods:
                self.report_waiting(pod, note)
        return await wait_until_ready(self.access, self.holders, claim, self.settings.readiness)

    async def _write_pod_statuses(self) -> None:
        if self._problem:
            return
        made = [(p.pod, p.create_claim) for p in self.gang.pods if p.create_claim is not None]
        problems = await asyncio.gather(*(write_pod_status(self.access, *each) for each in made))
        self._problem = next((problem for problem in problems if problem), "")

    async def _undo(self) -> None:
        """Give back all claims, but of no pod that an earlier attempt has bound after all."""
        pods = [placement.pod for placement in self.gang.pods] if self._observed else []
        free = await asyncio.gather(*(is_unbound(self.access, pod) for pod in pods))
        await self._release_claims(
            pod.uid for pod, unbound in zip(pods, free, strict=True) if unbound
        )

    async def _release_claims(self, pods: Iterable[str]) -> None:
        leaving = frozenset(pods)
        await asyncio.gather(
            *(
                self._release(goal, consumers)
                for goal in self._desired_claims
                if goal.claim.uid in self._observed
                and (consumers := goal.released_consumers(leaving))
            )
        )
        made = [claim for pod, claim in self._created_claims.items() if pod in leaving]
        await asyncio.gather(*(self._delete_claim(claim) for claim in made))

    async def _delete_claim(self, claim: ClaimRef) -> None:
        try:
            await delete_claim(self.access, claim)
        except ApiError as error:
            log.warning("claim %s stays until its pod goes: %s", claim, error)

    async def _release(self, desired: DesiredClaim, leaving: frozenset[str]) -> None:
        try:
            await release_claim(
                self.access, desired.claim, leaving, self._observed[desired.claim.uid]
            )
        except ApiError as error:
            log.warning(
                "claim %s keeps its devices until recovery gives them back: %s",
                desired.claim,
                error,
            )
