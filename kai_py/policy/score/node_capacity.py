"""The input of scores: one request, and the free capacity of nodes, as columns.

A GPU is measured in thousandths (*milli*). A node's GPUs are a row of free parts, in no
particular order; one that is fully used, or that the node doesn't have, is 0. Scores are whole
numbers: coarse on purpose, because exact ones follow noise instead of the order of the nodes.
"""

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from kai_py.snapshot.resources import Floats, Ints

MAX_SCORE = 100.0
WHOLE_GPU = 1000.0
ANY_DEVICE = -1
DECIMALS = 6


class GpuRequest(Struct, frozen=True):
    """What the next pod requests.

    ``cpu`` in millicores, ``memory`` in bytes, ``devices`` GPUs. ``milli``: (n,) of each GPU, on
    every node.
    """

    cpu: float
    memory: float
    devices: int
    milli: Floats


class NodeCapacity(Struct, frozen=True):
    """Free capacity of n nodes.

    ``rows``: (n,) which nodes of the cluster. ``cpu``: (n,) free millicores. ``memory``: (n,) free
    bytes. ``free_milli``: (n, devices) of each GPU. ``devices``: (n,) GPUs of the node, in use or
    not.
    """

    rows: Ints
    cpu: Floats
    memory: Floats
    free_milli: Floats
    devices: Ints


class NodeScores(Struct, frozen=True):
    """``score``: (n,) the highest wins. ``gpu``: (n,) column of ``free_milli`` for a shared GPU.

    ``gpu`` is ``ANY_DEVICE`` where it makes no difference.
    """

    score: Floats
    gpu: Ints


Score = Callable[[GpuRequest, NodeCapacity], NodeScores]
"""Scores of nodes that all have capacity for the request."""


def any_gpu(capacity: NodeCapacity) -> Ints:
    """(n,) no GPU in particular."""
    return np.full(len(capacity.rows), ANY_DEVICE, dtype=np.int64)


def tightest_gpu(request: GpuRequest, capacity: NodeCapacity) -> Ints:
    """(n,) the fullest GPU that has enough; ``ANY_DEVICE`` unless a part is requested."""
    if request.devices != 1 or not (request.milli < WHOLE_GPU).any():
        return any_gpu(capacity)
    enough = capacity.free_milli >= request.milli[:, None]
    return np.asarray(np.where(enough, capacity.free_milli, np.inf).argmin(axis=1), dtype=np.int64)


def free_milli_by_node(
    rows: Ints, free_fractions: Floats, idle_gpus: Floats, devices: int
) -> Floats:
    """(nodes, devices) free milli, those of shared GPUs first.

    ``rows``, ``free_fractions``: (shared GPUs,) node of each and what is free of it, 0 to 1.
    ``idle_gpus``: (nodes,) GPUs that no pod has.
    """
    parts = np.zeros((len(idle_gpus), devices))
    order = np.argsort(rows, kind="stable")
    held = np.bincount(rows, minlength=len(idle_gpus))
    column = np.arange(len(rows)) - np.repeat(np.cumsum(held) - held, held)
    # Labels of pods may name more shared GPUs than the node reports: skip the others.
    real = column < devices
    parts[rows[order][real], column[real]] = np.round(
        np.maximum(free_fractions[order][real], 0.0) * WHOLE_GPU, DECIMALS
    )
    at = np.arange(devices)
    parts[(at >= held[:, None]) & (at < (held + np.floor(idle_gpus))[:, None])] = WHOLE_GPU
    return parts
