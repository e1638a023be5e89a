"""What does a cycle tell of every queue?"""

from collections.abc import Sequence
from math import isnan

import numpy as np

from kai_py.plan.plan import QueueShare
from kai_py.plan.state.eviction_limits import Spared
from kai_py.plan.state.queues import Quota
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.resources import Floats


def queue_shares(quota: Quota, pending: Sequence[Gang], spared: Spared) -> tuple[QueueShare, ...]:
    """Every queue as this cycle saw it, by name; includes what the cycle placed."""
    waiting: dict[str, int] = {}
    for gang in pending:
        waiting[gang.queue] = waiting.get(gang.queue, 0) + 1
    queues, standing, shares = quota.queues, quota.standing, quota.shares
    deserved, maximum = _by_queue(quota, queues.deserved), _by_queue(quota, queues.max)
    fair, allocated = _by_queue(quota, shares.fair), _by_queue(quota, standing.allocated)
    demand, fixed = _by_queue(quota, quota.demand), _by_queue(quota, standing.non_preemptible)
    cut = _by_queue(quota, np.where(shares.scaled, shares.deserved, np.nan))
    return tuple(
        QueueShare(
            queue=name,
            deserved=deserved[q],
            maximum=maximum[q],
            fair_share=fair[q],
            allocated=allocated[q],
            requested=demand[q],
            pending_gangs=waiting.get(name, 0),
            problems=tuple(each for each in quota.problems if each.queue == name),
            parent=queues.names[queues.parent[q]] if queues.depth[q] else "",
            cut={name: left for name, left in cut[q].items() if not isnan(left)},
            non_preemptible=fixed[q],
            priority=int(queues.priority[q]),
            usage=quota.usage.get(name),
            evictions=spared.remembered(name),
        )
        for name, q in sorted(queues.positions.items())
    )


def _by_queue(quota: Quota, amounts: Floats) -> list[dict[str, float]]:
    """Of each queue, its amounts (resources, queues) by name."""
    return [dict(zip(quota.resources, column, strict=True)) for column in amounts.T.tolist()]
