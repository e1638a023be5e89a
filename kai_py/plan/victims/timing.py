"""Whether to evict victims now, or to wait, because that costs less than the work they would lose.

    cost of evicting at t = (t - now) x the part of the cluster that is lacking until then
                          + lost work of the victims that still run at t
    evict now, unless it costs less at a later moment: the end of a victim, or its next checkpoint

This is the ski rental problem with known ends. What is lacking while a gang waits to reclaim is the
amount by which its queue is below its fair share, as far as its gangs fit whole into that and the
victims release it, minus the amount by which the victims' queues would then be below theirs: below
what they deserve, if the reclaimer's queue does not exceed that and the victims end too late for
it. Of what a queue lacks beyond what it deserves a quarter counts while the queue has had its share
over time; if it went without a considerable part of that, all that it lacks counts twice. So forty
small pods that wait may be worth the eviction of a large gang, and one of them may not. For other
actions it is what the gang requests.

Meanwhile other pods of queues above their fair shares end. What is lacking becomes less by what
they release, and once that is enough nothing has to be evicted.

Where an end is unknown, pods are expected to run for as long again as they have run so far, and not
to end before the gang's patience does. If the victims lose more than the wait costs until then, the
gang waits until that has cost as much as they lose: the deterministic rule for ski rental.

The wait is bounded by four times the gang's patience: for preempt, from when it began to wait; for
reclaim, from when it was due (``policy.served_share``). Until then later moments
count, too, as other pods may end meanwhile: a small pod does not evict a large gang at once because
that ends later. After it known ends count for one more patience, so that no pod is evicted just
before its end. A relocation whose victims all have known ends has no such bound, as no gang is
entitled to it. Services do not wait, and no gang waits for the end of a service. O(moments x pods).
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
from kai_py.snapshot.resources import Floats

MAX_PATIENCE = 4
"""Multiples of its patience for which a gang waits to reclaim or preempt, at most."""

SERVED_WEIGHT = 0.25
"""The part that counts of what a queue lacks beyond what it deserves while it has been served."""

NEGLECTED = 0.05
"""Part of its fair share that a queue has to go without to count as neglected."""

NEGLECTED_WEIGHT = 2.0
"""How often what a neglected queue lacks counts."""

RECONSIDERED = 60.0
"""Seconds after which what the wait has cost is compared again, at least."""

MAX_MOMENTS = 64
"""How many moments are considered: the first ones, and the very last."""


def postponed_until(
    state: CycleState,
    gang: Gang,
    members: Sequence[Member],
    units: Sequence[VictimUnit],
    action: Action,
) -> float | None:
    """When to weigh again, seconds since the epoch; None if ``units`` may be evicted now.

    ``members``: the pods of ``gang`` for which they are evicted; the statement has placed these.
    """
    rules, now = state.loss_rules, state.snapshot.now
    if not rules.by_loss or not rules.patience:
        return None
    if not units or is_service(gang) or any(is_service(unit.gang) for unit in units):
        return None
    ends = [state.expected_ends.end_of(unit.gang, m) for unit in units for m in unit.members]
    any_unknown = math.isinf(max(ends))
    since, bound = _wait(state, gang, action, is_known=not any_unknown)
    latest = bound
    if not any_unknown and bound <= now < bound + rules.patience:
        latest = bound + rules.patience
    if latest <= now:
        return None
    lost = _lost_at(state, units, now)
    lacking = _least_lacking(state, members, units, action) if any_unknown else 0.0
    longest = max(now - m.bound_since for unit in units for m in unit.members)
    if not lacking or lost > lacking * (longest + rules.restart_cost):
        in_time = max(ends) <= max(latest, now + rules.patience)
        lacking = _lacking(state, gang, members, units, action, in_time=in_time)
    if any_unknown:
        least = max(since + rules.patience - now, longest + rules.restart_cost)
        paid = now if lost <= lacking * least else _paid(since, lost, lacking)
        return min(latest, max(paid, now + RECONSIDERED)) if paid > now else None
    moments = sorted({*(max(end, now) for end in ends), *_checkpoints(units, now)})
    horizon = latest if bound <= now else math.inf
    considered = {at for at in (*moments[:MAX_MOMENTS], moments[-1]) if at <= horizon}
    if lacking and all(
        lost <= (at - now) * lacking + _lost_at(state, units, at) for at in considered
    ):
        relief = _relief(state, gang, members, units) if action is Action.RECLAIM else []
        # Once others have released enough, no pod is evicted.
        enough = relief[-1][0] if relief and not relief[-1][1] else math.inf
        losses = {at: _lost_at(state, units, at) for at in considered if at < enough}
        if math.isfinite(enough):
            losses[enough] = 0.0
        if all(lost <= _waited(now, at, relief) * lacking + later for at, later in losses.items()):
            return None
    return min(latest, max(moments[0], now + 1.0))


def _wait(state: CycleState, gang: Gang, action: Action, *, is_known: bool) -> tuple[float, float]:
    """Since when the gang waits, and until when at most, seconds since the epoch.

    ``is_known``: whether the ends of all victims are.
    """
    patience, since = state.loss_rules.patience, gang.waiting_since
    if action is Action.CONSOLIDATE:
        return since, math.inf if is_known else since + patience
    if action is Action.RECLAIM:
        since = state.due.since(gang, state.snapshot.now)
    return since, since + MAX_PATIENCE * patience


def _paid(since: float, lost: float, lacking: float) -> float:
    """When a wait has cost as much as the victims lose, seconds since the epoch."""
    return since + lost / lacking if lacking else math.inf


def _checkpoints(units: Sequence[VictimUnit], now: float) -> set[float]:
    """When the pods of ``units`` next save their work, seconds since the epoch."""
    found = (next_checkpoint(unit.gang, m, now) for unit in units for m in unit.members)
    return {at for at in found if at is not None}


def _lost_at(state: CycleState, units: Sequence[VictimUnit], at: float) -> float:
    """``lost_work`` of evicting, at ``at``, the victims that still run then."""
    return sum(lost_work(state, unit, at) for unit in units)


def _least_lacking(
    state: CycleState, members: Sequence[Member], units: Sequence[VictimUnit], action: Action
) -> float:
    """A cheap lower bound of ``_lacking``: only resources that no victim's queue lacks count."""
    usage, least = state.quota.usage, state.quota.cost_of(members)
    if action is Action.RECLAIM:
        for queue in {usage.queues.positions[unit.gang.queue] for unit in units}:
            least = np.where(usage.allocated[:, queue] < usage.fair[:, queue], 0.0, least)
        least = least * SERVED_WEIGHT
    return part_of_cluster(state, least)


