"""Best fit: the node that is left with the least CPU and GPUs; the tightest GPU of it.

    level = floor(100 (1 - (c - a) / 2 - (g - b) / 2))

where c and g are the free CPU and GPUs, a and b the requested ones, as fractions of 128 cores and 8
GPUs. Policy and scale as in "Beware of Fragmentation" (Weng et al., USENIX ATC 2023).
"""

import numpy as np

from kai_py.policy.score.node_capacity import (
    WHOLE_GPU,
    GpuRequest,
    NodeCapacity,
    NodeScores,
    tightest_gpu,
)

REFERENCE_MILLICORES = 128_000.0
REFERENCE_GPU_MILLI = 8.0 * WHOLE_GPU


def best_fit(request: GpuRequest, capacity: NodeCapacity) -> NodeScores:
    """Levels 0 to 100; O(nodes x devices)."""
    cpu = (capacity.cpu - request.cpu) / REFERENCE_MILLICORES
    gpus = (capacity.free_milli.sum(axis=1) - request.devices * request.milli) / REFERENCE_GPU_MILLI
    level = np.floor(np.round(100.0 * (1.0 - cpu / 2 - gpus / 2), 9))
    return NodeScores(level, tightest_gpu(request, capacity))
