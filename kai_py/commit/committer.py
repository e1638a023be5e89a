"""Runs the transactions and evictions of plans, concurrently with the planning of later cycles.

``commit`` starts a task per gang and per eviction and returns at once. What is under way is assumed
in the snapshot builder, so that the next cycle counts it; what fails is forgotten there. A gang or
pod that failed is not tried again before its own backoff has passed, when a cycle is requested.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from kai_py.api.gpu_reservation import GpuGroup
from kai_py.api.groups import grouped
from kai_py.api.records.resource import ResourceClaim
from kai_py.api.references import ClaimRef
from kai_py.commit.api_access import ApiAccess, FindPod, is_gone
from kai_py.commit.binding import BindingOutcome, BindingResult, FindNode, settle
from kai_py.commit.claims.device_holders import DeviceHolders
from kai_py.commit.claims.recovery import LeftoverClaim, release_leftover
from kai_py.commit.dependencies import assumed_binding
from kai_py.commit.event_writer import EventWriter
from kai_py.commit.eviction import (
    NOT_EVICTED,
    EvictionOutcome,
    EvictionResult,
    evict,
    resume_job,
    suspend_job,
    write_eviction_reason,
)
from kai_py.commit.gpu_reservations import GpuReservations
from kai_py.commit.pod_state import ReadState, read_pod_state
from kai_py.commit.retry import ObjectBackoff
from kai_py.commit.settings import CommitSettings
from kai_py.commit.transaction import GangOutcome, GangTransaction
from kai_py.observe.metrics import Metrics
from kai_py.plan.plan import Eviction, GangPlacement, Plan
from kai_py.snapshot.builder import SnapshotBuilder
from kai_py.watch.errors import ApiError
from kai_py.watch.freshness import Freshness

log = logging.getLogger(__name__)
MAX_CONSECUTIVE_FAILURES = 3
"""Failures in a row after which a gang gives up its capacity until its next attempt."""


ClaimLookup = Callable[[ClaimRef], ResourceClaim | None]
"""A claim from the mirror; None when it is deleted or was recreated."""


class Committer:
    """Transactions under way, one per gang, and evictions, one per pod.

    ``wake`` requests a cycle in that many seconds.
    """

    def __init__(
        self,
        *,
        access: ApiAccess,
        assume_cache: SnapshotBuilder,
        find_claim: ClaimLookup,
        holders: DeviceHolders,
        event_writer: EventWriter,
        metrics: Metrics,
        settings: CommitSettings,
        wake: Callable[[float], None],
        freshness: Freshness,
        find_node: FindNode,
        find_pod: FindPod,
        gpu_reservations: GpuReservations | None = None,
    ) -> None:
        self._find_node = find_node
        self._find_pod = find_pod
        self._gpu_reservations = gpu_reservations
        self._freshness = freshness
        self._access = access
        self._assume_cache = assume_cache
        self._find_claim = find_claim
        self._holders = holders
        self._event_writer = event_writer
        self._metrics = metrics
        self._settings = settings
        self._wake = wake
        self._backoff = ObjectBackoff(settings.backoff)
        self.tasks: set[asyncio.Task[None]] = set()
        """Tasks under way; a task is removed when it is done."""
        self._pod_uids: set[str] = set()
        self._transactions: dict[str, GangTransaction] = {}
        self._claim_uids: Counter[str] = Counter()
        self._evicting: dict[str, str] = {}
        """By the uids of the pods that are being evicted: the gang for which they are."""
        self._awaiting_evictions: set[str] = set()
        """Gangs that could start by the plan, but for which pods are still being evicted."""
        self.releasing: set[str] = set()
        """Uids of the claims that are being released: no transaction starts with them meanwhile."""
        self.releasing_gpus: set[GpuGroup] = set()
        """Shared GPUs whose reservation pods are being deleted: no transaction starts with them."""

    @property
    def pods_in_flight(self) -> frozenset[str]:
        """Uids of the pods in running transactions."""
        return frozenset(self._pod_uids)

    def gpus_in_flight(self) -> frozenset[GpuGroup]:
        """The shared GPUs of running transactions."""
        running = {id(each): each.gang for each in self._transactions.values()}
        return frozenset(gpu for gang in running.values() for gpu in _shared_gpus(gang))

    def is_committing(self, uid: str) -> bool:
        """Whether a running transaction writes to the pod or claim with this uid."""
        return uid in self._pod_uids or self._claim_uids[uid] > 0

    def commit(self, plan: Plan, now: float) -> None:
        """Start all decisions of a plan; ``now`` is its time, seconds since the epoch.

        Decisions about gangs and pods that are under way or in backoff are skipped.
        """
        clock, evicted_for = asyncio.get_running_loop().time(), set(self._evicting.values())
        for gang in plan.placements:
            in_flight = any(placement.pod.uid in self._pod_uids for placement in gang.pods)
            releasing = not self.releasing.isdisjoint(_claim_uids(gang))
            releasing = releasing or not self.releasing_gpus.isdisjoint(_shared_gpus(gang))
            if in_flight or releasing or self._awaits_allocation(gang):
                continue
            if gang.gang in evicted_for:
                # A refused eviction frees no quota, on which the plan counts.
                self._awaiting_evictions.add(gang.gang)
            elif self._backoff.is_ready(gang.gang, clock):
                self._start_gang(gang)
        suspended: list[Eviction] = []
        for eviction in plan.evictions:
            uid = eviction.pod.uid
            if uid in self._pod_uids:
                self._withdraw(eviction)
            elif uid not in self._evicting and self._backoff.is_ready(uid, clock):
                self._evicting[uid] = eviction.preemptor
                # Before the task runs: the next cycle must not choose the same victim again.
                self._assume_cache.expect_eviction(uid)
                if eviction.suspend:
                    suspended.append(eviction)
                else:
                    self._start(self._evict(eviction))
        for evictions in grouped(suspended, lambda eviction: eviction.gang).values():
            self._start(self._suspend(evictions, now))
        # Last: an eviction that has been started counts as capacity for the nominations.
        for nomination in plan.nominations:
            self._assume_cache.nominate(nomination.pod.uid, nomination.node, now)

    def release_leftovers(self, leftovers: Iterable[LeftoverClaim]) -> None:
        """Start the release of leftover claims."""
        for leftover in leftovers:
            uid = leftover.claim.uid
            consumers = (pod.uid for pod in leftover.pods)
            if uid not in self.releasing and not any(map(self.is_committing, (uid, *consumers))):
                self.releasing.add(uid)
                self._start(self._release(leftover))

    def _awaits_allocation(self, gang: GangPlacement) -> bool:
        """Whether another gang is to allocate a claim of this one and has not yet.

        The watch of the claim starts the cycle in which this gang's turn comes.
        """
        own = {new.claim.uid for placement in gang.pods for new in placement.allocate}
        refs = (ref for placement in gang.pods for ref in placement.reserve if ref.uid not in own)
        found = map(self._find_claim, refs)
        return any(claim is not None and claim.status.allocation is None for claim in found)

    async def drain(self, within: float) -> bool:
        """Wait for everything under way, at most ``within`` seconds; False if not all is done."""
        if not self.tasks:
            return True
        _, unfinished = await asyncio.wait(tuple(self.tasks), timeout=within)
        return not unfinished

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _start_gang(self, gang: GangPlacement) -> None:
        for placement in gang.pods:
            self._assume_cache.assume(assumed_binding(placement))
        self._pod_uids.update(placement.pod.uid for placement in gang.pods)
        self._claim_uids.update(_claim_uids(gang))
        self._start(self._resume(gang) if gang.resume else self._bind(gang))

    async def _bind(self, gang: GangPlacement) -> None:
        started = asyncio.get_running_loop().time()
        transaction = GangTransaction(
            gang=gang,
            access=self._access.about(gang.owner.namespace),
            holders=self._holders,
            settings=self._settings,
            cached_claims=self._cached_claims(gang),
            report_waiting=self._event_writer.report_waiting,
            is_shared=lambda claim: self._claim_uids[claim] > 1,
            find_node=self._find_node,
            find_pod=self._find_pod,
            gpu_reservations=self._gpu_reservations,
        )
        self._transactions |= dict.fromkeys((p.pod.uid for p in gang.pods), transaction)
        try:
            outcome = await transaction.run()
        except Exception:
            log.exception("gang %s: the transaction failed", gang.gang)
            outcome = await self._settle(gang)
        finally:
            self._end(gang)
        self._record_outcome(outcome, asyncio.get_running_loop().time() - started)

    def _cached_claims(self, gang: GangPlacement) -> dict[str, ResourceClaim]:
        refs = dict.fromkeys(ref for placement in gang.pods for ref in placement.reserve)
        found = ((ref.uid, self._find_claim(ref)) for ref in refs)
        return {uid: claim for uid, claim in found if claim is not None}

    def _record_outcome(self, outcome: GangOutcome, seconds: float) -> None:
        gang = outcome.gang
        for pod in outcome.unbound:
            self._assume_cache.forget(pod.uid)
        for pod in outcome.bound:
            self._freshness.record_binding(pod)
        device_backoff = self._settings.failed_device_backoff
        for device, condition in outcome.failed_devices:
            self._assume_cache.avoid_device(device, condition, device_backoff)
        if outcome.reason or outcome.failures:
            reason = outcome.reason or outcome.failures[0].reason
            wait = self._back_off(gang.gang, reason)
            log.log(
                logging.INFO if outcome.is_overtaken else logging.WARNING,
                "gang %s: %d of %d pods bound, next attempt in %.1f s: %s",
                gang.gang,
                len(outcome.bound),
                len(gang.pods),
                wait,
                reason,
            )
        else:
            self._backoff.reset(gang.gang)
            if outcome.unbound:
                self._wake(0.0)
        self._count_metrics(outcome, seconds)
        self._event_writer.report_outcome(outcome)

    def _back_off(self, gang: str, reason: str) -> float:
        """Record a failed attempt; returns the seconds until the next one."""
        wait = self._backoff.record_failure(gang, asyncio.get_running_loop().time())
        if self._backoff.failures(gang) >= MAX_CONSECUTIVE_FAILURES:
            self._assume_cache.back_off(gang, self._access.client.machine.now() + wait, reason)
            # The next cycle gives its capacity to others and reports why its pods wait.
            self._wake(0.0)
        self._wake(wait)
        return wait

    def _count_metrics(self, outcome: GangOutcome, seconds: float) -> None:
        metrics = self._metrics
        for binding in outcome.bindings:
            metrics.bindings.labels(binding.outcome.value).inc()
        metrics.double_allocations.inc(len(outcome.other_holders))
        complete = not outcome.unbound
        result = "bound" if complete else "partial" if outcome.bound else "rolled_back"
        metrics.gangs.labels(outcome.gang.action.value, result).inc()
        if complete:
            metrics.gang_bind_seconds.observe(seconds)

    async def _resume(self, gang: GangPlacement) -> None:
        """Resume a suspended Job; its placeholders keep their capacity until the Job is resumed."""
        try:
            await resume_job(self._access.about(gang.owner.namespace), gang.owner)
        except ApiError as error:
            for placement in gang.pods:
                self._assume_cache.forget(placement.pod.uid)
            wait = self._back_off(gang.gang, str(error))
            log.warning("gang %s: not resumed, next attempt in %.1f s: %s", gang.gang, wait, error)
            self._event_writer.report_not_resumed(gang.owner, str(error))
        else:
            self._backoff.reset(gang.gang)
        finally:
            self._end(gang)

    def _withdraw(self, eviction: Eviction) -> None:
        """Let a gang that is being bound stay pending: its pods never ran, so none is deleted."""
        transaction = self._transactions.get(eviction.pod.uid)
        if transaction is not None:
            transaction.withdraw(f"withdrawn before it started: {eviction.reason}")

    def _end(self, gang: GangPlacement) -> None:
        for placement in gang.pods:
            self._pod_uids.discard(placement.pod.uid)
            self._transactions.pop(placement.pod.uid, None)
        for uid in _claim_uids(gang):
            self._claim_uids[uid] -= 1
            if self._claim_uids[uid] <= 0:
                del self._claim_uids[uid]

    async def _settle(self, gang: GangPlacement) -> GangOutcome:
        """The outcome after an internal error: what reads prove; recovery releases the rest."""
        reason = "internal error, see the scheduler's log"
        unknown = (
            (p, BindingResult(p.pod, p.node, BindingOutcome.UNKNOWN, reason)) for p in gang.pods
        )
        bindings = await asyncio.gather(*(settle(self._access, *each) for each in unknown))
        return GangOutcome(gang, tuple(bindings), reason)

    async def _suspend(self, evictions: Sequence[Eviction], now: float) -> None:
        """Suspend a Job, which terminates all of its pods, and write the reason on each."""
        job, scheduler = evictions[0].owner, self._settings.scheduler_name
        access = self._access.about(job.namespace)
        try:
            outcome, reason = await self._check_suspension(evictions)
            if outcome is EvictionOutcome.EVICTED:
                await suspend_job(access, job, scheduler, now)
        except ApiError as error:
            vanished = is_gone(error, job.name)
            outcome = EvictionOutcome.DELETED if vanished else EvictionOutcome.FAILED
            reason = str(error)
            if not vanished:
                log.warning("Job %s/%s: not suspended: %s", job.namespace, job.name, error)
        except Exception:
            log.exception("Job %s/%s: the suspension failed", job.namespace, job.name)
            outcome, reason = EvictionOutcome.FAILED, "internal error"
        for eviction in evictions:
            if outcome is EvictionOutcome.EVICTED:
                await write_eviction_reason(access, eviction.pod, eviction.reason)
            self._record_eviction(EvictionResult(eviction, outcome, reason))

    async def _check_suspension(self, evictions: Sequence[Eviction]) -> tuple[EvictionOutcome, str]:
        """Whether reads show pods of the Job on nodes: EVICTED, or what they show and why."""
        if stale := await self._freshness.catch_up():
            return EvictionOutcome.FAILED, stale
        readings = await asyncio.gather(*(read_pod_state(self._access, e.pod) for e in evictions))
        states = {reading.state for reading in readings}
        if ReadState.BOUND in states:
            return EvictionOutcome.EVICTED, ""
        problem = next((reading.problem for reading in readings if reading.problem), "")
        return NOT_EVICTED[ReadState.UNKNOWN if problem else states.pop()], problem

    async def _evict(self, eviction: Eviction) -> None:
        access = self._access.about(eviction.pod.namespace)
        try:
            stale = await self._freshness.catch_up()
            result = (
                EvictionResult(eviction, EvictionOutcome.FAILED, stale)
                if stale
                else await evict(access, eviction, self._settings.max_grace)
            )
        except Exception:
            log.exception("pod %s: the eviction failed", eviction.pod)
            result = EvictionResult(eviction, EvictionOutcome.FAILED, "internal error")
        if result.outcome is EvictionOutcome.FAILED:
            log.warning("pod %s: not evicted: %s", eviction.pod, result.reason)
        self._record_eviction(result)

    def _record_eviction(self, result: EvictionResult) -> None:
        eviction, uid = result.eviction, result.eviction.pod.uid
        del self._evicting[uid]
        if eviction.preemptor in self._awaiting_evictions:
            self._awaiting_evictions.discard(eviction.preemptor)
            self._wake(0.0)
        self._metrics.evictions.labels(eviction.action.value, result.outcome.value).inc()
        now = asyncio.get_running_loop().time()
        if result.outcome is EvictionOutcome.UNBOUND:
            log.info("pod %s: not evicted: it is on no node", eviction.pod)
            self._assume_cache.cancel_eviction(uid)
            self._wake(self._backoff.record_failure(uid, now))
        elif result.outcome in (EvictionOutcome.BLOCKED, EvictionOutcome.FAILED):
            wait = self._backoff.record_failure(uid, now, at_least=result.retry_after)
            self._assume_cache.cancel_eviction(uid, self._access.client.machine.now() + wait)
            # The next cycle looks for other victims, and the one after the wait asks again.
            self._wake(0.0)
            self._wake(wait)
        else:
            self._backoff.reset(uid)
        self._event_writer.report_eviction(result)

    async def _release(self, leftover: LeftoverClaim) -> None:
        try:
            kept = await self._freshness.catch_up()
            access = self._access.about(leftover.claim.namespace)
            kept = kept or await release_leftover(access, leftover)
        except ApiError as error:
            log.warning("orphaned claim %s: %s", leftover.claim, error)
        else:
            if kept:
                log.info("orphaned claim %s: not released: %s", leftover.claim, kept)
                return
            self._metrics.claims_recovered.inc()
            log.info("claim %s: no scheduler binds its pods; devices released", leftover.claim)
        finally:
            self.releasing.discard(leftover.claim.uid)


def _claim_uids(gang: GangPlacement) -> frozenset[str]:
    return frozenset(claim.uid for placement in gang.pods for claim in placement.reserve)


def _shared_gpus(gang: GangPlacement) -> frozenset[GpuGroup]:
    return frozenset(GpuGroup(each.node, gpu.group) for each in gang.pods for gpu in each.gpus)
