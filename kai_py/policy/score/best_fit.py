"""Best fit: the node that is left with the least CPU and GPUs; the tightest GPU of it.

    level = floor(100 (1 - (c - a) / 2 - (g - b) / 2))

where c and g are the free CPU and GPUs, a and b what is asked, as parts of 128 cores and 8 GPUs.
Policy and scale as in "Beware of Fragmentation" (Weng et al., USENIX ATC 2023).
"""

import numpy as np

from kai_py.policy.score.node_capacity import WHOLE, GpuAsk, GpuRooms, Scores, tightest

CORES = 128_000.0
GPUS = 8.0 * WHOLE


def best_fit(ask: GpuAsk, rooms: GpuRooms) -> Scores:
    """Levels 0 to 100; O(nodes x devices)."""
    cpu = (rooms.cpu - ask.cpu) / CORES
    gpus = (rooms.parts.sum(axis=1) - ask.devices * ask.milli) / GPUS
    level = np.floor(np.round(100.0 * (1.0 - cpu / 2 - gpus / 2), 9))
    return Scores(level, tightest(ask, rooms))
