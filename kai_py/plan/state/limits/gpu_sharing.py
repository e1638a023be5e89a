"""Shared GPUs in a cycle: which pods share which GPU, and where one more part fits.

Every physical GPU is counted once. Whole GPUs are the row of the device plugin's resource in the
statement; a shared GPU has left that row and is a column here with its free memory, idle and future
idle:

    open    a pod takes part of a whole GPU: one less in the row, one shared GPU here
    join    a pod takes part of a GPU that is already shared
    end     the last remaining pod is evicted: in future one more in the row again

A pod with several parts needs them on distinct GPUs. *Binpack* joins the most used GPU that has
enough memory and opens one only when none has; *spread* opens one, or joins the least used.

``replicas`` costs O(nodes + shared GPUs) for one part, and as much per replica for several;
``allocate`` and ``release`` cost O(shared GPUs).
"""

from itertools import count

import numpy as np
from msgspec import Struct

from kai_py.api.choices import FillStrategy
from kai_py.api.gpu_share import GpuShare, SharedGpu
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.undo import Undo, no_undo
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import Floats, Ints
from kai_py.snapshot.shared_gpus import GpuSharing

TOLERANCE_MIB = 1e-6
"""Rounding errors of sums of portions are below this, and every request is above it."""


class ShareReplicas(Struct, frozen=True):
    """(nodes,) int64 each: pods that fit on GPUs that are already shared, and in total."""

    shared: Ints
    total: Ints


class AllocatedShares(Struct, frozen=True):
    """The GPUs of a pod, and how many of them were whole before."""

    gpus: tuple[SharedGpu, ...]
    opened: int
    undo: Undo


