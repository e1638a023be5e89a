"""Division of a resource among sibling queues in the kai profile, as in KAI-Scheduler 0.17.

1. Each queue gets min(deserved, ceiling), also when the sum exceeds the budget. 2. The surplus goes
to one priority after another, in rounds: a queue whose part of the round covers its need gets its
need, any other gets its part rounded down to whole units. Another round follows while some queue
needed less than its part. 3. When all priorities had their rounds, the remainders are handed out as
one unit each: higher priority first, then larger remainder, then older queue.

Two consequences are kept on purpose, because users of that profile expect them: a unit cut off in a
high priority is offered to lower ones first, and a queue may end up to one unit above its need.
Units are devices, millicores, bytes. All groups advance together; rounds are few in practice and at
most one per queue.
"""

import numpy as np

from kai_py.policy.sibling_division import (
    NEGLIGIBLE,
    Portions,
    Siblings,
    priority_buckets,
    relative_shares,
    running_sums,
    sum_by,
    surplus_claims,
)
from kai_py.snapshot.resources import Bools, Floats


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
