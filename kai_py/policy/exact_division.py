"""Division of a resource among sibling queues in the native profile, without rounding.

1. Deserved first: fill the budget at the rates ``deserved``, each up to min(deserved, ceiling).
Where the deserved amounts exceed the budget, all shrink in proportion. 2. The surplus goes to one
priority after another; a lower one gets only what no higher one can use. Within a priority it is
filled at the rates of ``surplus_claims`` (weight, lowered by past usage), each up to its ceiling.
The rest goes by plain weight to queues whose past usage left them no claim.

No queue gets more than its ceiling, and nothing remains while a queue with a positive weight could
use it. O(n log n), no loop over queues or priorities: what a priority can use does not depend on
the division, so its budget is known beforehand.
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
    guarantee = np.minimum(siblings.deserved, siblings.budget[..., siblings.group])
    guaranteed = np.minimum(guarantee, siblings.ceiling)
    deserved = water_fill(siblings.group, siblings.budget, guarantee, guaranteed)
    usable = np.where(siblings.weight > 0, siblings.ceiling - deserved, 0.0)
    bucket, group_of = priority_buckets(siblings)
    buckets = len(group_of)
    remaining = siblings.budget - sum_by(siblings.group, deserved, siblings.budget.shape[-1])
    budget = _bucket_budgets(remaining, sum_by(bucket, usable, buckets), group_of)
    claim = surplus_claims(siblings, bucket, buckets, usable > 0, usage_weight)
    surplus = water_fill(bucket, budget, claim, usable)
    without_claim = np.where(claim > 0, 0.0, siblings.weight)
    if np.logical_and(without_claim, usable).any():
        unclaimed = budget - sum_by(bucket, surplus, buckets)
        surplus += water_fill(bucket, unclaimed, without_claim, usable)
    return Portions(deserved, surplus, relative_shares(claim, bucket, buckets))


def _bucket_budgets(left: Floats, usable: Floats, group_of: Ints) -> Floats:
    """(..., buckets) what each priority divides: what higher ones leave, capped by its own use."""
    return np.clip(left[..., group_of] - running_sums(group_of, usable), 0.0, usable)
