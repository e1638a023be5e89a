"""Clustering: pods of one GPU class together, then on the fuller node.

A class is: a part of a GPU, or so many whole ones. A pod with GPUs scores

    score = 25 (8 - g) / 8 + 75   the node holds pods of its class and of no other
                           + 50   of its class and of others
                           + 25   no pods with GPUs
                           + 0    only of others

where g is the number of free GPUs; a pod without scores 0 everywhere.
Policy and scale as in "Beware of Fragmentation" (Weng et al., USENIX ATC 2023).
"""

from typing import TYPE_CHECKING

import numpy as np

from kai_py.policy.score.best_fit import REFERENCE_GPU_MILLI
from kai_py.policy.score.node_capacity import (
    WHOLE_GPU,
    GpuRequest,
    NodeCapacity,
    NodeScores,
    tightest_gpu,
)

if TYPE_CHECKING:
    from kai_py.snapshot.resources import Floats


class Clustering:
    """The score, and the GPU classes of the pods placed so far.

    ``classes``: (nodes,) bits by ``gpu_class``. As pods never leave in a replay, a node has each
    amount of free capacity with one value of them, so that scores may still be kept by capacity.
    """

    def __init__(self, nodes: int) -> None:
        """No pod is placed yet."""
        self.classes = np.zeros(nodes, dtype=np.int64)

    def __call__(self, request: GpuRequest, capacity: NodeCapacity) -> NodeScores:
        """Scores 0 to 100; O(nodes x devices)."""
        own, gpu = gpu_class(request.devices, request.milli), tightest_gpu(request, capacity)
        if not own:
            return NodeScores(np.zeros(len(capacity.rows)), gpu)
        there = self.classes[capacity.rows]
        same, others = (there & own) > 0, (there & ~own) > 0
        company = np.select([same & ~others, same, ~others], [75.0, 50.0, 25.0], 0.0)
        full = 25.0 * (1.0 - capacity.free_milli.sum(axis=1) / REFERENCE_GPU_MILLI)
        return NodeScores(np.floor(np.round(company + full, 9)), gpu)

    def record(self, row: int, devices: int, milli: float) -> None:
        """A pod was placed on a node."""
        self.classes[row] |= gpu_class(devices, np.array([milli]))


def gpu_class(devices: int, milli: "Floats") -> int:
    """Bit of a pod's GPU class: 0 for none, 1 for a part, then by how many whole GPUs."""
    if not devices:
        return 0
    if (milli < WHOLE_GPU).all():
        return 1
    return 2 << min(devices, 60)
