"""The shares of every queue, as a plan reports them."""

from collections.abc import Mapping
from math import isnan

import numpy as np

from kai_py.plan.extensions import step_key
from kai_py.plan.observations import QueueShare
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.state.queues import Quota
from kai_py.snapshot.resources import Floats


def queue_shares(
    state: CycleState,
    pending_by_queue: Mapping[str, int],
    spares: Mapping[str, tuple[str, ...]],
) -> tuple[QueueShare, ...]:
    """Every queue as this cycle saw it, by name; includes what the cycle placed.

    ``pending_by_queue``: how many gangs are pending; ``spares``: nodes by queue. A queue for which
    this fails is left out.
    """
    quota = state.quota
    queues, usage, divided = quota.queues, quota.usage, quota.shares
    deserved = _amounts_by_queue(quota, queues.deserved)
    maximum = _amounts_by_queue(quota, queues.max)
    fair = _amounts_by_queue(quota, divided.fair)
    allocated = _amounts_by_queue(quota, usage.allocated)
    demand = _amounts_by_queue(quota, quota.demand)
    infeasible = _amounts_by_queue(quota, quota.infeasible)
    non_preemptible = _amounts_by_queue(quota, usage.non_preemptible)
    owed = _amounts_by_queue(quota, usage.owed)
    owed_non_preemptible = _amounts_by_queue(quota, usage.owed_non_preemptible)
    scaled = _amounts_by_queue(quota, np.where(divided.scaled, divided.deserved, np.nan))

    def share_of(name: str, q: int) -> QueueShare:
        return QueueShare(
            queue=name,
            deserved=deserved[q],
            maximum=maximum[q],
            fair_share=fair[q],
            allocated=allocated[q],
            requested=demand[q],
            infeasible=_nonzero(infeasible[q]),
            pending_gangs=pending_by_queue.get(name, 0),
            problems=tuple(each for each in quota.problems if each.queue == name),
            parent=queues.names[queues.parent[q]] if queues.depth[q] else "",
            scaled_deserved={key: amount for key, amount in scaled[q].items() if not isnan(amount)},
            non_preemptible=non_preemptible[q],
            owed=_nonzero(owed[q]),
            owed_non_preemptible=_nonzero(owed_non_preemptible[q]),
            priority=int(queues.priority[q]),
            spares=spares.get(name, ()),
            is_open=all(queues.namespaces[above] is None for above in queues.ancestry[q]),
            past_usage=quota.past_usage.get(name),
            evictions=state.eviction_limits.counted_evictions(name),
        )

    shares = []
    for name, q in sorted(queues.positions.items()):
        try:
            shares.append(share_of(name, q))
        except Exception as error:
            state.turns.fail_turn(step_key("queue shares"), error)
    return tuple(shares)


def _nonzero(amounts: Mapping[str, float]) -> dict[str, float]:
    return {name: amount for name, amount in amounts.items() if amount}


def _amounts_by_queue(quota: Quota, amounts: Floats) -> list[dict[str, float]]:
    """For each queue its column of ``amounts`` (resources, queues), by resource name."""
    return [dict(zip(quota.resources, column, strict=True)) for column in amounts.T.tolist()]
