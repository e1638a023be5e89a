"""What scores see: one ask, and the room of nodes, as columns.

A GPU is measured in thousandths (*milli*). A node's GPUs stand as a row of free parts, in no
particular order; one that is fully used, or that the node doesn't have, is 0. Scores are whole
levels: coarse on purpose, because exact ones follow noise instead of the order of the nodes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kai_py.snapshot.resources import Floats, Ints

WHOLE_GPU = 1000.0
ANY_DEVICE = -1
DECIMALS = 6


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """What the next pod asks for.

    ``cpu`` in millicores, ``memory`` in bytes, ``devices`` GPUs. ``milli``: (n,) of each GPU, on
    every node.
    """

    cpu: float
    memory: float
    devices: int
    milli: Floats


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """Room of n nodes.

    ``rows``: (n,) which nodes of the cluster. ``cpu``: (n,) free millicores. ``memory``: (n,) free
    bytes. ``parts``: (n, devices) free milli. ``devices``: (n,) GPUs of the node, in use or not.
    ``classes``: (n,) bits of the GPU classes of the pods there, see ``gpu_class``.
    """

    rows: Ints
    cpu: Floats
    memory: Floats
    free_milli: Floats
    devices: Ints
    gpu_classes: Ints


@dataclass(frozen=True, slots=True)
class NodeScores:
    """``level``: (n,) the highest wins. ``device``: (n,) column of ``parts`` for a shared GPU."""

    score: Floats
    gpu: Ints


Score = Callable[[GpuRequest, NodeCapacity], NodeScores]
"""Levels of nodes that all have room for the ask."""


def tightest_gpu(request: GpuRequest, capacity: NodeCapacity) -> Ints:
    """(n,) the GPU with the least room that is enough; ``ANY_DEVICE`` unless a part is asked."""
    if request.devices != 1 or not (request.milli < WHOLE_GPU).any():
        return np.full(len(capacity.rows), ANY_DEVICE, dtype=np.int64)
    enough = capacity.free_milli >= request.milli[:, None]
    return np.asarray(np.where(enough, capacity.free_milli, np.inf).argmin(axis=1), dtype=np.int64)


def gpu_class(request: GpuRequest) -> int:
    """Bit of a pod's GPU class: 0 for none, 1 for a part, then by how many whole GPUs."""
    if not request.devices:
        return 0
    if (request.milli < WHOLE_GPU).all():
        return 1
    return 2 << min(request.devices, 60)


def free_milli_by_node(
    rows: Ints, free_fractions: Floats, idle_gpus: Floats, devices: int
) -> Floats:
    """(nodes, devices) free milli, those of shared GPUs first.

    ``rows``, ``free``: (shared GPUs,) node of each and what is free of it, 0 to 1. ``whole``:
    (nodes,) GPUs that nobody has.
    """
    parts = np.zeros((len(idle_gpus), devices))
    order = np.argsort(rows, kind="stable")
    held = np.bincount(rows, minlength=len(idle_gpus))
    column = np.arange(len(rows)) - np.repeat(np.cumsum(held) - held, held)
    parts[rows[order], column] = np.round(
        np.maximum(free_fractions[order], 0.0) * WHOLE_GPU, DECIMALS
    )
    at = np.arange(devices)
    parts[(at >= held[:, None]) & (at < (held + np.floor(idle_gpus))[:, None])] = WHOLE_GPU
    return parts
