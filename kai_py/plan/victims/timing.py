"""Whether to evict victims now, or to wait for pods to end because that costs less.

    cost of evicting at t = (t - now) x lacking + lost work of the victims that still run at t
    lacking               = the part of the cluster, 0 to 1, that the preemptor goes without
    evict now, unless the cost is lower at the end of a victim or at its next checkpoint

Costs are in seconds of the whole cluster. This is the ski rental problem (waiting is the rent,
evicting the price) with ends that are known in advance. For preempt and consolidate, what the gang
requests is lacking. For reclaim, of each resource:

    gained  = by how much the queue is below its fair share, as far as its gangs fit into that whole
              and the victims release it
    denied  = by how much the eviction brings the victims' queues below their fair shares; or below
              what they deserve, if the reclaimer's queue stays within what it deserves and the
              victims end too late for it
    lacking = (gained - denied) x weight
    weight  = 2 if the queue was neglected: over time it went without a considerable part of its
              fair share (``policy.served_share``)
              1/4 if it was served and would have more than it deserves
              1 otherwise

So forty small pods that wait may be worth the eviction of a large gang, and one of them may not.
Other pods of queues above their fair shares end in the meantime, too: what they release is
subtracted from what is lacking (``_relief``), and once that is enough, nothing is evicted.

A pod whose end is unknown is expected to run for as long again as it has run, and at least until
the gang's patience (``LossRules.patience``) is over. If waiting that long costs less than what the
victims lose, the gang waits until its wait has cost as much as they lose, and then evicts them: the
deterministic rule for ski rental. Before that, what is known counts: the next checkpoints, the ends
of the other victims, and what pods of other gangs release.

No gang waits longer than four times its patience: for preempt, since it began to wait; for reclaim,
since it was due (``policy.served_share``). After that, only ends that are known and at most one
more patience away are waited for, so that no pod is evicted just before its end. A relocation whose
victims all have known ends has no such bound, as no gang is entitled to it.
Services do not wait, and no gang waits for the end of a service. O(moments x pods).
"""

import math
from collections.abc import Sequence
from operator import add
from typing import NamedTuple

import numpy as np

from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.victims.eviction_cost import part_of_cluster
from kai_py.plan.victims.strategy import VictimStrategy
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
"""Weight of what a queue lacks that was served, if it would have more than it deserves."""

NEGLECTED = 0.05
"""Part of its fair share that a queue has to go without to count as neglected."""

NEGLECTED_WEIGHT = 2.0
"""Weight of what a neglected queue lacks."""

RECONSIDERED = 60.0
"""Seconds: a gang that waits for unknown ends is not considered again sooner."""

MAX_MOMENTS = 64
"""How many moments to evict at are compared: the first ones, and always the last."""


def postponed_until(strategy: VictimStrategy, units: Sequence[VictimUnit]) -> float | None:
    """Until when to wait before the costs are compared again; None to evict ``units`` now.

    Seconds since the epoch. The statement has placed the request for which they are evicted.
    """
    state, gang = strategy.state, strategy.gang
    rules, now = state.settings.loss_rules, state.snapshot.now
    if not rules.by_loss or not rules.patience or not units:
        return None
    if is_service(gang) or any(is_service(unit.gang) for unit in units):
        return None
    ends = [state.expected_ends.end_of(unit.gang, m) for unit in units for m in unit.members]
    wait = _wait(state, gang, strategy.action, last_end=max(ends))
    if wait.latest <= now:
        return None
    eviction, known_ends = _Eviction(strategy, units, ends), filter(math.isfinite, ends)
    moments = sorted({*(max(end, now) for end in known_ends), *_checkpoints(units, now)})
    if not _costs_least_now(eviction, wait, moments):
        again = max(moments[0], now + 1.0) if moments else now + RECONSIDERED
        return min(wait.latest, again)
    return _until_break_even(eviction, wait) if math.isinf(max(ends)) else None


class _Eviction(NamedTuple):
    """An eviction that is considered: of ``units``, for the request of ``strategy``.

    ``ends``: when each pod of ``units`` is expected to end, seconds since the epoch; inf: unknown.
    """

    strategy: VictimStrategy
    units: Sequence[VictimUnit]
    ends: Sequence[float]


class _Wait(NamedTuple):
    """Since when a gang waits, and until when at most, seconds since the epoch.

    ``bound``: where its patience ends; until ``latest`` it waits for ends that are known.
    """

    since: float
    bound: float
    latest: float


def _wait(state: CycleState, gang: Gang, action: Action, *, last_end: float) -> _Wait:
    """The wait of a gang; ``last_end``: of the victims, inf if any end is unknown."""
    patience = state.settings.loss_rules.patience
    now, since = state.snapshot.now, gang.waiting_since
    is_known = math.isfinite(last_end)
    if action is Action.CONSOLIDATE:
        bound = math.inf if is_known else since + patience
        return _Wait(since, bound, bound)
    if action is Action.RECLAIM:
        since = state.due.since(gang, now)
    bound = since + MAX_PATIENCE * patience
    extends = is_known and bound <= now < bound + patience
    return _Wait(since, bound, bound + patience if extends else bound)


