"""The score by growth: a pod goes where a measure of waste grows least.

    score = floor(levels / (1 + exp(growth / 1000)))        growth in milli-GPU

Only this many levels, and ties by the stable order of the nodes: both matter, an exact gradient
packs worse. Amounts are rounded to 1e-6 milli before they are compared, so that equal ones tie.

Nodes before and after go through the measure as one array: O(sizes x devices + shapes) per node
and distinct GPU.
"""

from collections.abc import Callable

import numpy as np

from kai_py.policy.score.node_capacity import (
    ANY_DEVICE,
    DECIMALS,
    MAX_SCORE,
    WHOLE_GPU,
    GpuRequest,
    NodeCapacity,
    NodeScores,
)
from kai_py.policy.score.workload import FreeCapacity, FreeGpus, TargetWorkload
from kai_py.snapshot.resources import Floats, Ints

Waste = Callable[[TargetWorkload, FreeCapacity], Floats]
"""(n,) milli-GPU of nodes that a workload can't use."""


def least_growth(
    request: GpuRequest, capacity: NodeCapacity, workload: TargetWorkload, waste: Waste
) -> tuple[Floats, Ints]:
    """(n,) how much the waste grows with the ask on each node, and the GPU by which least."""
    nodes = np.arange(len(capacity.rows))
    shared = request.devices == 1 and bool((request.milli < WHOLE_GPU).any())
    at, device = _distinct_gpus(capacity.free_milli, request.milli) if shared else (nodes, None)
    after = _free_after(capacity.free_milli[at], request, at, device)
    both = FreeCapacity(
        np.concatenate((capacity.rows, capacity.rows[at])),
        np.concatenate((capacity.cpu, capacity.cpu[at] - request.cpu)),
        np.concatenate((capacity.memory, capacity.memory[at] - request.memory)),
        FreeGpus(workload, np.concatenate((capacity.free_milli, after))),
    )
    wasted = waste(workload, both)
    growth = (wasted[len(nodes) :] - wasted[at]).round(DECIMALS)
    if device is None:
        return growth, np.full(len(nodes), ANY_DEVICE, dtype=np.int64)
    return _least_by_node(len(nodes), at, device, growth)


def _free_after(free_milli: Floats, request: GpuRequest, at: Ints, device: Ints | None) -> Floats:
    """(p, devices) what is free once the ask has its part of ``device``, or its emptiest GPUs."""
    if device is not None:
        free_milli[np.arange(len(at)), device] -= request.milli[at]
        return free_milli
    emptiest_last: Floats = np.sort(free_milli, axis=1)
    emptiest_last[:, free_milli.shape[1] - request.devices :] -= request.milli[at, None]
    return emptiest_last


def sigmoid_scores(growth: Floats) -> Floats:
    """Scores 0 to 100, of the shape of ``growth``, which is in milli."""
    return np.asarray(np.floor(np.round(MAX_SCORE / (1.0 + np.exp(growth / 1000.0)), 9)))


def least_growth_score(
    workload: TargetWorkload, waste: Waste
) -> Callable[[GpuRequest, NodeCapacity], NodeScores]:
    """The score by a measure of waste for a target workload."""

    def score(request: GpuRequest, capacity: NodeCapacity) -> NodeScores:
        growth, device = least_growth(request, capacity, workload, waste)
        return NodeScores(sigmoid_scores(growth), device)

    return score


def _distinct_gpus(free_milli: Floats, milli: Floats) -> tuple[Ints, Ints]:
    """(pairs,) nodes and GPUs that fit ``milli``, of equal GPUs of a node only the first."""
    equal = free_milli[:, :, None] == free_milli[:, None, :]
    first = equal.argmax(axis=2) == np.arange(free_milli.shape[1])
    at, device = np.nonzero(first & (free_milli >= milli[:, None]))
    return at, device


def _least_by_node(nodes: int, at: Ints, device: Ints, growth: Floats) -> tuple[Floats, Ints]:
    """The least growth of every node, and the first GPU that has it; ``at`` is ascending."""
    order = np.lexsort((device, growth, at))
    first = order[np.unique(at[order], return_index=True)[1]]
    least, chosen = np.full(nodes, np.inf), np.full(nodes, ANY_DEVICE, dtype=np.int64)
    least[at[first]], chosen[at[first]] = growth[first], device[first]
    return least, chosen
