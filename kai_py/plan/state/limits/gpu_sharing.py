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
from kai_py.plan.state.capacity import Room
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.gpu_sharing import GpuSharing
from kai_py.snapshot.resources import Floats, Ints

NOISE_MIB = 1e-6
"""Sums of portions are off by less than this; no request is as small."""

Undo = Callable[[], None]


@dataclass(frozen=True, slots=True)
class ShareRoom:
    """(nodes,) int64 each: pods that find room on GPUs shared already, and in all."""

    shared: Ints
    total: Ints


@dataclass(frozen=True, slots=True)
class TakenParts:
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
        self._memory = np.where(sharing.known, sharing.memory, 0.0)
        self._nominal = sharing.memory
        free = sharing.memory[sharing.rows] - sharing.used
        self._count = len(free)
        self._rows = sharing.rows.copy()
        self._index = sharing.index.copy()
        self._now = np.where(sharing.ends, -np.inf, free)
        self._later = np.where(sharing.ends, -np.inf, free + sharing.leaving)
        self._stay = sharing.staying.copy()
        self._groups: list[str] = [str(group) for group in sharing.groups]

    def need(self, share: GpuShare) -> Floats:
        """(nodes,) MiB of each GPU; inf where nobody says how much memory a GPU has."""
        if not share.memory:
            return share.portion * self._nominal
        return np.where(self._memory > 0, share.memory, np.inf)

    def room(self, share: GpuShare, whole: Floats, room: Room, most: int) -> ShareRoom:
        """How many of ``most`` pods fit; ``whole``: (nodes,) GPUs that nobody has."""
        need = self.need(share)
        fresh = np.floor((self._nominal + NOISE_MIB) / need)
        cards = np.maximum(np.floor(whole + NOISE_MIB), 0.0)
        rows = self._rows[: self._count]
        each = np.floor((np.maximum(self._free(room), 0.0) + NOISE_MIB) / need[rows])
        if share.devices == 1:
            shared = np.bincount(rows, each, len(whole)).astype(np.float64)
            return ShareRoom(_ints(shared), _ints(shared + cards * fresh))
        none = np.zeros_like(cards)
        return ShareRoom(
            _on_distinct(rows, each, none, fresh, parts=share.devices, most=most),
            _on_distinct(rows, each, cards, fresh, parts=share.devices, most=most),
        )

    def take(
        self, member: Member, row: int, room: Room, whole: float, wanted: FillStrategy | float
    ) -> TakenParts | None:
        """Parts for a pod on a node with ``whole`` GPUs that nobody has; None without room.

        ``wanted``: a strategy, or how much (0 to 1) is free of the GPU to share.
        """
        share = member.shape.gpu_share
        if share is None:
            return TakenParts((), 0, _nothing)
        need = float(self.need(share)[row])
        fitting = self._fitting(row, need, room, wanted)
        openable = int(whole + NOISE_MIB) if need <= self._nominal[row] + NOISE_MIB else 0
        if wanted in (FillStrategy.SPREAD, 1.0):
            opened = min(share.devices, openable)
        else:
            opened = max(0, share.devices - len(fitting))
        joined = fitting[: share.devices - opened]
        if opened > openable or opened + len(joined) < share.devices:
            return None
        before = self._count, self._columns(joined)
        slots = [*joined, *(self._open(row, member, room) for _ in range(opened))]
        for slot in slots:
            self._use(slot, need, room)

        def undo() -> None:
            self._restore(joined, *before)

        return TakenParts(tuple(self._gpu(slot) for slot in slots), opened, undo)

    def give_back(self, member: Member, row: int) -> tuple[int, Undo]:
        """Free later what a pod holds; returns how many GPUs are whole again then."""
        share = member.shape.gpu_share
        if share is None or not member.gpus:
            return 0, _nothing
        need = float(share.portion * self._nominal[row] + share.memory)
        groups = {gpu.group for gpu in member.gpus}
        slots = [int(slot) for slot in self._on(row) if self._groups[slot] in groups]
        before = self._count, self._columns(slots)
        ended = 0
        for slot in slots:
            self._stay[slot] -= 1
            self._later[slot] += need
            if self._stay[slot] == 0:
                self._later[slot] = -np.inf
                ended += 1

        def undo() -> None:
            self._restore(slots, *before)

        return ended, undo

    def parts(self, row: int, room: Room) -> Floats:
        """(shared GPUs of the node,) the free part of each GPU that is shared, 0 to 1."""
        free = self._free(room)[self._on(row)]
        return np.asarray(free[free > -np.inf] / self._nominal[row])

    def all_parts(self, room: Room) -> tuple[Ints, Floats]:
        """Node, and free part, of every GPU that is shared."""
        free, rows = self._free(room), self._rows[: self._count]
        there = free > -np.inf
        return rows[there], free[there] / self._nominal[rows[there]]

    def _free(self, room: Room) -> Floats:
        later = self._later[: self._count]
        return later if room is Room.LATER else np.minimum(self._now[: self._count], later)

    def _on(self, row: int) -> Ints:
        return np.flatnonzero(self._rows[: self._count] == row)

    def _fitting(
        self, row: int, need: float, room: Room, wanted: FillStrategy | float
    ) -> list[int]:
        """GPUs of a node that have room, the one to join first in front.

        Alike ones by index and group: their columns stand in no order that means anything.
        """
        slots = self._on(row)
        free = self._free(room)[slots]
        slots, free = slots[free + NOISE_MIB >= need], free[free + NOISE_MIB >= need]
        if isinstance(wanted, float):
            last = np.abs(free / self._nominal[row] - wanted)
        else:
            last = -free if wanted is FillStrategy.SPREAD else free
        ranked = zip(last.tolist(), slots.tolist(), strict=True)
        return [slot for _, slot in sorted(ranked, key=self._rank)]

    def _rank(self, ranked: tuple[float, int]) -> tuple[float, int, str]:
        last, slot = ranked
        return last, int(self._index[slot]), self._groups[slot]

    def _use(self, slot: int, need: float, room: Room) -> None:
        self._later[slot] -= need
        self._stay[slot] += 1
        if room is Room.NOW:
            self._now[slot] -= need

    def _open(self, row: int, member: Member, room: Room) -> int:
        present = self._on(row)
        taken = {int(index) for index in self._index[present]}
        groups = {self._groups[other] for other in present}
        uid = member.pod.uid
        names = (f"{uid}-{n}" if n else uid for n in count())
        slot = self._count
        if slot == len(self._rows):
            self._grow()
        self._rows[slot] = row
        self._index[slot] = next(n for n in count() if n not in taken)
        self._later[slot] = self._nominal[row]
        self._now[slot] = self._nominal[row] if room is Room.NOW else -np.inf
        self._stay[slot] = 0
        self._groups.append(next(name for name in names if name not in groups))
        self._count += 1
        return slot

    def _columns(self, slots: list[int]) -> tuple[Floats, Floats, Ints]:
        return self._now[slots], self._later[slots], self._stay[slots]

    def _restore(self, slots: list[int], count: int, columns: tuple[Floats, Floats, Ints]) -> None:
        """Columns as they were, exactly, and no GPU that was opened since."""
        self._now[slots], self._later[slots], self._stay[slots] = columns
        self._count = count
        del self._groups[count:]

    def _grow(self) -> None:
        floats, ints = np.zeros(len(self._rows) + 16), np.zeros(len(self._rows) + 16, np.int64)
        self._now = np.concatenate((self._now, floats))
        self._later = np.concatenate((self._later, floats))
        self._rows = np.concatenate((self._rows, ints))
        self._index = np.concatenate((self._index, ints))
        self._stay = np.concatenate((self._stay, ints))

    def _gpu(self, slot: int) -> SharedGpu:
        return SharedGpu(self._groups[slot], int(self._index[slot]))


def _on_distinct(
    rows: Ints, each: Floats, whole: Floats, fresh: Floats, *, parts: int, most: int
) -> Ints:
    """(nodes,) how many pods, at most ``most``, get each ``parts`` parts on distinct GPUs.

    ``k`` pods do if and only if sum over GPUs of min(what it holds, k) reaches ``k * parts``: then
    parts can be dealt out in turns without any pod getting two of one GPU.
    """
    able = np.zeros(len(whole), dtype=np.int64)
    for pods in range(1, most + 1):
        held = np.bincount(rows, np.minimum(each, pods), len(whole))
        enough = held + whole * np.minimum(fresh, pods) >= pods * parts
        if not enough.any():
            break
        able[enough] = pods
    return able


def _ints(counts: Floats) -> Ints:
    return np.asarray(counts, dtype=np.int64)


def _nothing() -> None:
    """Nothing was changed."""
