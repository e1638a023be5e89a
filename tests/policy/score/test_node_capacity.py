"""What is free of the GPUs of each node, as scores see it."""

import numpy as np
import pytest

from kai_py.policy.score.node_capacity import (
    ANY_DEVICE,
    GpuRequest,
    NodeCapacity,
    free_milli_by_node,
    tightest_gpu,
)


@pytest.mark.parametrize(
    ("rows", "fractions", "expected"),
    [
        ([], [], [[1000, 1000, 0], [0, 0, 0], [1000, 0, 0]]),
        ([0, 2, 2], [0.5, 0.25, 0.7], [[500, 1000, 1000], [0, 0, 0], [250, 700, 1000]]),
        ([2, 0, 2], [0.25, 0.5, 0.7], [[500, 1000, 1000], [0, 0, 0], [250, 700, 1000]]),
        ([1], [-0.5], [[1000, 1000, 0], [0, 0, 0], [1000, 0, 0]]),
        ([1] * 4, [0.1, 0.2, 0.3, 0.4], [[1000, 1000, 0], [100, 200, 300], [1000, 0, 0]]),
    ],
)
def test_shared_gpus_of_each_node_come_before_its_idle_ones(rows, fractions, expected):
    idle = np.array([2.0, 0.0, 1.5])
    found = free_milli_by_node(np.array(rows, dtype=np.int64), np.array(fractions), idle, 3)
    assert found.tolist() == expected


@pytest.mark.parametrize(
    ("devices", "milli", "chosen"),
    [(1, 300, 1), (1, 301, 2), (1, 600, 2), (1, 1000, ANY_DEVICE), (2, 300, ANY_DEVICE)],
)
def test_a_part_is_taken_of_the_fullest_gpu_that_has_enough(devices, milli, chosen):
    one = np.zeros(1)
    capacity = NodeCapacity(
        rows=np.zeros(1, dtype=np.int64),
        cpu=one,
        memory=one,
        free_milli=np.array([[1000.0, 300.0, 600.0]]),
        devices=np.array([3]),
    )
    request = GpuRequest(cpu=0.0, memory=0.0, devices=devices, milli=np.array([float(milli)]))
    assert tightest_gpu(request, capacity).tolist() == [chosen]
