"""Evictions that no plan decides: of pods that have lost what they run on.

A plan evicts no pod whose workload would fail as a result (``kai_py.plan.victims.survival``), and
neither do repairs:

    the workload survives it                           the pod is evicted
    it would fail, and is a Job that can be suspended  the Job is suspended, and resumed later
    it would fail otherwise, or its gang is not known  the pod stays, and that is reported

Evictions count from the moment of their request: when many pods of one Job are affected, the rest
are kept as soon as the Job would not survive another eviction.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from kai_py.api.records.core import Pod
from kai_py.commit.api_access import ApiAccess
from kai_py.commit.eviction import EvictionOutcome, evict_pod, suspend_job, write_eviction_reason
from kai_py.plan.victims.survival import SUSPENDED, exceeded_limit
from kai_py.snapshot.admitted_gangs import can_be_suspended
from kai_py.snapshot.gangs import Gang, PodState
from kai_py.watch.errors import ApiError


@dataclass(kw_only=True)
class ForcedEvictions:
    """``gangs``: those of the present plan, the same collection as long as it is the same plan.

    ``max_grace``: the longest grace period of an evicted pod, in seconds.
    """

    access: ApiAccess
    scheduler_name: str
    gangs: Callable[[], Collection[Gang]]
    max_grace: float
    _seen: Collection[Gang] = ()
    _by_pod: dict[str, Gang] = field(default_factory=dict)
    _requested: set[str] = field(default_factory=set)
    """Uids of pods that were evicted, while their gang does not show it."""

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
