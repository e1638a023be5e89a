"""Whether to evict now: not while waiting for the victims to end costs less than what they lose.

    cost of evicting at t = (t - now) x what is lacking           (part of the cluster)
                          + lost work of the victims that still run at t
    evict now, unless it costs less at a later moment: the end of a victim, or its next checkpoint

That is the ski rental problem with known ends. What is lacking while a gang waits to reclaim is
what its queue lacks of its fair share, as far as the victims release it, without what their own
queues would lack then: of what they deserve, or where the reclaimer's queue gets more than that, of
their fair shares. So forty small pods that wait may cost a large gang, one may not. For other gangs
it is what they request.

No gang preempts later than its patience allows, none reclaims later than after four times its
patience since it was due (``policy.served_share``), and moments beyond that are not considered. For
one patience more, known ends are that are no farther away than a patience, so that nothing is
evicted just before its end. A relocation is due to no gang, so one whose pods are all known to end
is weighed however long the gang has waited. Where an end is unknown, pods are expected to run for
as long again as they have run, and waited for until the patience ends; a reclaim by which the
queues of the victims would lack as much as the reclaimer gains waits for four times that.
Services do not wait, and nothing waits for their end. O(moments x pods).
"""

import math
from collections.abc import Sequence
from operator import add

import numpy as np

from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.victims.order import lost_work, part_of_cluster
from kai_py.plan.victims.units import VictimUnit
from kai_py.policy.lost_work import next_checkpoint
from kai_py.policy.queue_usage import is_above
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
    any_unknown = math.isinf(max(ends))
    lost = _lost_at(state, units, now)
    lacking = _least_lacking(state, members, units, action) if any_unknown else 0.0
    longest = max(now - m.bound_since for unit in units for m in unit.members)
    if not lacking or lost > lacking * (longest + rules.restart_cost):
        lacking = _lacking(state, gang, members, units, action)
    latest = _latest(state, gang, action, is_known=not any_unknown, lacking=lacking)
    if not any_unknown and now < latest + rules.patience:
        latest = max(latest, min(now, latest) + rules.patience)
    if latest <= now:
        return None
    if any_unknown:
        remaining = max(latest - now, longest + rules.restart_cost)
        return latest if lost > lacking * remaining else None
    moments = sorted({*(max(end, now) for end in ends), *_checkpoints(units, now)})
    considered = {at for at in (*moments[:MAX_MOMENTS], moments[-1]) if at <= latest}
    if lacking and all(
        lost <= (at - now) * lacking + _lost_at(state, units, at) for at in considered
    ):
        return None
    return min(latest, max(moments[0], now + 1.0))


def _latest(
    state: CycleState, gang: Gang, action: Action, *, is_known: bool, lacking: float
) -> float:
    """Until when the gang waits at most; ``is_known``: when its victims end."""
    patience = state.loss_rules.patience
    if action is Action.CONSOLIDATE and is_known:
        return math.inf
    if action is not Action.RECLAIM:
        return gang.waiting_since + patience
    since = state.due.since(gang, state.snapshot.now)
    return since + (RECLAIM_PATIENCE if is_known or not lacking else 1) * patience


def _checkpoints(units: Sequence[VictimUnit], now: float) -> set[float]:
    """When units next save their work."""
    found = (next_checkpoint(unit.gang, m, now) for unit in units for m in unit.members)
    return {at for at in found if at is not None}


def _lost_at(state: CycleState, units: Sequence[VictimUnit], at: float) -> float:
    """Seconds of the whole cluster that evicting at ``at`` those that still run destroys."""
    return sum(lost_work(state, unit, at) for unit in units)


def _least_lacking(
    state: CycleState, members: Sequence[Member], units: Sequence[VictimUnit], action: Action
) -> float:
    """A bound of ``_lacking`` from below that costs little, by what no queue of victims lacks."""
    usage, least = state.quota.usage, state.quota.cost_of(members)
    if action is Action.RECLAIM:
        for queue in {usage.queues.positions[unit.gang.queue] for unit in units}:
            least = np.where(usage.allocated[:, queue] < usage.fair[:, queue], 0.0, least)
    return part_of_cluster(state, least)


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
    queue = quota.queues.positions[gang.queue]
    fair, allocated, deserved = _columns(state, queue)
    needed: list[float] = cost.tolist()
    rows: list[int] = compared_rows(cost, quota.rules).tolist()
    borrows = any(is_above(allocated[row], deserved[row]) for row in rows)
    taken = _taken_by_queue(state, units)
    short = {q: _short(state, q, borrows=borrows) for q in taken}
    counted = np.zeros(len(cost))
    for row in rows:
        # The gang counts as placed, so what the queue lacks without it is more by its cost.
        lacking = max(fair[row] - allocated[row], 0.0) + needed[row]
        released = sum([amounts[row] for amounts in taken.values()])
        gained = min(lacking, max(released, needed[row]))
        denied = sum([min(short[q][row], amounts[row]) for q, amounts in taken.items()])
        counted[row] = max(gained - denied, 0.0)
    return part_of_cluster(state, counted)


def _columns(state: CycleState, queue: int) -> tuple[list[float], list[float], list[float]]:
    """(quota resources,) each: a queue's fair share, what it has allocated and what it deserves."""
    usage = state.quota.usage
    fair: list[float] = usage.fair[:, queue].tolist()
    return fair, usage.allocated[:, queue].tolist(), usage.queues.deserved[:, queue].tolist()


def _short(state: CycleState, queue: int, *, borrows: bool) -> list[float]:
    """(quota resources,) what a queue lacks of its due; ``borrows``: those who take it borrow."""
    fair, allocated, deserved = _columns(state, queue)
    due = fair if borrows else list(map(min, fair, deserved))
    return [max(amount - has, 0.0) for amount, has in zip(due, allocated, strict=True)]


def _taken_by_queue(state: CycleState, units: Sequence[VictimUnit]) -> dict[int, list[float]]:
    """By queue, (quota resources,) what evicting ``units`` takes from it."""
    taken = dict[int, list[float]]()
    for unit in units:
        queue = state.quota.queues.positions[unit.gang.queue]
        cost, before = state.quota.cost_of(unit.members).tolist(), taken.get(queue)
        taken[queue] = cost if before is None else list(map(add, before, cost))
    return taken