def _until_break_even(eviction: _Eviction, wait: _Wait) -> float | None:
    """The answer if an end is unknown: when the wait will have cost as much as the victims lose.

    None if they lose no more than it would cost to wait until the gang's patience is over, and for
    as long again as the victim that has run longest.
    """
    state = eviction.strategy.state
    now, rules = state.snapshot.now, state.settings.loss_rules
    lost = _lost_at(eviction, now)
    longest = max(now - member.bound_since for unit in eviction.units for member in unit.members)
    least = _least_lacking(eviction)
    if least and lost <= least * (longest + rules.restart_cost):
        return None  # The same as below, without the cost of finding out all that is lacking.
    lacking = _lacking(eviction, wait)
    if lost <= lacking * max(wait.since + rules.patience - now, longest + rules.restart_cost):
        return None
    break_even = _break_even(wait.since, lost, lacking)
    return min(wait.latest, max(break_even, now + RECONSIDERED)) if break_even > now else None


def _costs_least_now(eviction: _Eviction, wait: _Wait, moments: Sequence[float]) -> bool:
    """Whether evicting now costs no more than at any of ``moments``, as far as ends are known."""
    strategy, state = eviction.strategy, eviction.strategy.state
    now, reclaims = state.snapshot.now, strategy.action is Action.RECLAIM
    if not moments and not (reclaims and state.next_ends):
        return True
    lost, lacking = _lost_at(eviction, now), _lacking(eviction, wait)
    if not lacking:
        return False
    horizon = wait.latest if wait.bound <= now else math.inf
    considered = {at for at in (*moments[:MAX_MOMENTS], *moments[-1:]) if at <= horizon}
    relief = _relief(eviction) if reclaims else []
    if relief and not relief[-1][1] and lost > _weighted_wait(now, relief[-1][0], relief) * lacking:
        return False  # Once others have released enough, no pod is evicted.
    return all(
        lost <= _weighted_wait(now, at, relief) * lacking + _lost_at(eviction, at)
        for at in considered
    )


def _break_even(since: float, lost: float, lacking: float) -> float:
    """When waiting since ``since`` has cost ``lost``, seconds since the epoch."""
    return since + lost / lacking if lacking else math.inf


def _checkpoints(units: Sequence[VictimUnit], now: float) -> set[float]:
    """When the pods of ``units`` next save their work, seconds since the epoch."""
    found = (next_checkpoint(unit.gang, m, now) for unit in units for m in unit.members)
    return {at for at in found if at is not None}


def _lost_at(eviction: _Eviction, at: float) -> float:
    """The lost work of evicting, at ``at``, the victims that still run then."""
    costs = eviction.strategy.pool.costs
    return sum(costs.lost_work_at(unit, at) for unit in eviction.units)


def _least_lacking(eviction: _Eviction) -> float:
    """A cheap lower bound of ``_lacking``: only resources that no victim's queue lacks count."""
    strategy, state = eviction.strategy, eviction.strategy.state
    usage, least = state.quota.usage, state.quota.cost_of(strategy.request.members)
    if strategy.action is Action.RECLAIM:
        for queue in {usage.queues.positions[unit.gang.queue] for unit in eviction.units}:
            least = np.where(usage.allocated[:, queue] < usage.fair[:, queue], 0.0, least)
        least = least * SERVED_WEIGHT
    return part_of_cluster(state, least)


def _lacking(eviction: _Eviction, wait: _Wait) -> float:
    """The part of the cluster, 0 to 1, that the gang lacks while it waits, times its weight."""
    strategy, state = eviction.strategy, eviction.strategy.state
    quota, cost = state.quota, state.quota.cost_of(strategy.request.members)
    if strategy.action is not Action.RECLAIM:
        return part_of_cluster(state, cost)
    queue = quota.queues.positions[strategy.gang.queue]
    fair, allocated, deserved = _columns(state, queue)
    needed: list[float] = cost.tolist()
    compared = compared_rows(cost, quota.rules)
    rows: list[int] = compared.tolist()
    borrows = any(is_above(allocated[row], deserved[row]) for row in rows)
    patient_until = max(wait.latest, state.snapshot.now + state.settings.loss_rules.patience)
    by_share = borrows or max(eviction.ends) <= patient_until
    taken = _lost_by_queue(state, eviction.units)
    shortfalls = {q: _shortfall(state, q, by_share=by_share) for q in taken}
    counted = np.zeros(len(cost))
    for row in rows:
        # The gang is placed in the trial; without it, its queue would lack its cost as well.
        lacking = max(fair[row] - allocated[row], 0.0) + needed[row]
        released = sum([amounts[row] for amounts in taken.values()])
        gained = min(lacking, max(released, needed[row]))
        denied = sum([min(shortfalls[q][row], amounts[row]) for q, amounts in taken.items()])
        counted[row] = max(gained - denied, 0.0)
    if not state.served.is_served(queue, compared, tolerated=NEGLECTED):
        counted *= NEGLECTED_WEIGHT
    elif borrows and state.served.is_served(queue, compared):
        counted *= SERVED_WEIGHT
    return part_of_cluster(state, counted)


