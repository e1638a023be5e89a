"""What does a cycle tell of every queue?"""

from collections.abc import Sequence

from kai_py.plan.decisions import QueueShare
from kai_py.plan.quota import Quota
from kai_py.plan.spared import Spared
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.resources import Floats


def queue_shares(quota: Quota, pending: Sequence[Gang], spared: Spared) -> tuple[QueueShare, ...]:
    """Every queue as this cycle saw it, by name; includes what the cycle placed."""
    waiting: dict[str, int] = {}
    for gang in pending:
        waiting[gang.queue] = waiting.get(gang.queue, 0) + 1
    queues, standing, shares = quota.queues, quota.standing, quota.shares
    return tuple(
        QueueShare(
            queue=name,
            deserved=_amounts(quota, queues.deserved[:, q]),
            maximum=_amounts(quota, queues.max[:, q]),
            fair_share=_amounts(quota, shares.fair[:, q]),
            allocated=_amounts(quota, standing.allocated[:, q]),
            requested=_amounts(quota, quota.demand[:, q]),
            pending_gangs=waiting.get(name, 0),
            problems=tuple(each for each in quota.problems if each.queue == name),
            parent=queues.names[queues.parent[q]] if queues.depth[q] else "",
            cut={
                resource: float(shares.deserved[row, q])
                for row, resource in enumerate(quota.resources)
                if shares.scaled[row, q]
            },
            non_preemptible=_amounts(quota, standing.non_preemptible[:, q]),
            priority=int(queues.priority[q]),
            usage=quota.usage.get(name),
            evictions=spared.remembered(name),
        )
        for name, q in sorted(queues.positions.items())
    )


def _amounts(quota: Quota, column: Floats) -> dict[str, float]:
    return {name: float(value) for name, value in zip(quota.resources, column, strict=True)}
