"""Scores worked out by hand, as the formula of the paper has them."""

import numpy as np

from kai_py.policy.score.best_fit import best_fit
from kai_py.policy.score.node_capacity import GpuRequest, NodeCapacity


def test_best_fit():
    node = NodeCapacity(
        rows=np.arange(1),
        cpu=np.array([64_000.0]),
        memory=np.zeros(1),
        free_milli=np.array([[500.0, 1000.0]]),
        devices=np.array([2]),
    )
    scores = best_fit(GpuRequest(32_000.0, 0.0, 1, np.array([500.0])), node)
    assert scores.score.tolist() == [100 - 12.5 - 7 + 0.5]
    assert scores.gpu.tolist() == [0]
