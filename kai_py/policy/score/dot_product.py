"""Dot product: the node whose free room points least along what is asked.

    level = floor(100 (1 - (c a + g b) / 2))

where c and g are the free CPU and GPUs, a and b what is asked, as parts of 128 cores and 8 GPUs.
Policy and scale as in "Beware of Fragmentation" (Weng et al., USENIX ATC 2023).
"""

import numpy as np

from kai_py.policy.score.best_fit import CORES, GPUS
from kai_py.policy.score.node_capacity import GpuAsk, GpuRooms, Scores, tightest


def dot_product(ask: GpuAsk, rooms: GpuRooms) -> Scores:
    """Levels 0 to 100; O(nodes x devices)."""
    along_cpu = (rooms.cpu / CORES) * (ask.cpu / CORES)
    along_gpus = (rooms.parts.sum(axis=1) / GPUS) * (ask.devices * ask.milli / GPUS)
    level = np.floor(np.round(100.0 * (1.0 - (along_cpu + along_gpus) / 2), 9))
    return Scores(level, tightest(ask, rooms))
