"""Minimum runtimes that protect running gangs.

A gang that started is protected for a minimum runtime. Against preemption (inside its queue) it is
the first one set on the path from its queue to the root. Against reclaim (by another queue) it
depends on ``FairnessRules.min_runtime_method``: *queue* does the same; *lca* starts at the victim's
ancestor just below the lowest ancestor it shares with the reclaimer, so that siblings agree on what
they grant each other. Where none is set on the path the default of the rules applies. A protected
gang may still lose its elastic pods.

Times and durations are in seconds.
"""

from collections.abc import Iterable

import numpy as np

from kai_py.api.choices import MinRuntimeMethod
from kai_py.policy.fairness_rules import FairnessRules
from kai_py.policy.queue_usage import shared_depth
from kai_py.snapshot.resources import Floats
from kai_py.snapshot.tables.queue_tree import QueueTable
from kai_py.snapshot.tables.queues import QueueInfo


def min_runtimes(queues: Iterable[QueueInfo], rules: FairnessRules) -> tuple[float, ...]:
    """Every duration above 0 for which a gang of some queue is protected from any other."""
    runtimes = {rules.default_preempt_min_runtime: None, rules.default_reclaim_min_runtime: None}
    for queue in queues:
        runtimes.update(
            {queue.preempt_min_runtime or 0.0: None, queue.reclaim_min_runtime or 0.0: None}
        )
    return tuple(runtime for runtime in runtimes if runtime > 0)


def preempt_min_runtime(queues: QueueTable, rules: FairnessRules) -> Floats:
    """(queues,) how long a gang of each queue is protected from preemption."""
    return _inherited(queues, queues.preempt_min_runtime, rules.default_preempt_min_runtime)


def reclaim_min_runtime(queues: QueueTable, reclaimer: int, rules: FairnessRules) -> Floats:
    """(queues,) how long a gang of each queue is protected from the queue ``reclaimer``."""
    runtime = _inherited(queues, queues.reclaim_min_runtime, rules.default_reclaim_min_runtime)
    if rules.min_runtime_method is MinRuntimeMethod.QUEUE:
        return runtime
    level = np.minimum(shared_depth(queues, reclaimer), queues.depth)
    deciding = np.take_along_axis(queues.path, level[:, None].astype(np.intp), axis=1)[:, 0]
    return runtime[deciding]


def within_min_runtime(started: float, min_runtime: float, now: float) -> bool:
    """Whether a gang that ``started`` then (NaN: never) is still protected."""
    # In this form a comparison with NaN means not protected.
    return now < started + min_runtime


def _inherited(queues: QueueTable, own: Floats, default: float) -> Floats:
    """(queues,) each queue's own value, else that of its nearest ancestor, else the default."""
    values = own.copy()
    for level in list(queues.levels())[1:]:
        above = values[queues.parent[level]]
        values[level] = np.where(np.isnan(own[level]), above, own[level])
    return np.where(np.isnan(values), default, values)
