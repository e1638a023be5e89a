"""A score and an action, added to kai-py by the entry points in pyproject.toml.

placement: {scores: [{name: most-free, weight: 2}, {name: best-fit}]}
extraActions: [overtime]
"""

from collections.abc import Sequence

import numpy as np

from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.state.assignment import Evicted
from kai_py.policy.score.node_capacity import (
    WHOLE_GPU,
    GpuRequest,
    NodeCapacity,
    NodeScores,
    tightest_gpu,
)
from kai_py.snapshot.gangs import Gang


def most_free(request: GpuRequest, capacity: NodeCapacity) -> NodeScores:
    """100 where all GPUs of a node are free, 0 where none is; the fullest GPU that has enough."""
    free = capacity.free_milli.sum(axis=1) / WHOLE_GPU
    part = free / np.maximum(capacity.devices, 1)
    return NodeScores(np.floor(100.0 * part), tightest_gpu(request, capacity))


def overtime(state: CycleState, _pending: Sequence[Gang]) -> None:
    """Evict gangs that have run for twice the time that their owner says they need."""
    for gang in state.snapshot.gangs.values():
        expected = gang.expected_runtime
        if expected is None or not gang.preemptible:
            continue
        if state.snapshot.now - gang.started < 2 * expected:
            continue
        reason = f"the gang has run for more than twice the {expected:g} s that it was to run"
        for member in gang.bound:
            if member.pod.uid not in state.statement.evicted:
                state.statement.evict(Evicted(member, gang, Action.STALE, gang, reason))