def _relief(eviction: _Eviction) -> list[tuple[float, float]]:
    """When pods beside the victims end, and which part, 0 to 1, of ``lacking`` is left after each.

    The last part is 0 if enough of them are expected to end. Only pods of queues above their fair
    shares count, up to the excess of each queue, and only those at least as large as one of the
    gang's pods. What they release is divided among the queues below their fair shares by how much
    these lack; the part of the gang's queue counts in whole requests.
    """
    state, members = eviction.strategy.state, eviction.strategy.request.members
    cost, usage = state.quota.cost_of(members), state.quota.usage
    parts = np.divide(cost, usage.total, out=np.zeros_like(cost), where=usage.total > 0)
    row = int(parts.argmax())
    queue = state.quota.queues.positions[eviction.strategy.gang.queue]
    request = float(cost[row])
    if request <= 0:
        return []  # No queue counts what it requests, so no end brings a part of it.
    allocated = usage.allocated[row].copy()
    for other, amounts in _lost_by_queue(state, eviction.units).items():
        allocated[state.quota.queues.ancestors(other)] += amounts[row]
    allocated[state.quota.queues.ancestors(queue)] -= request
    is_leaf = state.quota.queues.is_leaf
    lacking = np.where(is_leaf, np.maximum(_due(state)[row] - allocated, 0.0), 0.0)
    above: list[float] = np.maximum(allocated - usage.fair[row], 0.0).tolist()
    own = max(float(lacking[queue]), request)
    total, pod, freed = max(float(lacking.sum()), own), _amount_of(state, members[0], row), 0.0
    found = list[tuple[float, float]]()
    for end in state.next_ends:
        position = state.quota.queues.positions[end.gang.queue]
        amount = min(_amount_of(state, end.member, row), above[position])
        if amount < pod or end.member.pod.uid in state.statement.evicted:
            continue
        above[position] -= amount
        freed += amount
        requests = math.floor(freed * own / total / request + 1e-9)
        left = 0.0 if freed >= total - 1e-9 else max(1.0 - requests * request / own, 0.0)
        found.append((end.at, left))
        if not left:
            break
    return found


def _amount_of(state: CycleState, member: Member, row: int) -> float:
    return float(state.quota.cost(member.charge)[row])


def _weighted_wait(now: float, until: float, relief: Sequence[tuple[float, float]]) -> float:
    """Seconds from ``now`` to ``until``, each times the part (``_relief``) that is lacking then."""
    waited, since, part = 0.0, now, 1.0
    for at, left in relief:
        if at >= until:
            break
        waited, since, part = waited + (at - since) * part, at, left
    return waited + (until - since) * part


def _due(state: CycleState) -> Floats:
    """(quota resources, queues) what queues could get of their fair shares in whole gangs."""
    fair, due = state.quota.usage.fair, state.served.due
    return due if due.shape == fair.shape else fair


def _columns(state: CycleState, queue: int) -> tuple[list[float], list[float], list[float]]:
    """(quota resources,) each: what is due to a queue (``_due``), is allocated and deserved."""
    usage = state.quota.usage
    fair: list[float] = _due(state)[:, queue].tolist()
    return fair, usage.allocated[:, queue].tolist(), usage.queues.deserved[:, queue].tolist()


def _shortfall(state: CycleState, queue: int, *, by_share: bool) -> list[float]:
    """(quota resources,) by how much a queue is below its fair share.

    Without ``by_share``: below the part of it that the queue deserves.
    """
    fair, allocated, deserved = _columns(state, queue)
    entitled = fair if by_share else list(map(min, fair, deserved))
    return [max(amount - has, 0.0) for amount, has in zip(entitled, allocated, strict=True)]


def _lost_by_queue(state: CycleState, units: Sequence[VictimUnit]) -> dict[int, list[float]]:
    """By position of a queue, (quota resources,) what it loses if ``units`` are evicted."""
    taken = dict[int, list[float]]()
    for unit in units:
        queue = state.quota.queues.positions[unit.gang.queue]
        cost, before = state.quota.cost_of(unit.members).tolist(), taken.get(queue)
        taken[queue] = cost if before is None else list(map(add, before, cost))
    return taken
