"""Resolution of conflicts: another claim is allocated a device that one of our claims already has.

Before our pods are bound the transaction gives way (``kai_py.commit.transaction``). Afterwards
every such device is counted, reported on both claims, and resolved by the configured policy:

    give-way-before-start   our pods are evicted as long as none of them has started
    give-way                our pods are evicted in any case
    keep                    nothing is done

Of two claims of ours the later one gives way. Its pods are read first: those that are bound are
evicted if their workload survives that, which frees their claim; if none of the pods is bound,
their reservations of the claim are removed. What can't be read, and what the API refuses, is tried
again with backoff.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from kai_py.api.pod_phases import is_finished
from kai_py.api.records.core import Pod
from kai_py.api.records.resource import ResourceClaimConsumerReference
from kai_py.api.references import ClaimRef, GroupRef, PodRef
from kai_py.commit.api_access import ApiAccess
from kai_py.commit.claims.device_holders import DeviceConflict, DeviceHolders
from kai_py.commit.claims.reconcile import release_claim
from kai_py.commit.event_writer import EventWriter
from kai_py.commit.eviction import EvictionOutcome, ForcedEvictions
from kai_py.commit.pod_state import ReadState, fence_group, fence_pod
from kai_py.config import DoubleAllocationPolicy
from kai_py.snapshot.pod_claims import POD_GROUPS, pod_group_of
from kai_py.watch.errors import ApiError

log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class DeviceConflictResolver:
    """The unresolved conflicts; ``add`` takes new ones, ``run`` resolves them.

    ``pods``: all pods by (namespace, name); ``scheduler_names``: names whose pods are ours;
    ``is_committing``: whether a transaction, which checks by itself, writes to the pod or claim
    with a uid; ``releasing``: uids of claims being released, with which none starts;
    ``catch_up``: why the mirror doesn't show our own writes, "" if it does. ``count`` is called
    once per conflict.
    """

    access: ApiAccess
    holders: DeviceHolders
    pods: Callable[[], Mapping[tuple[str, str], Pod]]
    scheduler_names: Set[str]
    is_committing: Callable[[str], bool]
    releasing: set[str]
    catch_up: Callable[[], Awaitable[str]]
    event_writer: EventWriter
    evictions: ForcedEvictions
    count: Callable[[], None]
    policy: DoubleAllocationPolicy
    _unresolved: dict[DeviceConflict, bool] = field(default_factory=dict)
    """Conflicts, and whether each has been reported."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, conflict: DeviceConflict) -> None:
        """Add a conflict that the mirror has shown."""
        self._unresolved.setdefault(conflict, False)
        self._changed.set()

    async def run(self) -> None:
        """Resolve conflicts until cancelled; a second run takes up what the first one left."""
        attempts = 0
        if self._unresolved:
            self._changed.set()
        while True:
            await self._changed.wait()
            self._changed.clear()
            for conflict in tuple(self._unresolved):
                if await self._try_resolve(conflict):
                    del self._unresolved[conflict]
            attempts = attempts + 1 if self._unresolved else 0
            if self._unresolved:
                asyncio.get_running_loop().call_later(
                    self.access.retry.delay(attempts), self._changed.set
                )

    async def _try_resolve(self, conflict: DeviceConflict) -> bool:
        if not self.holders.is_current(conflict):
            return True
        sides = [
            (claim, self._consumer_pods(claim)) for claim in (conflict.later, conflict.earlier)
        ]
        claim, consumers = next((side for side in sides if side[1]), (conflict.later, []))
        if not consumers:
            return True
        if any(map(self.is_committing, (claim.uid, *(pod.metadata.uid for pod in consumers)))):
            return False
        keep_reason = self._keep_reason(consumers)
        self._report(conflict, keep_reason or f"claim {claim} is released")
        if keep_reason:
            return True
        if claim.uid in self.releasing:
            return False
        self.releasing.add(claim.uid)
        try:
            return await self._give_up_claim(conflict, claim, consumers)
        finally:
            self.releasing.discard(claim.uid)

    def _consumer_pods(self, ref: ClaimRef) -> list[Pod]:
        """Unfinished pods of ours that the claim is reserved for."""
        claim, pods = self.holders.claim(ref.uid), self.pods()
        if claim is None:
            return []
        found = [
            pod
            for consumer in claim.status.reserved_for
            for pod in _pods_of(ref.namespace, consumer, pods)
        ]
        return [
            pod
            for pod in found
            if pod.spec.scheduler_name in self.scheduler_names and not is_finished(pod)
        ]

    def _keep_reason(self, pods: Iterable[Pod]) -> str:
        if self.policy is DoubleAllocationPolicy.KEEP:
            return "no action is taken, as configured"
        started = next((pod for pod in pods if pod.status.phase != "Pending"), None)
        if self.policy is DoubleAllocationPolicy.GIVE_WAY or started is None:
            return ""
        return f"pod {started.metadata.namespace}/{started.metadata.name} is running and is kept"

    def _report(self, conflict: DeviceConflict, resolution: str) -> None:
        if not self._unresolved[conflict]:
            self._unresolved[conflict] = True
            self.count()
            self.event_writer.report_device_conflict(conflict, resolution)
            log.warning("device %s is allocated twice: %s", "/".join(conflict.device), resolution)

    async def _give_up_claim(
        self, conflict: DeviceConflict, claim: ClaimRef, consumers: Iterable[Pod]
    ) -> bool:
        pods = [PodRef.of(pod.metadata) for pod in consumers]
        if await self.catch_up() or not self.holders.is_current(conflict):
            return False
        # Read from the API, not the mirror: a binding may have arrived a moment ago.
        readings = await asyncio.gather(*(fence_pod(self.access, pod) for pod in pods))
        if any(read.state is ReadState.UNKNOWN for read in readings):
            return False
        bound = [read.pod for read in readings if not read.proves_unused and read.pod is not None]
        if not bound:
            return await self._release(claim, pods)
        if self._keep_reason([read.pod for read in readings if read.pod is not None]):
            return True  # one of them has started meanwhile
        other = conflict.earlier if claim == conflict.later else conflict.later
        reason = f"device {'/'.join(conflict.device)} is also allocated to claim {other}"
        # An earlier attempt may have evicted some of them already.
        staying = [pod for pod in bound if pod.metadata.deletion_timestamp is None]
        results = [await self.evictions.evict(pod, reason) for pod in staying]
        released = (EvictionOutcome.EVICTED, EvictionOutcome.DELETED)
        return all(outcome in released for outcome, _ in results)

    async def _release(self, ref: ClaimRef, unused: Sequence[PodRef]) -> bool:
        """Remove ``unused`` pods, and groups none of whose pods is bound; others stay."""
        claim = self.holders.claim(ref.uid)
        consumers = claim.status.reserved_for if claim is not None else ()
        groups = [
            GroupRef(ref.namespace, each.name, each.uid)
            for each in consumers
            if each.resource == POD_GROUPS
        ]
        readings = await asyncio.gather(*(fence_group(self.access, each) for each in groups))
        if any(read.state is ReadState.UNKNOWN for read in readings):
            return False
        idle = [g.uid for g, read in zip(groups, readings, strict=True) if read.proves_unused]
        try:
            await release_claim(self.access, ref, frozenset([*(p.uid for p in unused), *idle]))
        except ApiError as error:
            log.warning("claim %s: devices not released yet: %s", ref, error)
            return False
        return True


def _pods_of(
    namespace: str, consumer: ResourceClaimConsumerReference, pods: Mapping[tuple[str, str], Pod]
) -> list[Pod]:
    if consumer.resource != POD_GROUPS:
        pod = pods.get((namespace, consumer.name))
        return [pod] if pod is not None and pod.metadata.uid == consumer.uid else []
    return [pod for pod in pods.values() if pod_group_of(pod) == (namespace, consumer.name)]
