"""Clustering: pods of one GPU class together, then on the fuller node.

A class is: a part of a GPU, or so many whole ones. A pod with GPUs scores

    level = 25 (8 - g) / 8 + 75   the node holds pods of its class and of no other
                           + 50   of its class and of others
                           + 25   no pods with GPUs
                           + 0    only of others

where g is the number of free GPUs; a pod without scores 0 everywhere.
Policy and scale as in "Beware of Fragmentation" (Weng et al., USENIX ATC 2023).
"""

import numpy as np

from kai_py.policy.score.best_fit import REFERENCE_GPU_MILLI
from kai_py.policy.score.node_capacity import (
    GpuRequest,
    NodeCapacity,
    NodeScores,
    gpu_class,
    tightest_gpu,
)


def clustering(request: GpuRequest, capacity: NodeCapacity) -> NodeScores:
    """Levels 0 to 100; O(nodes x devices)."""
    own = gpu_class(request)
    if not own:
        return NodeScores(np.zeros(len(capacity.rows)), tightest_gpu(request, capacity))
    same, others = (capacity.gpu_classes & own) > 0, (capacity.gpu_classes & ~own) > 0
    company = np.select([same & ~others, same, ~others], [75.0, 50.0, 25.0], 0.0)
    full = 25.0 * (1.0 - capacity.free_milli.sum(axis=1) / REFERENCE_GPU_MILLI)
    return NodeScores(np.floor(np.round(company + full, 9)), tightest_gpu(request, capacity))
