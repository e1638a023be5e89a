"""How do siblings divide a resource in the native profile?

1. Guarantees first: pour the budget at rates ``deserved``, each up to min(deserved, ceiling). Where
   the guarantees add up to more than there is, all shrink in proportion to ``deserved``.
2. The surplus goes to one priority after another; a lower one sees only what no higher one can use.
   Within a priority it is poured at the rates of ``claims`` (weight, lowered by past usage), each
   up to its ceiling. What then remains goes by plain weight to those whose usage left no claim.

Nothing is rounded, nobody gets more than its ceiling, and nothing remains while a queue with a
positive weight could use it. O(n log n), no loop over queues or priorities: what a priority can use
does not depend on the division, so its budget is known beforehand.
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
from kai_py.policy.water_fill import running_sums, water_fill
from kai_py.snapshot.resources import Floats, Ints


def divide_exactly(siblings: Siblings, usage_weight: float) -> Portions:
    """Each queue's portion of its group's budget."""
    promised = np.minimum(siblings.deserved, siblings.budget[..., siblings.group])
    guaranteed = np.minimum(promised, siblings.ceiling)
    deserved = water_fill(siblings.group, siblings.budget, promised, guaranteed)
    room = np.where(siblings.weight > 0, siblings.ceiling - deserved, 0.0)
    bucket, group_of = priority_buckets(siblings)
    buckets = len(group_of)
    left = siblings.budget - sum_by(siblings.group, deserved, siblings.budget.shape[-1])
    budget = _bucket_budgets(left, sum_by(bucket, room, buckets), group_of)
    claim = surplus_claims(siblings, bucket, buckets, room > 0, usage_weight)
    surplus = water_fill(bucket, budget, claim, room)
    forgiven = np.where(claim > 0, 0.0, siblings.weight)
    if np.logical_and(forgiven, room).any():
        unclaimed = budget - sum_by(bucket, surplus, buckets)
        surplus += water_fill(bucket, unclaimed, forgiven, room)
    return Portions(deserved, surplus, relative_shares(claim, bucket, buckets))


def _bucket_budgets(left: Floats, usable: Floats, group_of: Ints) -> Floats:
    """(..., buckets) what each priority divides: what higher ones cannot use, if it can."""
    return np.clip(left[..., group_of] - running_sums(group_of, usable), 0.0, usable)
