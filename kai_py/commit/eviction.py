"""Eviction of pods, and suspension and resumption of Jobs.

The Eviction API enforces disruption budgets: 429 means not now, and is an answer, not a failure;
the next plan decides again. The API itself sets the condition DisruptionTarget, by which the
failure policies of Jobs distinguish an eviction from a crash, and overwrites an existing message.
The scheduler's message, which names the preemptor, is therefore written afterwards, if the pod
still exists; so a pod whose eviction was refused is never marked. Both writes carry the pod's uid.

A victim is read before it is evicted. A pod on no node never ran and has no capacity to release, so
it is not evicted, nor is one that can't be read. The read also shows the grace period, which is
limited to ``eviction.maxGracePeriod``: the tenant chose it, and other gangs wait for its end.

Jobs are suspended instead of evicting their pods, and resumed when they can be placed: one patch
each, under the Job's uid. The Job controller terminates the pods, or creates new ones. It ignores
disruption budgets, which were enforced when the plan was made, and gives the pods their own grace
periods; those that are too long are shortened afterwards. An annotation records that the scheduler
suspended the Job, so that a Job suspended by a user is never resumed.

Pods that have lost what they run on are evicted without a plan (``ForcedEvictions``). As a plan
evicts no pod whose workload would fail as a result (``kai_py.plan.victims.survival``), neither does
this:

    the workload survives it                           the pod is evicted
    it would fail, and is a Job that can be suspended  the Job is suspended, and resumed later
    it would fail otherwise, or its gang is not known  the pod stays, and that is reported

Sources: KEP-3329 (DisruptionTarget), policy/v1 Eviction.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Set
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct

from kai_py.api.records.core import Pod
from kai_py.api.records.job import SUSPENDED_AT_KEY, SUSPENDED_BY_KEY
from kai_py.api.references import PodRef
from kai_py.api.times import format_time
from kai_py.commit.api_access import ApiAccess
from kai_py.commit.pod_state import ReadState, read_pod_state
from kai_py.grouping.gang import Owner
from kai_py.plan.plan import Eviction
from kai_py.plan.victims.survival import SUSPENDED, exceeded_limit
from kai_py.snapshot.admitted_gangs import can_be_suspended
from kai_py.snapshot.gangs import Gang, PodState
from kai_py.snapshot.tables.assumptions import was_preempted
from kai_py.watch.client import PatchType
from kai_py.watch.errors import ApiError, Conflict, NotFound, TooManyRequests
from kai_py.watch.kinds import JOBS

log = logging.getLogger(__name__)

DISRUPTION_TARGET = "DisruptionTarget"
PREEMPTION_BY_SCHEDULER = "PreemptionByScheduler"


class EvictionOutcome(StrEnum):
    """Outcome of an eviction; the values are metric labels."""

    EVICTED = "evicted"
    BLOCKED = "blocked"
    DELETED = "deleted"
    UNBOUND = "unbound"
    """The pod is on no node, so it is not evicted and stays pending."""
    FAILED = "failed"


NOT_EVICTED = {
    ReadState.WAITING: EvictionOutcome.UNBOUND,
    ReadState.GONE: EvictionOutcome.DELETED,
    ReadState.UNKNOWN: EvictionOutcome.FAILED,
}
"""Outcomes for pods that are not, or not known to be, on a node."""


class EvictionAnswer(NamedTuple):
    """The server's answer; ``retry_after``: seconds that it asks to wait, else 0."""

    outcome: EvictionOutcome
    reason: str = ""
    retry_after: float = 0.0


class EvictionResult(Struct, frozen=True):
    """The outcome of an eviction; the other fields as of ``EvictionAnswer``."""

    eviction: Eviction
    outcome: EvictionOutcome
    reason: str = ""
    retry_after: float = 0.0


async def evict(access: ApiAccess, eviction: Eviction, max_grace: float) -> EvictionResult:
    """Evict a pod that a read shows on a node, and write the reason into its condition.

    ``max_grace``: the longest grace period that it gets, in seconds.
    """
    reading = await read_pod_state(access, eviction.pod)
    if reading.state is not ReadState.BOUND or reading.pod is None:
        return EvictionResult(eviction, NOT_EVICTED[reading.state], reading.problem)
    answer = await evict_pod(access, reading.pod, eviction.reason, max_grace)
    return EvictionResult(eviction, *answer)


