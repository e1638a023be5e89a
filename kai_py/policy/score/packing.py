"""Packing: GPUs in use first, then nodes in use, then small idle nodes.

    level = max(50, 100 - i)    fits on GPUs in use; i: tenths of a percent idle on those it takes
            max(33, 50 - w)     else on a node in use, taking w idle GPUs
            max(33 - d, d)      else on an idle node of d GPUs

A pod without GPUs scores 0 everywhere.
Policy and scale as in "Beware of Fragmentation" (Weng et al., USENIX ATC 2023).
"""

import numpy as np

from kai_py.policy.score.node_capacity import WHOLE, GpuAsk, GpuRooms, Scores, tightest


def packing(ask: GpuAsk, rooms: GpuRooms) -> Scores:
    """Levels 0 to 100; O(nodes x devices)."""
    device = tightest(ask, rooms)
    if not ask.devices:
        return Scores(np.zeros(len(rooms.rows)), device)
    room = np.take_along_axis(rooms.parts, np.maximum(device, 0)[:, None], axis=1)[:, 0]
    joins = (device >= 0) & (room < WHOLE)
    idle = (rooms.parts >= WHOLE).sum(axis=1)
    level = np.select(
        [joins, idle < rooms.devices],
        [np.maximum(50.0, 100.0 - np.floor(room / 100.0)), max(33.0, 50.0 - ask.devices)],
        np.maximum(33.0 - rooms.devices, rooms.devices),
    )
    return Scores(level, device)
