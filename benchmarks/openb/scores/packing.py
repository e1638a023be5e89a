"""Packing: GPUs in use first, then nodes in use, then small idle nodes.

    score = max(50, 100 - i)    fits on GPUs in use; i: tenths of a percent idle on those it takes
            max(33, 50 - w)     else on a node in use, taking w idle GPUs
            max(33 - d, d)      else on an idle node of d GPUs

A pod without GPUs scores 0 everywhere.
Policy and scale as in "Beware of Fragmentation" (Weng et al., USENIX ATC 2023).
"""

import numpy as np

from kai_py.policy.score.node_capacity import (
    WHOLE_GPU,
    GpuRequest,
    NodeCapacity,
    NodeScores,
    tightest_gpu,
)


def packing(request: GpuRequest, capacity: NodeCapacity) -> NodeScores:
    """Scores 0 to 100; O(nodes x devices)."""
    device = tightest_gpu(request, capacity)
    if not request.devices:
        return NodeScores(np.zeros(len(capacity.rows)), device)
    free_milli = capacity.free_milli[np.arange(len(device)), np.maximum(device, 0)]
    joins = (device >= 0) & (free_milli < WHOLE_GPU)
    idle = (capacity.free_milli >= WHOLE_GPU).sum(axis=1)
    score = np.select(
        [joins, idle < capacity.devices],
        [np.maximum(50.0, 100.0 - np.floor(free_milli / 100.0)), max(33.0, 50.0 - request.devices)],
        np.maximum(33.0 - capacity.devices, capacity.devices),
    )
    return NodeScores(score, device)