async def evict_pod(access: ApiAccess, seen: Pod, reason: str, max_grace: float) -> EvictionAnswer:
    """Evict a pod that was read to be on a node, and write ``reason`` into its condition."""
    pod = PodRef.of(seen.metadata)
    try:
        await access.call(lambda: _create_eviction(access, pod, _shortened(seen, max_grace)))
    except TooManyRequests as refusal:
        return EvictionAnswer(EvictionOutcome.BLOCKED, str(refusal), refusal.retry_after)
    # Conflict: the uid in the preconditions belongs to a pod that has been replaced.
    except (NotFound, Conflict) as refusal:
        state = (await read_pod_state(access, pod)).state
        outcome = EvictionOutcome.FAILED if state is ReadState.BOUND else NOT_EVICTED[state]
        return EvictionAnswer(outcome, str(refusal))
    except ApiError as error:
        return EvictionAnswer(EvictionOutcome.FAILED, str(error), error.retry_after)
    if not _leaves_at_once(seen):
        await write_eviction_reason(access, pod, reason)
    return EvictionAnswer(EvictionOutcome.EVICTED)


def _leaves_at_once(pod: Pod) -> bool:
    """Whether nothing is left of the pod once it is deleted, so that no reason can be written."""
    return pod.spec.termination_grace_period_seconds == 0 and not pod.metadata.finalizers


async def write_eviction_reason(access: ApiAccess, pod: PodRef, reason: str) -> None:
    """Write the reason into the condition of an evicted pod, if it still exists."""
    try:
        await access.call(lambda: _set_disruption_condition(access, pod, reason))
    except (NotFound, Conflict):
        pass  # it left at once
    except ApiError as error:
        log.info("pod %s was evicted; its condition could not be written: %s", pod, error)


async def _set_disruption_condition(access: ApiAccess, pod: PodRef, reason: str) -> None:
    condition = {
        "type": DISRUPTION_TARGET,
        "status": "True",
        "reason": PREEMPTION_BY_SCHEDULER,
        "message": reason,
    }
    patch = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
    await access.client.patch(
        access.pods,
        pod.name,
        patch,
        namespace=pod.namespace,
        subresource="status",
        patch_type=PatchType.STRATEGIC,
    )


def _shortened(pod: Pod, max_grace: float) -> dict[str, int]:
    """The delete option that shortens the pod's grace period; empty if it is short enough."""
    deleted = pod.metadata.deletion_timestamp is not None
    grace = (
        pod.metadata.deletion_grace_period_seconds
        if deleted
        else pod.spec.termination_grace_period_seconds
    )
    return {"gracePeriodSeconds": max(1, int(max_grace))} if grace > max_grace else {}


async def _create_eviction(access: ApiAccess, pod: PodRef, options: dict[str, int]) -> None:
    await access.client.evict(namespace=pod.namespace, pod=pod.name, uid=pod.uid, **options)


def find_long_graces(
    pods: Iterable[Pod], scheduler_names: Set[str], max_grace: float
) -> Iterator[Pod]:
    """Pods that were evicted by a scheduler and deleted with more than ``max_grace`` seconds.

    These are pods of suspended Jobs, which the Job controller deletes.
    """
    for pod in pods:
        if (
            pod.metadata.deletion_timestamp is not None
            and pod.metadata.deletion_grace_period_seconds > max_grace
            and pod.spec.scheduler_name in scheduler_names
            and was_preempted(pod)
        ):
            yield pod


async def shorten_grace(access: ApiAccess, pod: Pod, max_grace: float) -> None:
    """Shorten the grace period of a terminating pod, counted from its deletion.

    The Eviction API consults no budget for a terminating pod, and its Job has counted it already.
    A failure is logged; the next pass tries again.
    """
    ref, conditions = PodRef.of(pod.metadata), pod.status.conditions
    reason = next((each.message for each in conditions if each.type == DISRUPTION_TARGET), "")
    try:
        await access.call(lambda: _create_eviction(access, ref, _shortened(pod, max_grace)))
    except (NotFound, Conflict):
        pass  # it left meanwhile
    except ApiError as error:
        log.info("pod %s: its grace period could not be shortened: %s", ref, error)
    else:
        await write_eviction_reason(access, ref, reason)


