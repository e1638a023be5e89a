"""How do siblings divide a resource in the kai profile? As KAI-Scheduler 0.17 does.

1. Each queue gets min(deserved, ceiling), also when the sum exceeds the budget.
2. The surplus goes to one priority after another, in rounds: a queue whose part of the round covers
   its need gets its need, any other gets its part rounded down to whole units. Another round
   follows while some queue needed less than its part.
3. When all priorities had their rounds, the cut-off fractions are handed out as one unit each:
   higher priority first, then larger fraction, then older queue.

Two consequences are kept on purpose, they are what users of that profile expect: a unit cut off in
a high priority is offered to lower ones first, and a queue may end up to one unit above its need.
Units are devices, millicores, bytes. All groups advance together; rounds are few in practice and at
most one per queue.
"""

import numpy as np

from kai_py.policy.siblings import (
    Portions,
    Siblings,
    priority_buckets,
    relative_shares,
    sum_by,
    surplus_claims,
)
from kai_py.policy.water_fill import NEGLIGIBLE, running_sums
from kai_py.snapshot.resources import Bools, Floats


def divide_whole_units(siblings: Siblings, usage_weight: float) -> Portions:
    """Each queue's portion of its group's budget."""
    all_there_is = siblings.budget[..., siblings.group]
    promised = np.where(np.isinf(siblings.deserved), all_there_is, siblings.deserved)
    deserved = np.minimum(promised, siblings.ceiling)
    left = siblings.budget - sum_by(siblings.group, deserved, siblings.budget.shape[-1])
    surplus, weight_share = divide_surplus(siblings, deserved, left, usage_weight)
    return Portions(deserved, surplus, weight_share)


def divide_surplus(
    siblings: Siblings, allocated: Floats, left: Floats, usage_weight: float
) -> tuple[Floats, Floats]:
    """(..., n) what each queue gets of ``left`` (..., groups) beside ``held``; its weight share."""
    bucket, group_of = priority_buckets(siblings)
    rank = np.arange(len(group_of)) - np.searchsorted(group_of, group_of, side="left")
    need = np.maximum(siblings.ceiling - allocated, 0.0)
    claim = surplus_claims(siblings, bucket, len(group_of), need > 0, usage_weight)
    given, cut = np.zeros(allocated.shape), np.zeros(allocated.shape)
    left = np.maximum(left, 0.0)
    for turn in range(int(rank.max(initial=-1)) + 1):
        members = np.equal(rank[bucket], turn)
        left = _rounds(
            siblings, members, usage_weight, need=need, granted=given, remainder=cut, left=left
        )
    given += _hand_out_remainders(siblings, cut, left)
    return given, relative_shares(claim, bucket, len(group_of))


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
    """What remains of ``left``; adds to ``given``, notes cut-off fractions in ``cut``."""
    group, groups = siblings.group, left.shape[-1]
    going = left > 0
    while going.any():
        lacking = need - granted
        open_ = members & (lacking > NEGLIGIBLE) & going[..., group]
        claim = surplus_claims(siblings, group, groups, open_, usage_weight)
        part = left[..., group] * relative_shares(claim, group, groups)
        open_ &= claim > 0
        satisfied = open_ & (lacking <= part)
        limited = open_ & ~satisfied
        step = np.where(satisfied, lacking, np.where(limited, np.floor(part), 0.0))
        remainder[satisfied] = 0.0
        remainder[limited] = (part - step)[limited]
        granted += step
        left = np.maximum(left - sum_by(group, step, groups), 0.0)
        needed_less = sum_by(group, (open_ & (lacking < part)).astype(np.float64), groups) > 0
        going = needed_less & (left > NEGLIGIBLE)
    return left


def _hand_out_remainders(siblings: Siblings, remainder: Floats, left: Floats) -> Floats:
    """(..., n) one unit for each cut-off fraction while any is left."""
    keys = (siblings.creation_order, -remainder, -siblings.priority, siblings.group)
    order = np.lexsort([np.broadcast_to(key, remainder.shape) for key in keys])
    waiting = np.take_along_axis(remainder, order, axis=-1) > 0
    earlier = running_sums(siblings.group, waiting.astype(np.float64))
    due = np.clip(left[..., siblings.group] - earlier, 0.0, 1.0)
    units = np.empty(remainder.shape)
    np.put_along_axis(units, order, np.where(waiting, due, 0.0), axis=-1)
    return units