def _lacking(
    state: CycleState,
    gang: Gang,
    members: Sequence[Member],
    units: Sequence[VictimUnit],
    action: Action,
    *,
    in_time: bool,
) -> float:
    """The part of the cluster, 0 to 1, that is lacking while the gang waits.

    ``in_time``: whether ``units`` end before the gang stops waiting for them.
    """
    quota, cost = state.quota, state.quota.cost_of(members)
    if action is not Action.RECLAIM:
        return part_of_cluster(state, cost)
    queue = quota.queues.positions[gang.queue]
    fair, allocated, deserved = _columns(state, queue)
    needed: list[float] = cost.tolist()
    compared = compared_rows(cost, quota.rules)
    rows: list[int] = compared.tolist()
    borrows = any(is_above(allocated[row], deserved[row]) for row in rows)
    by_share = in_time or borrows
    taken = _taken_by_queue(state, units)
    short = {q: _short(state, q, by_share=by_share) for q in taken}
    counted = np.zeros(len(cost))
    for row in rows:
        # The gang is placed in the trial; without it, its queue would lack its cost as well.
        lacking = max(fair[row] - allocated[row], 0.0) + needed[row]
        released = sum([amounts[row] for amounts in taken.values()])
        gained = min(lacking, max(released, needed[row]))
        denied = sum([min(short[q][row], amounts[row]) for q, amounts in taken.items()])
        counted[row] = max(gained - denied, 0.0)
    if not state.served.is_served(queue, compared, tolerated=NEGLECTED):
        counted *= NEGLECTED_WEIGHT
    elif borrows and state.served.is_served(queue, compared):
        counted *= SERVED_WEIGHT
    return part_of_cluster(state, counted)


