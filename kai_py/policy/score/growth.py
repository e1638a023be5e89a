"""On which node, and on which GPU of it, does a measure of waste grow least with the next pod?

A pod goes where the waste grows least:

    level = floor(levels / (1 + exp(growth / 1000)))        growth in milli-GPU

Only so many levels, and ties by the stable order of the nodes: both matter, an exact gradient packs
worse. Amounts are rounded to 1e-6 milli before they are compared, so that equal ones tie.

Nodes before and after go through the measure as one array: O(sizes x devices + shapes) per node
and distinct GPU.
"""

from collections.abc import Callable

import numpy as np

from kai_py.policy.score.node_capacity import ANY_DEVICE, DECIMALS, WHOLE, GpuAsk, GpuRooms, Scores
from kai_py.policy.score.workload import Left, Parts, TargetWorkload
from kai_py.snapshot.resources import Floats, Ints

LEVELS = 100.0

Waste = Callable[[TargetWorkload, Left], Floats]
"""(n,) milli-GPU of nodes that a workload can't use."""


def least_growth(
    ask: GpuAsk, rooms: GpuRooms, workload: TargetWorkload, waste: Waste
) -> tuple[Floats, Ints]:
    """(n,) how much the waste grows with the ask on each node, and the GPU by which least."""
    nodes = np.arange(len(rooms.rows))
    shared = ask.devices == 1 and bool((ask.milli < WHOLE).any())
    at, device = _distinct(rooms.parts, ask.milli) if shared else (nodes, None)
    after = _after(rooms.parts[at], ask, at, device)
    both = Left(
        np.concatenate((rooms.rows, rooms.rows[at])),
        np.concatenate((rooms.cpu, rooms.cpu[at] - ask.cpu)),
        np.concatenate((rooms.memory, rooms.memory[at] - ask.memory)),
        Parts(workload, np.concatenate((rooms.parts, after))),
    )
    wasted = waste(workload, both)
    growth = (wasted[len(nodes) :] - wasted[at]).round(DECIMALS)
    if device is None:
        return growth, np.full(len(nodes), ANY_DEVICE, dtype=np.int64)
    return _best(len(nodes), at, device, growth)


def _after(parts: Floats, ask: GpuAsk, at: Ints, device: Ints | None) -> Floats:
    """(p, devices) what is free once the ask has its part of ``device``, or its emptiest GPUs."""
    if device is not None:
        parts[np.arange(len(at)), device] -= ask.milli[at]
        return parts
    emptiest_last: Floats = np.sort(parts, axis=1)
    emptiest_last[:, parts.shape[1] - ask.devices :] -= ask.milli[at, None]
    return emptiest_last


def sigmoid_levels(growth: Floats) -> Floats:
    """Levels 0 to 100 of the growth in milli."""
    return np.asarray(np.floor(np.round(LEVELS / (1.0 + np.exp(growth / 1000.0)), 9)))


def growing_least(workload: TargetWorkload, waste: Waste) -> Callable[[GpuAsk, GpuRooms], Scores]:
    """The score by a measure of waste for a target workload."""

    def score(ask: GpuAsk, rooms: GpuRooms) -> Scores:
        growth, device = least_growth(ask, rooms, workload, waste)
        return Scores(sigmoid_levels(growth), device)

    return score


def _distinct(parts: Floats, milli: Floats) -> tuple[Ints, Ints]:
    """(pairs,) nodes and GPUs with room for ``milli``, of equal GPUs of a node only the first."""
    equal = parts[:, :, None] == parts[:, None, :]
    first = equal.argmax(axis=2) == np.arange(parts.shape[1])
    at, device = np.nonzero(first & (parts >= milli[:, None]))
    return at, device


def _best(nodes: int, at: Ints, device: Ints, growth: Floats) -> tuple[Floats, Ints]:
    """The least growth of every node, and the first GPU that has it; ``at`` is ascending."""
    order = np.lexsort((device, growth, at))
    first = order[np.unique(at[order], return_index=True)[1]]
    least, chosen = np.full(nodes, np.inf), np.full(nodes, ANY_DEVICE, dtype=np.int64)
    least[at[first]], chosen[at[first]] = growth[first], device[first]
    return least, chosen
