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
from kai_py.commit.api_access import Access
from kai_py.commit.binding import BindingOutcome, BindingResult, bind, is_unbound
from kai_py.commit.claims.binding_conditions import (
    Lacking,
    Unready,
    listed,
    readiness,
    wait_until_ready,
)
from kai_py.commit.claims.device_holders import DeviceHolders, DoubleAllocation
from kai_py.commit.claims.extended_resources import make, tell_pod, unmake
from kai_py.commit.claims.reconcile import ClaimGoal, Lost, claim_goals, reach, release
from kai_py.commit.settings import CommitSettings
from kai_py.plan.plan import GangPlacement, Placement
from kai_py.watch.errors import ApiError

log = logging.getLogger(__name__)
GIVES_BACK = (BindingOutcome.VANISHED, BindingOutcome.FAILED)
FAILURES = (BindingOutcome.ELSEWHERE, BindingOutcome.FAILED)


@dataclass(frozen=True, slots=True)
class GangOutcome:
    """What became of a gang; ``reason`` says why nothing was bound, empty when binding began."""

    gang: GangPlacement
    bindings: tuple[BindingResult, ...] = ()
    reason: str = ""
    doubles: tuple[DoubleAllocation, ...] = ()
    failed_devices: tuple[Lacking, ...] = ()
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
        return tuple(b for b in self.bindings if b.outcome in FAILURES)


def _ignore(_pod: PodRef, _note: str) -> None:
    """Nobody wants to know."""


@dataclass
class GangTransaction:
    """One attempt to bind a gang; ``run`` is called once.

    ``known``: claims by uid as the mirror has them; they may be old. ``tell_waiting`` is told of
    pods whose devices their drivers have to make ready, and what is missing.
    """

    gang: GangPlacement
    access: Access
    holders: DeviceHolders
    settings: CommitSettings
    known: Mapping[str, ResourceClaim] = field(default_factory=dict)
    tell_waiting: Callable[[PodRef, str], None] = _ignore

    def __post_init__(self) -> None:
        self._goals = list(claim_goals(self.gang))
        self._made: dict[str, ClaimRef] = {}
        self._walking = asyncio.Semaphore(self.settings.concurrency)
        self._started: dict[str, ResourceClaim | None] = {}
        self._problem = ""
        self._doubles: tuple[DoubleAllocation, ...] = ()
        self._failed_devices: tuple[Lacking, ...] = ()

    async def run(self) -> GangOutcome:
        """Carry the gang out; every failure is in the outcome."""
        await asyncio.gather(*(self._make(placement) for placement in self.gang.pods))
        await asyncio.gather(*(self._reach(goal) for goal in self._goals))
        await self._see_claims()
        await self._await_devices()
        await self._tell_pods()
        self._look_again()
        if self._problem:
            await self._undo()
            return GangOutcome(
                self.gang,
                reason=self._problem,
                doubles=self._doubles,
                failed_devices=self._failed_devices,
            )
        bindings = await asyncio.gather(*(bind(self.access, p) for p in self.gang.pods))
        await self._give_back(b.pod.uid for b in bindings if b.outcome in GIVES_BACK)
        return GangOutcome(self.gang, tuple(bindings))

    async def _make(self, placement: Placement) -> None:
        wanted, pod = placement.make, placement.pod
        if wanted is None or self._problem:
            return
        async with self._walking:
            made = await make(self.access, wanted)
        if isinstance(made, Lost):
            self._problem = self._problem or made.reason
            return
        claim = self._made[pod.uid] = ClaimRef.of(made.metadata)
        allocation = wanted.claim.status.allocation
        consumer = placement.consumer(claim)
        self._goals.append(ClaimGoal(claim, (pod,), (consumer,), (placement.node,), allocation))
        self._started[claim.uid] = made

    async def _reach(self, goal: ClaimGoal) -> None:
        uid = goal.claim.uid
        async with self._walking:
            if self._problem:
                return
            known = self._started.get(uid) or self.known.get(uid)
            self._started[uid] = None
            reached = await reach(self.access, goal, known)
        if isinstance(reached, Lost):
            self._problem = self._problem or reached.reason
        else:
            self._started[uid] = reached

    async def _see_claims(self) -> None:
        for goal in self._goals:
            if self._problem:
                return
            if goal.allocation is not None:
                self._problem = await self._see(goal.claim, goal.allocation)

    async def _see(self, claim: ClaimRef, allocation: AllocationResult) -> str:
        if not await self.holders.wait_until_seen(claim, allocation, self.settings.seen_within):
            return f"claim {claim}: the watch did not show its allocation in time"
        return self._double(claim, allocation)

    def _look_again(self) -> None:
        """Give way to whoever has been given one of the devices meanwhile."""
        for goal in self._goals:
            held = self._started.get(goal.claim.uid)
            if not self._problem and held is not None and held.status.allocation is not None:
                self._problem = self._double(goal.claim, held.status.allocation)

    def _double(self, claim: ClaimRef, allocation: AllocationResult) -> str:
        self._doubles = tuple(self.holders.doubles(claim, allocation))
        return f"claim {claim}: {self._doubles[0]}" if self._doubles else ""

    async def _await_devices(self) -> None:
        if self._problem:
            return
        found = await asyncio.gather(*(self._await_ready(goal) for goal in self._goals))
        unready = [each for each in found if each is not None]
        self._failed_devices = tuple(device for each in unready for device in each.devices)
        self._problem = unready[0].reason if unready else ""

    async def _await_ready(self, goal: ClaimGoal) -> Unready | None:
        claim = self._started[goal.claim.uid]
        if claim is None:
            return None
        missing = readiness(claim).missing
        if missing:
            nodes, waits = ", ".join(goal.nodes), listed(missing)
            note = f"waiting for binding conditions for device on node {nodes}: {waits}"
            for pod in goal.pods:
                self.tell_waiting(pod, note)
        return await wait_until_ready(self.access, self.holders, claim, self.settings.readiness)

    async def _tell_pods(self) -> None:
        if self._problem:
            return
        made = [(p.pod, p.make) for p in self.gang.pods if p.make is not None]
        problems = await asyncio.gather(*(tell_pod(self.access, *each) for each in made))
        self._problem = next((problem for problem in problems if problem), "")

    async def _undo(self) -> None:
        """Give back all claims, but of no pod that an earlier attempt has bound after all."""
        pods = [placement.pod for placement in self.gang.pods] if self._started else []
        free = await asyncio.gather(*(is_unbound(self.access, pod) for pod in pods))
        await self._give_back(pod.uid for pod, unbound in zip(pods, free, strict=True) if unbound)

    async def _give_back(self, pods: Iterable[str]) -> None:
        leaving = frozenset(pods)
        await asyncio.gather(
            *(
                self._release(goal, consumers)
                for goal in self._goals
                if goal.claim.uid in self._started and (consumers := goal.leaving(leaving))
            )
        )
        made = [claim for pod, claim in self._made.items() if pod in leaving]
        await asyncio.gather(*(self._unmake(claim) for claim in made))

    async def _unmake(self, claim: ClaimRef) -> None:
        try:
            await unmake(self.access, claim)
        except ApiError as error:
            log.warning("claim %s stays until its pod goes: %s", claim, error)

    async def _release(self, goal: ClaimGoal, leaving: frozenset[str]) -> None:
        try:
            await release(self.access, goal.claim, leaving, self._started[goal.claim.uid])
        except ApiError as error:
            log.warning(
                "claim %s keeps its devices until recovery gives them back: %s", goal.claim, error
            )