def _relief(
    state: CycleState, gang: Gang, members: Sequence[Member], units: Sequence[VictimUnit]
) -> list[tuple[float, float]]:
    """When pods beside ``units`` end, and the part of what is lacking that is still then.

    The last part is 0 if enough of them are expected to end. Pods of queues above their fair shares
    count, up to what these have above them, if one of the gang's pods fits in place of each; queues
    get what they release by what they lack, and the gang's by the size of its request.
    """
    cost, usage = state.quota.cost_of(members), state.quota.usage
    parts = np.divide(cost, usage.total, out=np.zeros_like(cost), where=usage.total > 0)
    row = int(parts.argmax())
    queue, request = state.quota.queues.positions[gang.queue], float(cost[row])
    allocated = usage.allocated[row].copy()
    for other, amounts in _taken_by_queue(state, units).items():
        allocated[state.quota.queues.ancestors(other)] += amounts[row]
    allocated[state.quota.queues.ancestors(queue)] -= request
    is_leaf = state.quota.queues.is_leaf
    lacking = np.where(is_leaf, np.maximum(_due(state)[row] - allocated, 0.0), 0.0)
    above: list[float] = np.maximum(allocated - usage.fair[row], 0.0).tolist()
    own = max(float(lacking[queue]), request)
    total, pod, freed = max(float(lacking.sum()), own), _amount_of(state, members[0], row), 0.0
    found = list[tuple[float, float]]()
    for end in state.next_ends:
        amount = min(_amount_of(state, end.member, row), above[end.queue])
        if amount < pod or end.member.pod.uid in state.statement.evicted:
            continue
        above[end.queue] -= amount
        freed += amount
        requests = math.floor(freed * own / total / request + 1e-9)
        left = 0.0 if freed >= total - 1e-9 else max(1.0 - requests * request / own, 0.0)
        found.append((end.at, left))
        if not left:
            break
    return found


def _amount_of(state: CycleState, member: Member, row: int) -> float:
    return float(state.quota.cost(member.charge)[row])


def _waited(now: float, until: float, relief: Sequence[tuple[float, float]]) -> float:
    """Seconds from ``now`` to ``until``, each by the part that is still lacking then."""
    waited, since, part = 0.0, now, 1.0
    for at, left in relief:
        if at >= until:
            break
        waited, since, part = waited + (at - since) * part, at, left
    return waited + (until - since) * part


def _due(state: CycleState) -> Floats:
    """(quota resources, queues) what queues could have of their fair shares, by whole gangs."""
    fair, due = state.quota.usage.fair, state.served.due
    return due if due.shape == fair.shape else fair


def _columns(state: CycleState, queue: int) -> tuple[list[float], list[float], list[float]]:
    """What is due to a queue, allocated and deserved, (quota resources,) each."""
    usage = state.quota.usage
    fair: list[float] = _due(state)[:, queue].tolist()
    return fair, usage.allocated[:, queue].tolist(), usage.queues.deserved[:, queue].tolist()


def _short(state: CycleState, queue: int, *, by_share: bool) -> list[float]:
    """(quota resources,) by how much a queue is below its fair share.

    Without ``by_share``: below the part of it that the queue deserves.
    """
    fair, allocated, deserved = _columns(state, queue)
    entitled = fair if by_share else list(map(min, fair, deserved))
    return [max(amount - has, 0.0) for amount, has in zip(entitled, allocated, strict=True)]


def _taken_by_queue(state: CycleState, units: Sequence[VictimUnit]) -> dict[int, list[float]]:
    """By position of a queue, (quota resources,) what it loses if ``units`` are evicted."""
    taken = dict[int, list[float]]()
    for unit in units:
        queue = state.quota.queues.positions[unit.gang.queue]
        cost, before = state.quota.cost_of(unit.members).tolist(), taken.get(queue)
        taken[queue] = cost if before is None else list(map(add, before, cost))
    return taken
