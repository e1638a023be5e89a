"""Whether to evict now: not while waiting for the victims to end costs less than what they lose.

    cost of evicting at t = (t - now) x what is lacking           (part of the cluster)
                          + lost work of the victims that still run at t
    evict now, unless it costs less at a later moment: the end of a victim, or its next checkpoint

That is the ski rental problem with known ends. What is lacking while a gang waits to reclaim is
what its queue lacks of its fair share, as far as the victims release it: forty small pods that wait
may cost a large gang, one may not. For other gangs it is what they request.

No wait is without bound: no gang preempts later than its patience allows, none reclaims later than
after four times its patience, and moments beyond that are not considered. Where an end is unknown,
pods are expected to run for as long again as they have run, and waited for until the patience ends.
Services do not wait, and nothing waits for their end. O(moments x pods).
"""

import math
from collections.abc import Sequence

import numpy as np

from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.victims.lost_work import lost_work, part_of_cluster
from kai_py.plan.victims.units import VictimUnit
from kai_py.policy.lost_work import next_checkpoint
from kai_py.policy.reclaim_rules import compared_rows
from kai_py.policy.runtime_history import is_service
from kai_py.snapshot.gangs import Gang, Member

RECLAIM_PATIENCE = 4
"""Times its patience that a gang waits to reclaim what is known to end, at most."""

MAX_MOMENTS = 64
"""The first moments that are considered, and the last."""


def postponed_until(
    state: CycleState,
    gang: Gang,
    members: Sequence[Member],
    units: Sequence[VictimUnit],
    action: Action,
) -> float | None:
    """When the answer may differ, seconds since the epoch; None if ``units`` may be evicted now.

    ``members``: the pods of ``gang`` that they are evicted for, which count as placed.
    """
    rules, now = state.loss_rules, state.snapshot.now
    if not rules.by_loss or not rules.patience:
        return None
    if not units or is_service(gang) or any(is_service(unit.gang) for unit in units):
        return None
    ends = [state.expected_ends.end_of(unit.gang, m) for unit in units for m in unit.members]
    any_unknown, latest = math.isinf(max(ends)), gang.waiting_since + rules.patience
    if action is Action.RECLAIM and not any_unknown:
        latest += (RECLAIM_PATIENCE - 1) * rules.patience
    if latest <= now:
        return None
    lost, lacking = _lost_at(state, units, now), _lacking(state, gang, members, units, action)
    if any_unknown:
        longest = max(now - m.bound_since for unit in units for m in unit.members)
        remaining = max(latest - now, longest + rules.restart_cost)
        return latest if lost > lacking * remaining else None
    moments = sorted({*(max(end, now) for end in ends), *_checkpoints(units, now)})
    considered = {at for at in (*moments[:MAX_MOMENTS], moments[-1]) if at <= latest}
    if all(lost <= (at - now) * lacking + _lost_at(state, units, at) for at in considered):
        return None
    return min(latest, max(moments[0], now + 1.0))


def _checkpoints(units: Sequence[VictimUnit], now: float) -> set[float]:
    """When units next save their work."""
    found = (next_checkpoint(unit.gang, m, now) for unit in units for m in unit.members)
    return {at for at in found if at is not None}


def _lost_at(state: CycleState, units: Sequence[VictimUnit], at: float) -> float:
    """Seconds of the whole cluster that evicting at ``at`` those that still run destroys."""
    return sum(lost_work(state, unit, at) for unit in units)


def _lacking(
    state: CycleState,
    gang: Gang,
    members: Sequence[Member],
    units: Sequence[VictimUnit],
    action: Action,
) -> float:
    """The part of the cluster that is missing while the gang waits."""
    quota, cost = state.quota, state.quota.cost_of(members)
    if action is not Action.RECLAIM:
        return part_of_cluster(state, cost)
    usage, queue = quota.usage, quota.queues.positions[gang.queue]
    released = sum((quota.cost_of(unit.members) for unit in units), np.zeros(len(cost)))
    # The gang counts as placed, so what the queue lacks without it is more by its cost.
    lacking = np.maximum(usage.fair[:, queue] - usage.allocated[:, queue], 0.0) + cost
    counted = np.zeros(len(cost))
    rows = compared_rows(cost, quota.rules)
    counted[rows] = np.minimum(lacking, np.maximum(released, cost))[rows]
    return part_of_cluster(state, counted)
