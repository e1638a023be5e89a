"""Fair share: what each queue is entitled to in this cycle.

Per resource and top-down: the roots divide the cluster, the children of a queue divide its share.
The division among siblings depends on the profile (``sibling_division``): deserved amounts first,
then the surplus by priority and weight, never more than demand or maximum.

In the native profile the demand of a queue is what its subtree can really use: below a maximum no
more than that, below a weight of 0 no more than what is deserved. So no share goes to a branch in
which no queue may use it.

All resources are divided at the same time: O(resources x queues log queues) in about a hundred
numpy calls per level.

In the kai profile siblings divide a resource in whole units, as in KAI-Scheduler 0.17:

1. Each queue gets min(deserved, ceiling), also when the sum exceeds the budget.
2. The surplus goes to one priority after another, in rounds: a queue whose part of the round covers
   its need gets its need, any other gets its part rounded down to whole units. Another round
   follows while some queue needed less than its part.
3. When all priorities had their rounds, the remainders are handed out as one unit each: higher
   priority first, then larger remainder, then older queue.

Two consequences are kept on purpose, because users of that profile expect them: a unit cut off in a
high priority is offered to lower ones first, and a queue may end up to one unit above its need.
Units are devices, millicores, bytes. All groups advance together; rounds are few in practice and at
most one per queue.
"""

import numpy as np
from msgspec import Struct

from kai_py.policy.fairness_rules import Division, FairnessRules
from kai_py.policy.sibling_division import (
    NEGLIGIBLE,
    Portions,
    Siblings,
    divide_exactly,
    priority_buckets,
    relative_shares,
    running_sums,
    sum_by,
    surplus_claims,
)
from kai_py.snapshot.resources import Bools, Floats
from kai_py.snapshot.tables.queue_tree import QueueTable


class FairShare(Struct, frozen=True):
    """The entitlement of each queue, (resources, queues) each, and its components.

    ``fair`` = ``deserved`` + ``surplus``. ``weight_share`` is the queue's fraction of the surplus
    of its priority among its siblings. ``scaled`` marks deserved amounts that were scaled down
    because the cluster is smaller than their sum. ``remaining`` (resources,) is what no queue may
    or can use.
    """

    fair: Floats
    deserved: Floats
    surplus: Floats
    weight_share: Floats
    scaled: Bools
    remaining: Floats


def fair_share(
    queues: QueueTable,
    total: Floats,
    demand: Floats,
    rules: FairnessRules,
    past_usage: Floats | None = None,
) -> FairShare:
    """Divide ``total`` (resources,) among the queues.

    ``demand`` (resources, queues) is what each queue's subtree has allocated and pending.
    ``past_usage`` of the same shape is a decayed fraction of the cluster; None where none is known.
    """
    exact = rules.division is Division.EXACT
    usable = usable_demand(queues, demand) if exact else demand
    ceiling = np.minimum(usable, queues.max)
    past = np.zeros(ceiling.shape) if past_usage is None else past_usage
    fair, deserved, surplus, share = np.zeros((4, *ceiling.shape))
    divide = divide_exactly if exact else divide_whole_units
    for level in queues.levels():
        parents = _level_above(queues, level)
        siblings = Siblings(
            group=queues.parent[level].astype(np.int64) - parents.start,
            budget=fair[:, parents] if level.start else total[:, None],
            ceiling=ceiling[:, level],
            deserved=queues.deserved[:, level],
            weight=queues.weight[:, level],
            past_usage=past[:, level],
            priority=queues.priority[level],
            creation_order=queues.creation_order[level],
        )
        portions = divide(siblings, rules.usage_weight)
        deserved[:, level] = portions.deserved
        surplus[:, level] = portions.surplus
        share[:, level] = portions.weight_share
        fair[:, level] = portions.deserved + portions.surplus
    roots = queues.depth == 0
    guaranteed = np.minimum(queues.deserved, ceiling)
    scaled = np.isfinite(queues.deserved) & (deserved < guaranteed - NEGLIGIBLE)
    remaining = np.maximum(total - fair[:, roots].sum(axis=1), 0.0)
    return FairShare(fair, deserved, surplus, share, scaled, remaining)