async def suspend_job(access: ApiAccess, job: Owner, scheduler: str, now: float) -> None:
    """Suspend ``job``, which ends its pods; raises ApiError. ``now`` in seconds since the epoch."""
    suspended_at = format_time(now)
    annotations = {SUSPENDED_BY_KEY: scheduler, SUSPENDED_AT_KEY: suspended_at}
    await _patch_job(access, job, suspend=True, annotations=annotations)


async def resume_job(access: ApiAccess, job: Owner) -> None:
    """Resume ``job``, which creates its pods; raises ApiError."""
    annotations = {SUSPENDED_BY_KEY: None, SUSPENDED_AT_KEY: None}
    await _patch_job(access, job, suspend=False, annotations=annotations)


async def _patch_job(
    access: ApiAccess, job: Owner, *, suspend: bool, annotations: dict[str, Any]
) -> None:
    body = {"metadata": {"uid": job.uid, "annotations": annotations}, "spec": {"suspend": suspend}}
    await access.call(
        lambda: access.client.patch(JOBS.at(), job.name, body, namespace=job.namespace)
    )


@dataclass(kw_only=True)
class ForcedEvictions:
    """Evictions that no plan decides: of pods that have lost what they run on.

    Evictions count from the moment of their request: when many pods of one Job are affected, the
    rest are kept as soon as the Job would not survive another eviction.

    ``gangs``: those of the present plan, the same collection as long as it is the same plan.
    ``max_grace``: the longest grace period of an evicted pod, in seconds.
    """

    access: ApiAccess
    scheduler_name: str
    gangs: Callable[[], Collection[Gang]]
    max_grace: float
    _seen: Collection[Gang] = ()
    _by_pod: dict[str, Gang] = field(default_factory=dict)
    _requested: set[str] = field(default_factory=set)
    """Uids of evicted pods whose gang does not show the eviction yet."""

    async def evict(self, seen: Pod, reason: str) -> tuple[EvictionOutcome, str]:
        """Evict a pod that was read to be on a node; the outcome, and a clause on it."""
        uid = seen.metadata.uid
        gang = self._gang(uid)
        if gang is None:
            return EvictionOutcome.FAILED, "it is kept as long as its gang is not known"
        uids = self._requested | {uid}
        bound = [member for member in gang.members if member.state is PodState.BOUND]
        exceeded = exceeded_limit(gang, [each for each in bound if each.pod.uid in uids])
        if exceeded is None:
            return await self._evict(seen, reason)
        if not can_be_suspended(gang):
            return EvictionOutcome.FAILED, f"it is kept, as its workload would fail ({exceeded})"
        return await self._suspend(gang, reason)

    def _gang(self, uid: str) -> Gang | None:
        gangs = self.gangs()
        if gangs is not self._seen:
            self._seen = gangs
            self._by_pod = {member.pod.uid: gang for gang in gangs for member in gang.members}
            self._requested &= self._by_pod.keys()
        return self._by_pod.get(uid)

    async def _evict(self, seen: Pod, reason: str) -> tuple[EvictionOutcome, str]:
        uid = seen.metadata.uid
        self._requested.add(uid)
        answer = await evict_pod(self.access, seen, reason, self.max_grace)
        if answer.outcome in (EvictionOutcome.EVICTED, EvictionOutcome.DELETED):
            return answer.outcome, "the pod is evicted"
        if answer.outcome is EvictionOutcome.BLOCKED:
            self._requested.discard(uid)
        return answer.outcome, f"the pod can't be evicted: {answer.reason}"

    async def _suspend(self, gang: Gang, reason: str) -> tuple[EvictionOutcome, str]:
        job = gang.owner
        try:
            now = self.access.client.machine.now()
            await suspend_job(self.access, job, self.scheduler_name, now)
        except ApiError as error:
            return EvictionOutcome.FAILED, f"its Job can't be suspended: {error}"
        for member in gang.members:
            if member.node:
                await write_eviction_reason(self.access, member.pod, reason)
        return EvictionOutcome.EVICTED, SUSPENDED
