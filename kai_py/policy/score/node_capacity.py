"""What scores see: one ask, and the room of nodes, as columns.

A GPU is measured in thousandths (*milli*). A node's GPUs stand as a row of free parts, in no
particular order; one that is fully used, or that the node doesn't have, is 0. Scores are whole
levels: coarse on purpose, because exact ones follow noise instead of the order of the nodes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kai_py.snapshot.resources import Floats, Ints

WHOLE = 1000.0
ANY_DEVICE = -1
DECIMALS = 6


@dataclass(frozen=True, slots=True)
class GpuAsk:
    """What the next pod asks for.

    ``cpu`` in millicores, ``memory`` in bytes, ``devices`` GPUs. ``milli``: (n,) of each GPU, on
    every node.
    """

    cpu: float
    memory: float
    devices: int
    milli: Floats


@dataclass(frozen=True, slots=True)
class GpuRooms:
    """Room of n nodes.

    ``rows``: (n,) which nodes of the cluster. ``cpu``: (n,) free millicores. ``memory``: (n,) free
    bytes. ``parts``: (n, devices) free milli. ``devices``: (n,) GPUs of the node, in use or not.
    ``classes``: (n,) bits of the GPU classes of the pods there, see ``gpu_class``.
    """

    rows: Ints
    cpu: Floats
    memory: Floats
    parts: Floats
    devices: Ints
    classes: Ints


@dataclass(frozen=True, slots=True)
class Scores:
    """``level``: (n,) the highest wins. ``device``: (n,) column of ``parts`` for a shared GPU."""

    level: Floats
    device: Ints


Score = Callable[[GpuAsk, GpuRooms], Scores]
"""Levels of nodes that all have room for the ask."""


def tightest(ask: GpuAsk, rooms: GpuRooms) -> Ints:
    """(n,) the GPU with the least room that is enough; ``ANY_DEVICE`` unless a part is asked."""
    if ask.devices != 1 or not (ask.milli < WHOLE).any():
        return np.full(len(rooms.rows), ANY_DEVICE, dtype=np.int64)
    enough = rooms.parts >= ask.milli[:, None]
    return np.asarray(np.where(enough, rooms.parts, np.inf).argmin(axis=1), dtype=np.int64)


def gpu_class(ask: GpuAsk) -> int:
    """Bit of a pod's GPU class: 0 for none, 1 for a part, then by how many whole GPUs."""
    if not ask.devices:
        return 0
    if (ask.milli < WHOLE).all():
        return 1
    return 2 << min(ask.devices, 60)


def parts_by_node(rows: Ints, free: Floats, whole: Floats, devices: int) -> Floats:
    """(nodes, devices) free milli, those of shared GPUs first.

    ``rows``, ``free``: (shared GPUs,) node of each and what is free of it, 0 to 1. ``whole``:
    (nodes,) GPUs that nobody has.
    """
    parts = np.zeros((len(whole), devices))
    order = np.argsort(rows, kind="stable")
    held = np.bincount(rows, minlength=len(whole))
    column = np.arange(len(rows)) - np.repeat(np.cumsum(held) - held, held)
    parts[rows[order], column] = np.round(np.maximum(free[order], 0.0) * WHOLE, DECIMALS)
    at = np.arange(devices)
    parts[(at >= held[:, None]) & (at < (held + np.floor(whole))[:, None])] = WHOLE
    return parts