class SharedGpus:
    """One column per shared GPU; idle memory is -inf for one that is not yet released.

    Future idle memory is -inf for one that ends. ``_remaining_pods``: pods without the terminating.
    """

    def __init__(self, sharing: GpuSharing) -> None:
        """Start from the shared GPUs of the snapshot."""
        self._memory_known, self._nominal = sharing.memory_known, sharing.memory
        free = sharing.memory[sharing.rows] - sharing.used
        self._count = len(free)
        self._rows = sharing.rows.copy()
        self._index = sharing.index.copy()
        self._idle = np.where(sharing.fully_releasing, -np.inf, free)
        self._future_idle = np.where(sharing.fully_releasing, -np.inf, free + sharing.releasing)
        self._remaining_pods = sharing.remaining_pods.copy()
        self._groups: list[str] = [str(group) for group in sharing.groups]

    @property
    def exist(self) -> bool:
        """Whether there are any."""
        return self._count > 0

    @property
    def gpu_mib(self) -> Floats:
        """(nodes,) MiB of each GPU."""
        return self._nominal

    def required_mib(self, share: GpuShare) -> Floats:
        """(nodes,) MiB of each GPU; inf where the memory of the node's GPUs is unknown."""
        if not share.memory:
            return share.fraction * self._nominal
        return np.where(self._memory_known, share.memory, np.inf)

    def replicas(
        self, share: GpuShare, idle_gpus: Floats, capacity: Capacity, max_replicas: int
    ) -> ShareReplicas:
        """How many of ``max_replicas`` pods fit; ``idle_gpus``: (nodes,) whole GPUs."""
        need = self.required_mib(share)
        per_idle_gpu = np.floor((self._nominal + TOLERANCE_MIB) / need)
        idle = np.maximum(np.floor(idle_gpus + TOLERANCE_MIB), 0.0)
        rows = self._rows[: self._count]
        per_shared_gpu = np.floor(
            (np.maximum(self._free(capacity), 0.0) + TOLERANCE_MIB) / need[rows]
        )
        if share.devices == 1:
            shared = np.bincount(rows, per_shared_gpu, len(idle_gpus)).astype(np.float64)
            return ShareReplicas(_ints(shared), _ints(shared + idle * per_idle_gpu))
        none = np.zeros_like(idle)
        return ShareReplicas(
            _replicas_on_distinct_gpus(
                rows,
                per_shared_gpu,
                none,
                per_idle_gpu,
                parts=share.devices,
                max_replicas=max_replicas,
            ),
            _replicas_on_distinct_gpus(
                rows,
                per_shared_gpu,
                idle,
                per_idle_gpu,
                parts=share.devices,
                max_replicas=max_replicas,
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
        """Parts for a pod on a node with ``idle_gpus`` whole GPUs; None where they don't fit.

        ``preferred``: a strategy, or the free fraction (0 to 1) of the GPU to share.
        """
        share = member.shape.gpu_share
        if share is None:
            return AllocatedShares((), 0, no_undo)
        need = float(self.required_mib(share)[row])
        fitting = self._slots_by_preference(row, need, capacity, preferred)
        openable = (
            int(idle_gpus + TOLERANCE_MIB) if need <= self._nominal[row] + TOLERANCE_MIB else 0
        )
        # A preferred free fraction of 1.0 means a whole GPU.
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
        """Free, in future idle capacity, a pod's parts; returns how many GPUs end, and the undo."""
        share = member.shape.gpu_share
        if share is None or not member.gpus:
            return 0, no_undo
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
        """(shared GPUs of the node,) the free fraction of each, 0 to 1."""
        free = self._free(capacity)[self._slots_on(row)]
        return np.asarray(free[free > -np.inf] / self._nominal[row])

    def all_free_fractions(self, capacity: Capacity) -> tuple[Ints, Floats]:
        """(shared GPUs,) each: the rows of their nodes, and their free fractions, 0 to 1."""
        free, rows = self._free(capacity), self._rows[: self._count]
        present = free > -np.inf
        return rows[present], free[present] / self._nominal[rows[present]]

    def _free(self, capacity: Capacity) -> Floats:
        future_idle = self._future_idle[: self._count]
        return (
            future_idle
            if capacity is Capacity.FUTURE_IDLE
            else np.minimum(self._idle[: self._count], future_idle)
        )

    def _slots_on(self, row: int) -> Ints:
        return np.flatnonzero(self._rows[: self._count] == row)

    def _slots_by_preference(
        self, row: int, need: float, capacity: Capacity, preferred: FillStrategy | float
    ) -> list[int]:
        """Shared GPUs of a node with enough memory, the preferred first.

        Ties are broken by index and group, because the order of the columns means nothing.
        """
        slots = self._slots_on(row)
        free = self._free(capacity)[slots]
        slots, free = slots[free + TOLERANCE_MIB >= need], free[free + TOLERANCE_MIB >= need]
        if isinstance(preferred, float):
            distance = np.abs(free / self._nominal[row] - preferred)
        else:
            distance = -free if preferred is FillStrategy.SPREAD else free
        ranked = zip(distance.tolist(), slots.tolist(), strict=True)
        return [slot for _, slot in sorted(ranked, key=self._slot_order)]

    def _slot_order(self, ranked: tuple[float, int]) -> tuple[float, int, str]:
        distance, slot = ranked
        return distance, int(self._index[slot]), self._groups[slot]

    def _allocate_slot(self, slot: int, need: float, capacity: Capacity) -> None:
        self._future_idle[slot] -= need
        self._remaining_pods[slot] += 1
        if capacity is Capacity.IDLE:
            self._idle[slot] -= need

    def _open_gpu(self, row: int, member: Member, capacity: Capacity) -> int:
        present = self._slots_on(row)
        used_indexes = {int(index) for index in self._index[present]}
        groups = {self._groups[other] for other in present}
        uid = member.pod.uid
        names = (f"{uid}-{n}" if n else uid for n in count())
        slot = self._count
        if slot == len(self._rows):
            self._grow()
        self._rows[slot] = row
        self._index[slot] = next(n for n in count() if n not in used_indexes)
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
        """Restore columns exactly and drop GPUs that were opened since."""
        self._idle[slots], self._future_idle[slots], self._remaining_pods[slots] = columns
        # Values are put back, not computed: floating-point sums do not undo exactly.
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
    """(nodes,) how many pods, at most ``max_replicas``, each get ``parts`` parts on distinct GPUs.

    ``k`` pods do if and only if the sum over GPUs of min(parts that fit, k) reaches ``k * parts``:
    the parts can then be dealt out in turns, and no pod gets two of one GPU.
    """
    replicas = np.zeros(len(idle_gpus), dtype=np.int64)
    for pods in range(1, max_replicas + 1):
        shared_parts = np.bincount(rows, np.minimum(per_shared_gpu, pods), len(idle_gpus))
        enough = shared_parts + idle_gpus * np.minimum(per_idle_gpu, pods) >= pods * parts
        if not enough.any():
            break
        replicas[enough] = pods
    return replicas


def _ints(counts: Floats) -> Ints:
    return np.asarray(counts, dtype=np.int64)
