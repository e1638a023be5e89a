"""Upkeep of shared GPUs: reservation pods that are not needed, and pods that lost theirs.

    no pod shares the GPU               the reservation pod is deleted: the GPU is a whole one again
    the reservation pod has ended       it is deleted, so that another can be made
    its GPU is not the one in use       the pods that share it are evicted: the device plugin may
                                        give their GPU to others at any time (unless their workload
                                        would fail by it)

Each state must be seen in two passes, and confirmed by reads, before anything is done. A
reservation pod of KAI's is left alone for two minutes longer: its scheduler makes it before it
labels the pods.

A pass costs O(shared GPUs); what it finds costs two reads for each GPU.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Set
from dataclasses import dataclass, field

from kai_py.api.gpu_reservation import (
    MANAGED_BY,
    MANAGER,
    RESERVED_GPU,
    VISIBLE_GPUS,
    GpuGroup,
    is_live,
)
from kai_py.api.records.core import Pod
from kai_py.api.references import PodRef
from kai_py.commit.event_writer import EventWriter
from kai_py.commit.eviction import EvictionOutcome, ForcedEvictions
from kai_py.commit.gpu_reservations import GpuReservations, SharedGpuGroups
from kai_py.commit.pod_state import ReadState, read_pod_state
from kai_py.commit.upkeep.lost_devices import RepairOutcome

log = logging.getLogger(__name__)
FOREIGN_GRACE = 120.0
"""Seconds that a reservation pod of KAI's stays unused."""


@dataclass(kw_only=True)
class GpuUpkeep:
    """``in_use``: the GPUs of running transactions; ``releasing``: those that none may start with.

    ``catch_up`` waits for the mirror, and returns why it is behind, or "". ``scheduler_names``: of
    the pods that are ours to evict.
    """

    groups: SharedGpuGroups
    reservations: GpuReservations
    in_use: Callable[[], Collection[GpuGroup]]
    releasing: set[GpuGroup]
    catch_up: Callable[[], Awaitable[str]]
    event_writer: EventWriter
    evictions: ForcedEvictions
    count: Callable[[str], None]
    scheduler_names: Set[str]
    _unused: dict[str, float] = field(default_factory=dict)
    _lost: frozenset[str] = frozenset()

    @property
    def has_gpus(self) -> bool:
        """Whether any GPU is shared, or was and is still reserved."""
        return any(True for _ in self.groups.reserved()) or any(True for _ in self.groups.shared())

    async def run_once(self, now: float) -> None:
        """One pass at ``now``, seconds of any monotonic clock."""
        await self._release_unused(now)
        await self._evict_unreserved()

    async def _release_unused(self, now: float) -> None:
        in_use = self.in_use()
        unused = {
            pod.metadata.uid: (gpu, pod)
            for gpu in self.groups.reserved()
            for pod in self.groups.reservations(gpu)
            if pod.metadata.deletion_timestamp is None
            and (not is_live(pod) or (gpu not in in_use and not self.groups.sharers(gpu)))
        }
        since = {uid: self._unused.get(uid, now) for uid in unused}
        due = [unused[uid] for uid, at in since.items() if uid in self._unused]
        self._unused = since
        for gpu, pod in due:
            if now - since[pod.metadata.uid] >= _grace(pod):
                await self._release(gpu, pod)

    async def _release(self, gpu: GpuGroup, pod: Pod) -> None:
        self.releasing.add(gpu)
        try:
            kept = await self.catch_up()
            if not kept and is_live(pod) and (gpu in self.in_use() or self.groups.sharers(gpu)):
                kept = "the GPU is shared again"
            kept = kept or await self.reservations.release(gpu, PodRef.of(pod.metadata))
        finally:
            self.releasing.discard(gpu)
        if kept:
            log.info("%s: reservation pod %s is kept: %s", gpu, pod.metadata.name, kept)
        else:
            log.info("%s: not shared any more; reservation pod deleted", gpu)

    async def _evict_unreserved(self) -> None:
        lost = {
            pod.metadata.uid: (gpu, pod)
            for gpu in self.groups.shared()
            for pod in self.groups.sharers(gpu)
            if self._is_ours(pod) and not self._is_reserved(gpu, pod)
        }
        before, self._lost = self._lost, frozenset(lost)
        for uid, (gpu, pod) in lost.items():
            if uid in before and not await self.catch_up() and not self._is_reserved(gpu, pod):
                await self._evict(gpu, PodRef.of(pod.metadata))

    def _is_ours(self, pod: Pod) -> bool:
        return (
            pod.metadata.deletion_timestamp is None
            and pod.spec.scheduler_name in self.scheduler_names
            and VISIBLE_GPUS in pod.metadata.annotations
        )

    def _is_reserved(self, gpu: GpuGroup, pod: Pod) -> bool:
        """Whether a live reservation pod keeps one of the GPUs that the pod was given."""
        visible = pod.metadata.annotations[VISIBLE_GPUS].split(",")
        for reservation in filter(is_live, self.groups.reservations(gpu)):
            uuid = reservation.metadata.annotations.get(RESERVED_GPU, "")
            if uuid and any(each.endswith(uuid) for each in visible):
                return True
        return False

    async def _evict(self, gpu: GpuGroup, ref: PodRef) -> None:
        access = self.reservations.access
        reading = await read_pod_state(access, ref)
        if reading.state is not ReadState.BOUND or reading.pod is None:
            return
        reason = f"the reservation pod of {gpu} is gone, so other pods may get the GPU"
        outcome, effect = await self.evictions.evict(reading.pod, reason)
        done = outcome in (EvictionOutcome.EVICTED, EvictionOutcome.DELETED)
        note = f"{reason}: {effect}"
        self.count((RepairOutcome.EVICTED if done else RepairOutcome.FAILED).value)
        self.event_writer.report_gpu_lost(ref, note)
        log.warning("pod %s: %s", ref, note)


def _grace(pod: Pod) -> float:
    ours = pod.metadata.labels.get(MANAGED_BY) == MANAGER
    return 0.0 if ours or not is_live(pod) else FOREIGN_GRACE
