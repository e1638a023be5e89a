"""How much free GPU can't be used by the pods that are likely to come, and who makes least of it?

The *target workload* M is shapes of pods with their shares p of all pods. Of a node n with free CPU
c and free GPU parts R_g the shape m can't use

    F_n(m) = sum of R_g over the GPUs too full for m    if m fits: enough CPU, enough such GPUs
             sum of all R_g                             if it doesn't, or asks for no GPU
    F_n    = sum over M of p_m F_n(m)

A pod goes where F grows least, to the node and the GPU:

    level = floor(100 / (1 + exp(growth / 1000)))       growth of F in milli-GPU

Fragmentation gradient descent, "Beware of Fragmentation" (Weng et al., USENIX ATC 2023). Only so
many levels, and ties by the stable order of the nodes: both matter, an exact gradient packs worse.

*Frugal* is ours: half as many levels, and of the nodes on one level the one with the fewest GPUs
goes first, so that large nodes stay free for pods that want many GPUs of one node.

Amounts are rounded to 1e-6 milli before they are compared, so that equal ones tie.

Per node the number of GPUs with at least s free and the sum of what the others have free are kept
for every size s in M; so a placement costs O(sizes + shapes) per node and distinct GPU.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kai_py.policy.score.rooms import ANY_DEVICE, WHOLE, GpuAsk, GpuRooms, Scores
from kai_py.snapshot.resources import Bools, Floats, Ints

DECIMALS = 6
LEVELS = 100.0
FRUGAL_LEVELS = 50.0


@dataclass(frozen=True)
class TargetWorkload:
    """Shapes with GPUs, (m,) each: ``cpu`` millicores, ``devices``, ``milli`` of each.

    ``share``: (m,) of all pods; what is missing to 1 are pods without GPUs, which can use none.
    ``accepts``: (nodes, m) bool, by static rules.
    """

    cpu: Floats
    devices: Ints
    milli: Floats
    share: Floats
    accepts: Bools

    @cached_property
    def sizes(self) -> Floats:
        """(sizes,) the distinct parts of a GPU that shapes ask for."""
        return np.unique(self.milli)

    @cached_property
    def size_of(self) -> Ints:
        """(m,) the position of each shape's part in ``sizes``."""
        return np.searchsorted(self.sizes, self.milli).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Parts:
    """GPUs of n nodes by the sizes of a workload.

    ``large``: (n, sizes) how many have so much free; ``small``: (n, sizes) milli free on the
    others; ``total``: (n,) milli free on all.
    """

    large: Floats
    small: Floats
    total: Floats

    @classmethod
    def of(cls, workload: TargetWorkload, parts: Floats) -> "Parts":
        """Count (n, devices) free parts."""
        enough = parts[:, :, None] >= workload.sizes
        small = np.where(enough, 0.0, parts[:, :, None]).sum(axis=1)
        return cls(enough.sum(axis=1).astype(np.float64), small, parts.sum(axis=1))

    def changed(self, workload: TargetWorkload, at: Ints, free: Floats, taken: Floats) -> "Parts":
        """Nodes ``at`` (p,) after one GPU with ``free`` (p,) has given ``taken`` (p,)."""
        sizes, before, after = workload.sizes, free[:, None], (free - taken)[:, None]
        had, has = before >= sizes, after >= sizes
        return Parts(
            self.large[at] - had + has,
            self.small[at] - np.where(had, 0.0, before) + np.where(has, 0.0, after),
            self.total[at] - taken,
        )


def fragmentation(workload: TargetWorkload, rows: Ints, cpu: Floats, parts: Parts) -> Floats:
    """(n,) F of nodes ``rows`` with ``cpu`` free millicores."""
    size = workload.size_of
    fits = workload.accepts[rows] & (cpu[:, None] >= workload.cpu)
    fits &= parts.large[:, size] >= workload.devices
    usable = np.where(fits, parts.total[:, None] - parts.small[:, size], 0.0)
    return np.asarray(np.round(parts.total - usable @ workload.share, DECIMALS))


def least_growth(ask: GpuAsk, rooms: GpuRooms, workload: TargetWorkload) -> tuple[Floats, Ints]:
    """(n,) how much F grows with the ask on each node, and the GPU by which it grows least."""
    parts = Parts.of(workload, rooms.parts)
    before = fragmentation(workload, rooms.rows, rooms.cpu, parts)
    left = rooms.cpu - ask.cpu
    nodes = np.arange(len(rooms.rows))
    if ask.devices == 1 and (ask.milli < WHOLE).any():
        at, device = _distinct(rooms.parts, ask.milli)
        after_parts = parts.changed(workload, at, rooms.parts[at, device], ask.milli[at])
        after = fragmentation(workload, rooms.rows[at], left[at], after_parts)
        return _best(len(nodes), at, device, np.round(after - before[at], DECIMALS))
    for _ in range(ask.devices):
        whole = rooms.parts.max(axis=1, initial=0.0)
        parts = parts.changed(workload, nodes, whole, ask.milli)
    after = fragmentation(workload, rooms.rows, left, parts)
    return np.round(after - before, DECIMALS), np.full(len(nodes), ANY_DEVICE, dtype=np.int64)


def sigmoid_levels(growth: Floats, levels: float) -> Floats:
    """Levels 0 to ``levels`` of the growth in milli."""
    return np.asarray(np.floor(np.round(levels / (1.0 + np.exp(growth / 1000.0)), 9)))


def gradient(workload: TargetWorkload) -> Callable[[GpuAsk, GpuRooms], Scores]:
    """The score of fragmentation gradient descent for a target workload."""

    def score(ask: GpuAsk, rooms: GpuRooms) -> Scores:
        growth, device = least_growth(ask, rooms, workload)
        return Scores(sigmoid_levels(growth, LEVELS), device)

    return score


def frugal(workload: TargetWorkload) -> Callable[[GpuAsk, GpuRooms], Scores]:
    """The frugal score for a target workload."""

    def score(ask: GpuAsk, rooms: GpuRooms) -> Scores:
        growth, device = least_growth(ask, rooms, workload)
        size = rooms.devices / (1.0 + rooms.devices)
        return Scores(sigmoid_levels(growth, FRUGAL_LEVELS) - size, device)

    return score


def _distinct(parts: Floats, milli: Floats) -> tuple[Ints, Ints]:
    """(pairs,) nodes and GPUs with room for ``milli``, of equal GPUs of a node only the first."""
    equal = parts[:, :, None] == parts[:, None, :]
    first = equal.argmax(axis=2) == np.arange(parts.shape[1])
    at, device = np.nonzero(first & (parts >= milli[:, None]))
    return at, device


def _best(nodes: int, at: Ints, device: Ints, growth: Floats) -> tuple[Floats, Ints]:
    """The least growth of every node, and the first GPU that has it; ``at`` is ascending."""
    order = np.lexsort((device, growth, at))
    first = order[np.unique(at[order], return_index=True)[1]]
    least, chosen = np.full(nodes, np.inf), np.full(nodes, ANY_DEVICE, dtype=np.int64)
    least[at[first]], chosen[at[first]] = growth[first], device[first]
    return least, chosen
