"""Until when is a running gang safe from eviction, and from when may a gang evict?

A gang that started is protected for a minimum runtime. Against preemption (inside its queue) it is
the first one set on the way from its queue to the root. Against reclaim (by another queue) it
depends on ``Rules.min_runtime_method``: *queue* does the same; *lca* starts at the victim's
ancestor just below the lowest ancestor it shares with the reclaimer, so that queues agree among
siblings on what they grant each other. Without any on the way the default of the rules holds.

A protected gang may still lose the pods above the floor of each of its leaves.

A gang with a preemption delay evicts nobody until the delay has passed since it was created or
lost a pod. Times and durations are in seconds.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from kai_py.policy.fairness_rules import FairnessRules, MinRuntimeMethod
from kai_py.policy.queue_usage import shared_depth
from kai_py.snapshot.resources import Floats
from kai_py.snapshot.tables.queue_tree import QueueTable
from kai_py.snapshot.tables.queues import QueueInfo


def min_runtimes(queues: Iterable[QueueInfo], rules: FairnessRules) -> tuple[float, ...]:
    """Every time above 0 for which a gang of some queue is safe from anybody."""
    found = {rules.default_preempt_min_runtime: None, rules.default_reclaim_min_runtime: None}
    for queue in queues:
        found.update(
            {queue.preempt_min_runtime or 0.0: None, queue.reclaim_min_runtime or 0.0: None}
        )
    return tuple(runtime for runtime in found if runtime > 0)


def preempt_min_runtime(queues: QueueTable, rules: FairnessRules) -> Floats:
    """(queues,) how long a gang of each queue is safe from preemption."""
    return _inherited(queues, queues.preempt_min_runtime, rules.default_preempt_min_runtime)


def reclaim_min_runtime(queues: QueueTable, reclaimer: int, rules: FairnessRules) -> Floats:
    """(queues,) how long a gang of each queue is safe from the queue ``reclaimer``."""
    runtime = _inherited(queues, queues.reclaim_min_runtime, rules.default_reclaim_min_runtime)
    if rules.min_runtime_method is MinRuntimeMethod.QUEUE:
        return runtime
    level = np.minimum(shared_depth(queues, reclaimer), queues.depth)
    answering = np.take_along_axis(queues.path, level[:, None].astype(np.intp), axis=1)[:, 0]
    return runtime[answering]


def within_min_runtime(started: float, min_runtime: float, now: float) -> bool:
    """Whether a gang that ``started`` then (NaN: never) is still safe."""
    return now < started + min_runtime


@dataclass(frozen=True, slots=True)
class PreemptionDelay:
    """A gang may not evict anybody before ``until``."""

    delay: float
    until: float


def preemption_delay(
    created: float, last_evicted: float | None, delay: float, now: float
) -> PreemptionDelay | None:
    """None once the gang may evict others."""
    until = max(created, created if last_evicted is None else last_evicted) + delay
    return PreemptionDelay(delay, until) if now < until else None


def _inherited(queues: QueueTable, own: Floats, default: float) -> Floats:
    """(queues,) each queue's own value, else the nearest above it, else the default."""
    values = own.copy()
    for level in list(queues.levels())[1:]:
        above = values[queues.parent[level]]
        values[level] = np.where(np.isnan(own[level]), above, own[level])
    return np.where(np.isnan(values), default, values)
