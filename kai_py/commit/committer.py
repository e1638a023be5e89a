"""Carries plans out while the next ones are being made.

``carry_out`` starts a task per gang and per eviction and returns at once. What is under way is
assumed in the snapshot builder, so the next cycle counts on it; what fails is forgotten there. A
gang or pod that failed is not tried again before its own backoff has passed; then a cycle is asked
for.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol

from kai_py.api.gpu_share import SharedGpu
from kai_py.api.records.resource import AllocationResult, ResourceClaim
from kai_py.api.references import ClaimRef, PodRef
from kai_py.commit.api_access import ApiAccess, is_gone
from kai_py.commit.claims.device_holders import DeviceHolders
from kai_py.commit.claims.reconcile import release_claim
from kai_py.commit.claims.recovery import LeftoverClaim
from kai_py.commit.event_writer import EventWriter
from kai_py.commit.eviction import (
    EvictionOutcome,
    EvictionResult,
    evict,
    resume_job,
    suspend_job,
    write_eviction_reason,
)
from kai_py.commit.retry import ObjectBackoff
from kai_py.commit.settings import CommitSettings
from kai_py.commit.transaction import GangOutcome, GangTransaction
from kai_py.observe.metrics import Metrics
from kai_py.plan.plan import Eviction, GangPlacement, Nomination, Plan
from kai_py.snapshot.object_cache import DeviceKey
from kai_py.watch.errors import ApiError

log = logging.getLogger(__name__)
IDLE_BACKOFF = 600.0
MAX_CONSECUTIVE_FAILURES = 3
"""A gang that failed so often in a row leaves its room to others until its next attempt."""


class AssumeCache(Protocol):
    """What commit tells the snapshot builder."""

    def assume(
        self,
        pod: PodRef,
        node: str,
        claims: Mapping[str, AllocationResult] | None = None,
        gpus: tuple[SharedGpu, ...] = (),
        new_claim: ResourceClaim | None = None,
        *,
        volumes: tuple[str, ...] = (),
    ) -> None:
        """Count the pod as bound and its claims and parts of GPUs as allocated from now on.

        ``making``: a claim that does not exist yet, as it will be. ``volumes``: those that its
        volume claims get.
        """

    def forget(self, pod_uid: str) -> None:
        """Take an assumption back."""

    def back_off(self, gang: str, until: float) -> None:
        """Place nothing of the gang before ``until``, seconds since the epoch."""

    def avoid_device(self, device: DeviceKey, reason: str, seconds: float) -> None:
        """Give a device to nobody for a while."""

    def expect_eviction(self, pod_uid: str) -> None:
        """Count a pod as leaving: its eviction is being written."""

    def cancel_eviction(self, pod_uid: str) -> None:
        """The eviction was refused: the pod stays."""

    def nominate(self, pod_uid: str, node: str, now: float) -> None:
        """Keep room for a nominated pod; ``now`` in seconds since the epoch."""


ClaimLookup = Callable[[ClaimRef], ResourceClaim | None]
"""A claim as the mirror has it; None when it is gone or another incarnation."""


class Committer:
    """Transactions under way, one per gang, and evictions, one per pod."""

    def __init__(
        self,
        *,
        access: ApiAccess,
        assume_cache: AssumeCache,
        find_claim: ClaimLookup,
        holders: DeviceHolders,
        event_writer: EventWriter,
        metrics: Metrics,
        settings: CommitSettings,
        wake: Callable[[float], None],
    ) -> None:
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
        """What is under way; a task leaves when it is done."""
        self._pod_uids: set[str] = set()
        self._claim_uids: set[str] = set()
        self._evicting: set[str] = set()

    @property
    def pods_in_flight(self) -> frozenset[str]:
        """Pods, by uid, of running transactions."""
        return frozenset(self._pod_uids)

    def is_committing(self, uid: str) -> bool:
        """Whether a running transaction writes to the pod or claim with this uid."""
        return uid in self._pod_uids or uid in self._claim_uids

    def commit(self, plan: Plan, now: float) -> None:
        """Start everything the plan decided; ``now`` is the plan's time, seconds since the epoch.

        Decisions about gangs and pods that are under way, or not due again, are left out.
        """
        clock = asyncio.get_running_loop().time()
        self._backoff.forget_idle(clock, IDLE_BACKOFF)
        for gang in plan.placements:
            busy = any(placement.pod.uid in self._pod_uids for placement in gang.pods)
            if not busy and self._backoff.is_ready(gang.gang, clock):
                self._start_gang(gang)
        suspended: dict[str, list[Eviction]] = {}
        for eviction in plan.evictions:
            uid = eviction.pod.uid
            if uid not in self._evicting and self._backoff.is_ready(uid, clock):
                self._evicting.add(uid)
                self._assume_cache.expect_eviction(uid)
                if eviction.suspend:
                    suspended.setdefault(eviction.gang, []).append(eviction)
                else:
                    self._start(self._evict(eviction))
        for evictions in suspended.values():
            self._start(self._suspend(evictions, now))
        self._nominate(plan.nominations, now)

    def release_leftovers(self, leftovers: Iterable[LeftoverClaim]) -> None:
        """Free left-over claims."""
        for leftover in leftovers:
            self._start(self._release(leftover))

    async def drain(self, within: float) -> bool:
        """Wait for everything under way, at most ``within`` seconds; False if some is left."""
        if not self.tasks:
            return True
        _, unfinished = await asyncio.wait(tuple(self.tasks), timeout=within)
        return not unfinished

    def _nominate(self, nominations: Iterable[Nomination], now: float) -> None:
        for nomination in nominations:
            self._assume_cache.nominate(nomination.pod.uid, nomination.node, now)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _start_gang(self, gang: GangPlacement) -> None:
        for placement in gang.pods:
            allocations = {new.claim.uid: new.allocation for new in placement.allocate}
            making = placement.create_claim.claim if placement.create_claim is not None else None
            volumes = tuple(volume for _, volume in placement.volumes)
            self._assume_cache.assume(
                placement.pod, placement.node, allocations, placement.gpus, making, volumes=volumes
            )
        self._pod_uids.update(placement.pod.uid for placement in gang.pods)
        self._claim_uids.update(_claim_uids(gang))
        self._start(self._resume(gang) if gang.resume else self._bind(gang))

    async def _bind(self, gang: GangPlacement) -> None:
        began = asyncio.get_running_loop().time()
        transaction = GangTransaction(
            gang,
            self._access,
            self._holders,
            self._settings,
            self._cached_claims(gang),
            self._event_writer.report_waiting,
        )
        try:
            outcome = await transaction.run()
        except Exception:
            log.exception("gang %s: the transaction failed", gang.gang)
            outcome = GangOutcome(gang, reason="internal error, see the scheduler's log")
        finally:
            self._pod_uids.difference_update(placement.pod.uid for placement in gang.pods)
            self._claim_uids.difference_update(_claim_uids(gang))
        self._record_outcome(outcome, asyncio.get_running_loop().time() - began)

    def _cached_claims(self, gang: GangPlacement) -> dict[str, ResourceClaim]:
        refs = dict.fromkeys(ref for placement in gang.pods for ref in placement.reserve)
        found = ((ref.uid, self._find_claim(ref)) for ref in refs)
        return {uid: claim for uid, claim in found if claim is not None}

    def _record_outcome(self, outcome: GangOutcome, seconds: float) -> None:
        gang = outcome.gang
        for pod in outcome.unbound:
            self._assume_cache.forget(pod.uid)
        pause = self._settings.failed_device_backoff
        for device, condition in outcome.failed_devices:
            self._assume_cache.avoid_device(device, condition, pause)
            self._wake(pause)
        if outcome.reason or outcome.failures:
            wait = self._back_off(gang.gang)
            log.warning(
                "gang %s: %d of %d pods bound, next attempt in %.1f s: %s",
                gang.gang,
                len(outcome.bound),
                len(gang.pods),
                wait,
                outcome.reason or outcome.failures[0].reason,
            )
        else:
            self._backoff.reset(gang.gang)
            if outcome.unbound:
                self._wake(0.0)
        self._count_metrics(outcome, seconds)
        self._event_writer.report_outcome(outcome)

    def _back_off(self, gang: str) -> float:
        """Note that a gang was not started; gives the seconds until the next attempt."""
        wait = self._backoff.record_failure(gang, asyncio.get_running_loop().time())
        if self._backoff.failures(gang) >= MAX_CONSECUTIVE_FAILURES:
            self._assume_cache.back_off(gang, time.time() + wait)
        self._wake(wait)
        return wait

    def _count_metrics(self, outcome: GangOutcome, seconds: float) -> None:
        metrics = self._metrics
        for binding in outcome.bindings:
            metrics.bindings.labels(binding.outcome.value).inc()
        metrics.double_allocations.inc(len(outcome.other_holders))
        whole = not outcome.unbound
        result = "bound" if whole else "partial" if outcome.bound else "undone"
        metrics.gangs.labels(outcome.gang.action.value, result).inc()
        if whole:
            metrics.gang_bind_seconds.observe(seconds)

    async def _resume(self, gang: GangPlacement) -> None:
        """The stand-ins keep their room until the Job says that it is resumed."""
        try:
            await resume_job(self._access, gang.owner)
        except ApiError as error:
            for placement in gang.pods:
                self._assume_cache.forget(placement.pod.uid)
            wait = self._back_off(gang.gang)
            log.warning("gang %s: not resumed, again in %.1f s: %s", gang.gang, wait, error)
            self._event_writer.report_not_resumed(gang.owner, str(error))
        else:
            self._backoff.reset(gang.gang)
        finally:
            self._pod_uids.difference_update(placement.pod.uid for placement in gang.pods)
            self._claim_uids.difference_update(_claim_uids(gang))

    async def _suspend(self, evictions: Sequence[Eviction], now: float) -> None:
        """All pods of a Job leave at once, and say why."""
        job, scheduler = evictions[0].owner, self._settings.scheduler_name
        try:
            await suspend_job(self._access, job, scheduler, now)
        except ApiError as error:
            gone = is_gone(error)
            outcome = EvictionOutcome.VANISHED if gone else EvictionOutcome.FAILED
            reason = str(error)
            if not gone:
                log.warning("Job %s/%s: not suspended: %s", job.namespace, job.name, error)
        else:
            outcome, reason = EvictionOutcome.EVICTED, ""
        for eviction in evictions:
            if outcome is EvictionOutcome.EVICTED:
                await write_eviction_reason(self._access, eviction.pod, eviction.reason)
            self._evicting.discard(eviction.pod.uid)
            self._record_eviction(EvictionResult(eviction, outcome, reason))

    async def _evict(self, eviction: Eviction) -> None:
        uid = eviction.pod.uid
        try:
            result = await evict(self._access, eviction)
        except Exception:
            log.exception("pod %s: the eviction failed", eviction.pod)
            result = EvictionResult(eviction, EvictionOutcome.FAILED, "internal error")
        finally:
            self._evicting.discard(uid)
        if result.outcome is EvictionOutcome.FAILED:
            log.warning("pod %s: not evicted: %s", eviction.pod, result.reason)
        self._record_eviction(result)

    def _record_eviction(self, result: EvictionResult) -> None:
        eviction, uid = result.eviction, result.eviction.pod.uid
        self._metrics.evictions.labels(eviction.action.value, result.outcome.value).inc()
        now = asyncio.get_running_loop().time()
        if result.outcome in (EvictionOutcome.BLOCKED, EvictionOutcome.FAILED):
            self._assume_cache.cancel_eviction(uid)
            self._wake(self._backoff.record_failure(uid, now, at_least=result.retry_after))
        else:
            self._backoff.reset(uid)
        self._event_writer.report_eviction(result)

    async def _release(self, leftover: LeftoverClaim) -> None:
        try:
            await release_claim(self._access, leftover.claim, leftover.consumers)
        except ApiError as error:
            log.warning("left-over claim %s: %s", leftover.claim, error)
        else:
            self._metrics.claims_recovered.inc()
            log.info("claim %s: nobody binds its pods, its devices are free", leftover.claim)


def _claim_uids(gang: GangPlacement) -> frozenset[str]:
    return frozenset(claim.uid for placement in gang.pods for claim in placement.reserve)