def usable_demand(queues: QueueTable, demand: Floats) -> Floats:
    """(resources, queues) the part of each subtree's demand that its limits let it use."""
    limit = np.where(queues.weight > 0, queues.max, np.minimum(queues.max, queues.deserved))
    usable = np.array(demand, np.float64)
    for level in reversed(list(queues.levels())):
        excess = np.maximum(usable[:, level] - limit[:, level], 0.0)
        usable[:, level] -= excess
        if level.start:
            unusable = demand[:, level] - usable[:, level]
            # Not `-=`: several queues of the level may have the same parent.
            np.subtract.at(usable.T, queues.parent[level], unusable.T)
    return np.maximum(usable, 0.0)


def _level_above(queues: QueueTable, level: slice) -> slice:
    """The parents of the level's queues; -1 is the cluster above the roots."""
    if level.start == 0:
        return slice(-1, 0)
    return slice(int(queues.level_starts[queues.depth[level.start] - 1]), level.start)


def divide_whole_units(siblings: Siblings, usage_weight: float) -> Portions:
    """Each queue's portion of its group's budget."""
    whole_budget = siblings.budget[..., siblings.group]
    guarantee = np.where(np.isinf(siblings.deserved), whole_budget, siblings.deserved)
    deserved = np.minimum(guarantee, siblings.ceiling)
    remaining = siblings.budget - sum_by(siblings.group, deserved, siblings.budget.shape[-1])
    surplus, weight_share = divide_surplus(siblings, deserved, remaining, usage_weight)
    return Portions(deserved, surplus, weight_share)


def divide_surplus(
    siblings: Siblings, allocated: Floats, left: Floats, usage_weight: float
) -> tuple[Floats, Floats]:
    """(..., n) each queue's part of ``left`` (..., groups) over ``allocated``; its weight share."""
    bucket, group_of = priority_buckets(siblings)
    rank = np.arange(len(group_of)) - np.searchsorted(group_of, group_of, side="left")
    need = np.maximum(siblings.ceiling - allocated, 0.0)
    claim = surplus_claims(siblings, bucket, len(group_of), need > 0, usage_weight)
    granted, remainder = np.zeros(allocated.shape), np.zeros(allocated.shape)
    left = np.maximum(left, 0.0)
    for priority_rank in range(int(rank.max(initial=-1)) + 1):
        members = np.equal(rank[bucket], priority_rank)
        left = _rounds(
            siblings,
            members,
            usage_weight,
            need=need,
            granted=granted,
            remainder=remainder,
            left=left,
        )
    granted += _hand_out_remainders(siblings, remainder, left)
    return granted, relative_shares(claim, bucket, len(group_of))


def _rounds(
    siblings: Siblings,
    members: Bools,
    usage_weight: float,
    *,
    need: Floats,
    granted: Floats,
    remainder: Floats,
    left: Floats,
) -> Floats:
    """What remains of ``left``; adds to ``granted``, records cut-off fractions in ``remainder``."""
    group, groups = siblings.group, left.shape[-1]
    active = left > 0
    while active.any():
        missing = need - granted
        competing = members & (missing > NEGLIGIBLE) & active[..., group]
        claim = surplus_claims(siblings, group, groups, competing, usage_weight)
        part = left[..., group] * relative_shares(claim, group, groups)
        competing &= claim > 0
        satisfied = competing & (missing <= part)
        limited = competing & ~satisfied
        step = np.where(satisfied, missing, np.where(limited, np.floor(part), 0.0))
        remainder[satisfied] = 0.0
        remainder[limited] = (part - step)[limited]
        granted += step
        left = np.maximum(left - sum_by(group, step, groups), 0.0)
        needed_less = sum_by(group, (competing & (missing < part)).astype(np.float64), groups) > 0
        active = needed_less & (left > NEGLIGIBLE)
    return left


def _hand_out_remainders(siblings: Siblings, remainder: Floats, left: Floats) -> Floats:
    """(..., n) one unit for each remainder while any is left."""
    keys = (siblings.creation_order, -remainder, -siblings.priority, siblings.group)
    order = np.lexsort([np.broadcast_to(key, remainder.shape) for key in keys])
    has_remainder = np.take_along_axis(remainder, order, axis=-1) > 0
    earlier = running_sums(siblings.group, has_remainder.astype(np.float64))
    granted = np.clip(left[..., siblings.group] - earlier, 0.0, 1.0)
    units = np.empty(remainder.shape)
    np.put_along_axis(units, order, np.where(has_remainder, granted, 0.0), axis=-1)
    return units
