"""GPUs that pods share, and how much of their memory is in use.

A GPU that pods share is known by its node and its group; other GPUs have no entry, they are counted
by the device plugin's resource. A shared GPU counts there as one whole GPU in use: no pod that
requests whole GPUs may get it.

How much memory a GPU has is a label of its node, in MiB, rounded down to hundreds, so that GPUs of
one product count as equal whatever their firmware reserves; without the label it is what a driver
publishes of its smallest GPU there. If neither says, a fraction still has a meaning, an amount of
memory has none.

A pod costs O(1); ``snapshot`` copies the columns, O(shared GPUs), and looks every group's node up
again only when the set of nodes has changed.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from kai_py.api.gpu_share import GPU_RESOURCE, UNKNOWN_INDEX, GpuShare, SharedGpu
from kai_py.api.numbers import MAX_COUNT, parse_int64
from kai_py.snapshot.nodes import NodeColumns, node_columns
from kai_py.snapshot.resources import Bools, Floats, Ints, ResourceIndex

MEMORY_LABEL = "nvidia.com/gpu.memory"
NOMINAL_MIB = 100.0
"""What a GPU of unknown memory counts for: fractions of it are exact, amounts do not fit."""

Groups = npt.NDArray[Any]
"""(shared GPUs,) of str."""

NO_SHARE = GpuShare()
NO_NODES = node_columns((), ResourceIndex(), -1)


class SharedGpuUsage(Struct, frozen=True):
    """A pod's part of each of ``gpus``.

    A reservation pod requests no part: it keeps the GPU of its group reserved. ``leaves``: it is
    deleted as soon as no pod shares the GPU. ``needs_reservation``: the pod was given GPUs that are
    the pods' of its group only while a reservation pod keeps them.
    """

    gpus: tuple[SharedGpu, ...]
    share: GpuShare = NO_SHARE
    leaves: bool = False
    needs_reservation: bool = False


class GpuSharing(Struct, frozen=True, dict=True):
    """The shared GPUs at one instant; read-only.

    ``memory``: (nodes,) float64, MiB of one GPU; ``memory_known``: (nodes,) bool, whether a label
    says so. Per shared GPU: ``rows`` (its node), ``groups``, ``index`` on the node, ``used`` MiB,
    of which ``releasing`` MiB belong to terminating pods, and ``remaining_pods``, how many of the
    pods that share it are not terminating. ``fully_releasing``: (shared GPUs,) bool, all of them
    are, or none is left, and after them it is a whole GPU again. ``exposed``: rows of nodes with
    shared GPUs that no reservation pod keeps any more: the device plugin may give out any of them.
    """

    memory: Floats = field(default_factory=lambda: np.zeros(0))
    memory_known: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    rows: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    groups: Groups = field(default_factory=lambda: np.zeros(0, dtype=np.object_))
    index: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    used: Floats = field(default_factory=lambda: np.zeros(0))
    releasing: Floats = field(default_factory=lambda: np.zeros(0))
    remaining_pods: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    fully_releasing: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    exposed: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @cached_property
    def smallest(self) -> float:
        """MiB of the smallest GPU of the cluster."""
        return (
            float(self.memory[self.memory_known].min()) if self.memory_known.any() else NOMINAL_MIB
        )

    def whole_gpus(self, *, releasing: bool) -> Floats:
        """(nodes,) whole GPUs that shared ones count as; ``releasing``: only those fully so."""
        rows = self.rows[self.fully_releasing] if releasing else self.rows
        return np.bincount(rows, minlength=len(self.memory)).astype(np.float64)


class SharedGpuTable:
    """The mutable side: one column per shared GPU, dense, in no particular order."""

    _FRACTION, _MIB, _RELEASING_FRACTION, _RELEASING_MIB, _SHARERS, _RELEASING, _RESERVED = range(7)
    _ENDING, _LEAVING, _NEEDING = range(7, 10)
    """Reservation pods that are terminating; that leave with the last pod; pods that need one."""

    def __init__(self) -> None:
        """Start with none."""
        self._slots: dict[tuple[str, str], int] = {}
        self._names: list[tuple[str, str]] = []
        self._sums = np.zeros((10, 16))
        self._groups: Groups = np.zeros(16, dtype=np.object_)
        self._rows = np.full(16, -1, dtype=np.int64)
        self._index = np.full(16, UNKNOWN_INDEX, dtype=np.int64)
        self._nodes = NO_NODES
        self._memory: tuple[Floats, Bools] = (np.zeros(0), np.zeros(0, dtype=np.bool_))
        self._published: Mapping[str, float] = {}
        self._frozen: GpuSharing | None = None

    def add(self, node: str, usage: SharedGpuUsage, sign: float, *, releasing: bool) -> None:
        """Add a pod on ``node`` (or with -1 take it away)."""
        self._frozen = None
        for gpu in usage.gpus:
            slot = self._slot(node, gpu.group)
            self._index[slot] = max(self._index[slot], gpu.index)
            sums = self._sums[:, slot]
            share = usage.share
            if share == NO_SHARE:
                sums[self._RESERVED] += sign
                sums[self._ENDING] += sign * releasing
                sums[self._LEAVING] += sign * (releasing or usage.leaves)
            else:
                sums[self._NEEDING] += sign * usage.needs_reservation
                sums[self._FRACTION] += sign * share.fraction
                sums[self._MIB] += sign * share.memory
                sums[self._SHARERS] += sign
            if releasing and share != NO_SHARE:
                sums[self._RELEASING_FRACTION] += sign * share.fraction
                sums[self._RELEASING_MIB] += sign * share.memory
                sums[self._RELEASING] += sign
            if not sums[self._SHARERS] and not sums[self._RESERVED]:
                self._drop(slot)

    def set_published_memory(self, published: Mapping[str, float]) -> None:
        """Set what drivers publish: MiB of a GPU by node."""
        if published is not self._published:
            self._published, self._memory = published, node_gpu_memory(self._nodes, published)
            self._frozen = None

    def snapshot(self, nodes: NodeColumns) -> GpuSharing:
        """The shared GPUs of ``nodes``; the same object as long as nothing of it changes."""
        if self._frozen is None or nodes is not self._nodes:
            self._frozen = self._snapshot(nodes)
        return self._frozen

    def _snapshot(self, nodes: NodeColumns) -> GpuSharing:
        if nodes.positions is not self._nodes.positions:
            found = [nodes.positions.get(node, -1) for node, _ in self._names]
            self._rows[: len(found)] = found
        if nodes is not self._nodes:
            self._nodes, self._memory = nodes, node_gpu_memory(nodes, self._published)
        memory, known = self._memory
        kept = np.flatnonzero(self._rows[: len(self._names)] >= 0)
        rows, sums = self._rows[kept], self._sums[:, kept]
        remaining = (sums[self._SHARERS] - sums[self._RELEASING]).astype(np.int64)
        each = memory[rows]
        unused = (sums[self._SHARERS] == 0) & (sums[self._LEAVING] == sums[self._RESERVED])
        exposed = (sums[self._NEEDING] > 0) & (sums[self._ENDING] == sums[self._RESERVED])
        used = sums[self._FRACTION] * each + sums[self._MIB]
        return GpuSharing(
            memory=memory,
            memory_known=known,
            rows=rows,
            groups=self._groups[kept],
            index=self._index[kept],
            # On a GPU that may be given away no pod can join: it counts as full.
            used=np.where(exposed, np.maximum(used, each), used),
            releasing=np.where(
                exposed, 0.0, sums[self._RELEASING_FRACTION] * each + sums[self._RELEASING_MIB]
            ),
            remaining_pods=remaining,
            fully_releasing=(remaining == 0) & ((sums[self._RELEASING] > 0) | unused),
            exposed=np.unique(rows[exposed]),
        )

    def _slot(self, node: str, group: str) -> int:
        known = self._slots.get((node, group))
        if known is not None:
            return known
        slot = self._slots[node, group] = len(self._names)
        self._names.append((node, group))
        if slot == self._sums.shape[1]:
            self._sums = np.concatenate((self._sums, np.zeros_like(self._sums)), axis=1)
            self._groups = np.concatenate((self._groups, self._groups))
            self._rows = np.concatenate((self._rows, self._rows))
            self._index = np.concatenate((self._index, self._index))
        self._sums[:, slot] = 0.0
        self._groups[slot] = group
        self._index[slot] = UNKNOWN_INDEX
        self._rows[slot] = self._nodes.positions.get(node, -1)
        return slot

    def _drop(self, slot: int) -> None:
        """Drop a GPU that is not shared any more; the last one takes its slot."""
        del self._slots[self._names[slot]]
        moved = self._names.pop()
        last = len(self._names)
        if slot == last:
            return
        self._names[slot] = moved
        self._slots[moved] = slot
        for column in (self._sums, self._groups, self._rows, self._index):
            column[..., slot] = column[..., last]


def with_shared_gpus(
    resources: ResourceIndex, sharing: GpuSharing, amounts: Floats, *, releasing: bool
) -> Floats:
    """``amounts`` (resources, nodes) plus the whole GPUs that shared ones count as."""
    row = resources.positions.get(GPU_RESOURCE)
    if row is None or not sharing.rows.size:
        return amounts
    counted = amounts.copy()
    counted[row] += sharing.whole_gpus(releasing=releasing)
    return counted


def without_exposed_gpus(
    resources: ResourceIndex, sharing: GpuSharing, used: Floats, allocatable: Floats
) -> Floats:
    """(resources, nodes) ``used``, with all GPUs of nodes on which one may be allocated twice."""
    row = resources.positions.get(GPU_RESOURCE)
    if row is None or not sharing.exposed.size:
        return used
    adjusted = used.copy()
    nodes = sharing.exposed
    adjusted[row, nodes] = np.maximum(adjusted[row, nodes], allocatable[row, nodes])
    return adjusted


def node_gpu_memory(nodes: NodeColumns, published: Mapping[str, float]) -> tuple[Floats, Bools]:
    """(nodes,) MiB of one GPU, and whether it is known; ``published``: by drivers, by node."""
    column = nodes.label(MEMORY_LABEL)
    by_code = np.array([parse_gpu_memory(value) for value in column.values])
    memory = by_code[column.codes]
    for node, mib in published.items():
        row = nodes.positions.get(node)
        if row is not None and memory[row] <= 0:
            memory[row] = mib
    known = memory > 0
    return np.where(known, memory, NOMINAL_MIB), known


def parse_gpu_memory(text: str) -> float:
    """MiB by the label's text, in whole hundreds; 0 if it is empty or not a number."""
    number = parse_int64(text) or 0
    return number // 100 * 100.0 if 0 < number <= MAX_COUNT else 0.0
