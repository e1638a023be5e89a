"""Which GPUs do pods share, now and later, as the cycle decides; and where does one more part fit?

Every physical GPU is counted once. Whole ones are the row of the device plugin's resource in the
statement; a GPU that is shared has left that row and stands here with what is free of its memory,
*now* and *later* (once those who leave have left and those who were promised room have come):

    opens      a pod takes a part of a whole GPU: one less in the row, a shared one here
    joins      a pod takes a part of a GPU that is shared already
    ends       the last pod that stays is evicted: later it is one more in the row again

A pod of several parts needs them on distinct GPUs. *Pack* joins the GPU that is used most and still
has room, and opens one only when none has; *spread* opens one, or joins the one that is used least.

``room`` costs O(nodes + shared GPUs) for one part and as much per copy for several; taking and
giving back O(shared GPUs).
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import numpy as np

from kai_py.api.choices import FillStrategy
from kai_py.api.gpu_share import GpuShare, SharedGpu
from kai_py.plan.state.capacity import Capacity
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import Floats, Ints
from kai_py.snapshot.tables.gpus import GpuSharing

TOLERANCE_MIB = 1e-6
"""Sums of portions are off by less than this; no request is as small."""

Undo = Callable[[], None]


@dataclass(frozen=True, slots=True)
class ShareReplicas:
    """(nodes,) int64 each: pods that find room on GPUs shared already, and in all."""

    shared: Ints
    total: Ints


@dataclass(frozen=True, slots=True)
class AllocatedShares:
    """The GPUs of a pod, and how many of them were whole before."""

    gpus: tuple[SharedGpu, ...]
    opened: int
    undo: Undo


class SharedGpus:
    """One column per shared GPU; ``now`` is -inf for one that is still to be freed.

    ``later`` is -inf for one that ends. ``stay`` counts the pods that share it later.
    """

    def __init__(self, sharing: GpuSharing) -> None:
        """Start from what the snapshot holds."""
        self._memory = np.where(sharing.memory_known, sharing.memory, 0.0)
        self._nominal = sharing.memory
        free = sharing.memory[sharing.rows] - sharing.used
        self._count = len(free)
        self._rows = sharing.rows.copy()
        self._index = sharing.index.copy()
        self._idle = np.where(sharing.fully_releasing, -np.inf, free)
        self._future_idle = np.where(sharing.fully_releasing, -np.inf, free + sharing.releasing)
        self._remaining_pods = sharing.remaining_pods.copy()
        self._groups: list[str] = [str(group) for group in sharing.groups]

    def required_mib(self, share: GpuShare) -> Floats:
        """(nodes,) MiB of each GPU; inf where nobody says how much memory a GPU has."""
        if not share.memory:
            return share.fraction * self._nominal
        return np.where(self._memory > 0, share.memory, np.inf)

    def replicas(
        self, share: GpuShare, idle_gpus: Floats, capacity: Capacity, max_replicas: int
    ) -> ShareReplicas:
        """How many of ``most`` pods fit; ``whole``: (nodes,) GPUs that nobody has."""
        need = self.required_mib(share)
        fresh = np.floor((self._nominal + TOLERANCE_MIB) / need)
        cards = np.maximum(np.floor(idle_gpus + TOLERANCE_MIB), 0.0)
        rows = self._rows[: self._count]
        each = np.floor((np.maximum(self._free(capacity), 0.0) + TOLERANCE_MIB) / need[rows])
        if share.devices == 1:
            shared = np.bincount(rows, each, len(idle_gpus)).astype(np.float64)
            return ShareReplicas(_ints(shared), _ints(shared + cards * fresh))
        none = np.zeros_like(cards)
        return ShareReplicas(
            _replicas_on_distinct_gpus(
                rows, each, none, fresh, parts=share.devices, max_replicas=max_replicas
            ),
            _replicas_on_distinct_gpus(
                rows, each, cards, fresh, parts=share.devices, max_replicas=max_replicas
            ),
        )

    def allocate(
        self,
        member: Member,
        row: int,
        capacity: Capacity,
        idle_gpus: float,
        preferred: FillStrategy | float,
    ) -> AllocatedShares | None:
        """Parts for a pod on a node with ``whole`` GPUs that nobody has; None without room.

        ``wanted``: a strategy, or how much (0 to 1) is free of the GPU to share.
        """
        share = member.shape.gpu_share
        if share is None:
            return AllocatedShares((), 0, _no_undo)
        need = float(self.required_mib(share)[row])
        fitting = self._slots_by_preference(row, need, capacity, preferred)
        openable = (
            int(idle_gpus + TOLERANCE_MIB) if need <= self._nominal[row] + TOLERANCE_MIB else 0
        )
        if preferred in (FillStrategy.SPREAD, 1.0):
            opened = min(share.devices, openable)
        else:
            opened = max(0, share.devices - len(fitting))
        joined = fitting[: share.devices - opened]
        if opened > openable or opened + len(joined) < share.devices:
            return None
        before = self._count, self._columns(joined)
        slots = [*joined, *(self._open_gpu(row, member, capacity) for _ in range(opened))]
        for slot in slots:
            self._allocate_slot(slot, need, capacity)

        def undo() -> None:
            self._restore_columns(joined, *before)

        return AllocatedShares(tuple(self._gpu(slot) for slot in slots), opened, undo)

    def release(self, member: Member, row: int) -> tuple[int, Undo]:
        """Free later what a pod holds; returns how many GPUs are whole again then."""
        share = member.shape.gpu_share
        if share is None or not member.gpus:
            return 0, _no_undo
        need = float(share.fraction * self._nominal[row] + share.memory)
        groups = {gpu.group for gpu in member.gpus}
        slots = [int(slot) for slot in self._slots_on(row) if self._groups[slot] in groups]
        before = self._count, self._columns(slots)
        ended = 0
        for slot in slots:
            self._remaining_pods[slot] -= 1
            self._future_idle[slot] += need
            if self._remaining_pods[slot] == 0:
                self._future_idle[slot] = -np.inf
                ended += 1

        def undo() -> None:
            self._restore_columns(slots, *before)

        return ended, undo

    def free_fractions(self, row: int, capacity: Capacity) -> Floats:
        """(shared GPUs of the node,) the free part of each GPU that is shared, 0 to 1."""
        free = self._free(capacity)[self._slots_on(row)]
        return np.asarray(free[free > -np.inf] / self._nominal[row])

    def all_free_fractions(self, capacity: Capacity) -> tuple[Ints, Floats]:
        """Node, and free part, of every GPU that is shared."""
        free, rows = self._free(capacity), self._rows[: self._count]
        there = free > -np.inf
        return rows[there], free[there] / self._nominal[rows[there]]

    def _free(self, capacity: Capacity) -> Floats:
        later = self._future_idle[: self._count]
        return (
            later
            if capacity is Capacity.FUTURE_IDLE
            else np.minimum(self._idle[: self._count], later)
        )

    def _slots_on(self, row: int) -> Ints:
        return np.flatnonzero(self._rows[: self._count] == row)

    def _slots_by_preference(
        self, row: int, need: float, capacity: Capacity, preferred: FillStrategy | float
    ) -> list[int]:
        """GPUs of a node that have room, the one to join first in front.

        Alike ones by index and group: their columns stand in no order that means anything.
        """
        slots = self._slots_on(row)
        free = self._free(capacity)[slots]
        slots, free = slots[free + TOLERANCE_MIB >= need], free[free + TOLERANCE_MIB >= need]
        if isinstance(preferred, float):
            last = np.abs(free / self._nominal[row] - preferred)
        else:
            last = -free if preferred is FillStrategy.SPREAD else free
        ranked = zip(last.tolist(), slots.tolist(), strict=True)
        return [slot for _, slot in sorted(ranked, key=self._slot_order)]

    def _slot_order(self, ranked: tuple[float, int]) -> tuple[float, int, str]:
        last, slot = ranked
        return last, int(self._index[slot]), self._groups[slot]

    def _allocate_slot(self, slot: int, need: float, capacity: Capacity) -> None:
        self._future_idle[slot] -= need
        self._remaining_pods[slot] += 1
        if capacity is Capacity.IDLE:
            self._idle[slot] -= need

    def _open_gpu(self, row: int, member: Member, capacity: Capacity) -> int:
        present = self._slots_on(row)
        taken = {int(index) for index in self._index[present]}
        groups = {self._groups[other] for other in present}
        uid = member.pod.uid
        names = (f"{uid}-{n}" if n else uid for n in count())
        slot = self._count
        if slot == len(self._rows):
            self._grow()
        self._rows[slot] = row
        self._index[slot] = next(n for n in count() if n not in taken)
        self._future_idle[slot] = self._nominal[row]
        self._idle[slot] = self._nominal[row] if capacity is Capacity.IDLE else -np.inf
        self._remaining_pods[slot] = 0
        self._groups.append(next(name for name in names if name not in groups))
        self._count += 1
        return slot

    def _columns(self, slots: list[int]) -> tuple[Floats, Floats, Ints]:
        return self._idle[slots], self._future_idle[slots], self._remaining_pods[slots]

    def _restore_columns(
        self, slots: list[int], count: int, columns: tuple[Floats, Floats, Ints]
    ) -> None:
        """Columns as they were, exactly, and no GPU that was opened since."""
        self._idle[slots], self._future_idle[slots], self._remaining_pods[slots] = columns
        self._count = count
        del self._groups[count:]

    def _grow(self) -> None:
        floats, ints = np.zeros(len(self._rows) + 16), np.zeros(len(self._rows) + 16, np.int64)
        self._idle = np.concatenate((self._idle, floats))
        self._future_idle = np.concatenate((self._future_idle, floats))
        self._rows = np.concatenate((self._rows, ints))
        self._index = np.concatenate((self._index, ints))
        self._remaining_pods = np.concatenate((self._remaining_pods, ints))

    def _gpu(self, slot: int) -> SharedGpu:
        return SharedGpu(self._groups[slot], int(self._index[slot]))


def _replicas_on_distinct_gpus(
    rows: Ints,
    per_shared_gpu: Floats,
    idle_gpus: Floats,
    per_idle_gpu: Floats,
    *,
    parts: int,
    max_replicas: int,
) -> Ints:
    """(nodes,) how many pods, at most ``most``, get each ``parts`` parts on distinct GPUs.

    ``k`` pods do if and only if sum over GPUs of min(what it holds, k) reaches ``k * parts``: then
    parts can be dealt out in turns without any pod getting two of one GPU.
    """
    able = np.zeros(len(idle_gpus), dtype=np.int64)
    for pods in range(1, max_replicas + 1):
        held = np.bincount(rows, np.minimum(per_shared_gpu, pods), len(idle_gpus))
        enough = held + idle_gpus * np.minimum(per_idle_gpu, pods) >= pods * parts
        if not enough.any():
            break
        able[enough] = pods
    return able


def _ints(counts: Floats) -> Ints:
    return np.asarray(counts, dtype=np.int64)


def _no_undo() -> None:
    """Nothing was changed."""
