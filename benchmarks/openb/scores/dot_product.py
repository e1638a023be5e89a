"""Dot product: the node whose free capacity points least along what is asked.

    score = floor(100 (1 - (c a + g b) / 2))

where c and g are the free CPU and GPUs, a and b what is asked, as parts of 128 cores and 8 GPUs.
Policy and scale as in "Beware of Fragmentation" (Weng et al., USENIX ATC 2023).
"""

import numpy as np

from kai_py.policy.score.best_fit import REFERENCE_GPU_MILLI, REFERENCE_MILLICORES
from kai_py.policy.score.node_capacity import GpuRequest, NodeCapacity, NodeScores, tightest_gpu


def dot_product(request: GpuRequest, capacity: NodeCapacity) -> NodeScores:
    """Scores 0 to 100; O(nodes x devices)."""
    along_cpu = (capacity.cpu / REFERENCE_MILLICORES) * (request.cpu / REFERENCE_MILLICORES)
    along_gpus = (capacity.free_milli.sum(axis=1) / REFERENCE_GPU_MILLI) * (
        request.devices * request.milli / REFERENCE_GPU_MILLI
    )
    score = np.floor(np.round(100.0 * (1.0 - (along_cpu + along_gpus) / 2), 9))
    return NodeScores(score, tightest_gpu(request, capacity))
