"""A random node, the floor that every other score is measured against.

The value of a node is a hash of it and of a count of picks, so that the same pods in the same order
go to the same nodes.
"""

from collections.abc import Callable
from itertools import count

import numpy as np

from kai_py.policy.score.node_capacity import (
    WHOLE_GPU,
    GpuRequest,
    NodeCapacity,
    NodeScores,
    any_gpu,
)

_MIX = np.uint64(0x9E3779B97F4A7C15)
_STEP = 0xD1B54A32D192ED03


def random_score() -> Callable[[GpuRequest, NodeCapacity], NodeScores]:
    """A score that draws again at every call."""
    calls = count(1)

    def score(request: GpuRequest, capacity: NodeCapacity) -> NodeScores:
        drawn = next(calls)
        level = _random_values(capacity.rows.astype(np.uint64), drawn)
        if request.devices != 1 or not (request.milli < WHOLE_GPU).any():
            return NodeScores(level, any_gpu(capacity))
        columns = np.arange(capacity.free_milli.shape[1], dtype=np.uint64)
        lots = _random_values(
            capacity.rows.astype(np.uint64)[:, None] * np.uint64(64) + columns, drawn
        )
        enough = capacity.free_milli >= request.milli[:, None]
        device = np.where(enough, lots, -1.0).argmax(axis=1).astype(np.int64)
        return NodeScores(level, device)

    return score


def _random_values(
    keys: np.ndarray[tuple[int, ...], np.dtype[np.uint64]], draw: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Even numbers from 0 to 1 by key (a splitmix64 finaliser)."""
    mixed = (keys + np.uint64(1)) * _MIX + np.uint64(draw * _STEP % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return np.asarray(mixed >> np.uint64(11), dtype=np.float64) / 2.0**53
