"""Sibling queues: the queues of one level in groups that divide the share of their parent.

Arrays are (..., n) or (..., groups): the leading axes, usually resources, are divided at the same
time.

The means is weighted max-min division of budgets among competitors (water filling). Each competitor
i of a group receives min(cap_i, level x rate_i), where the group's common level is as high as the
budget allows: weighted max-min fairness (progressive filling; Bertsekas and Gallager, Data
Networks, 6.5.2). All groups are filled at once by one sort: competitors of a group fill up in the
order of cap / rate, so the ones that are full are a prefix. O(n log n).

In the native profile a resource is divided without rounding:

1. Deserved first: fill the budget at the rates ``deserved``, each up to min(deserved, ceiling).
   Where the deserved amounts exceed the budget, all shrink in proportion.
2. The surplus goes to one priority after another; a lower one gets only what no higher one can use.
   Within a priority it is filled at the rates of ``surplus_claims`` (weight, lowered by past
   usage), each up to its ceiling. The rest goes by plain weight to queues whose past usage left
   them no claim.

No queue gets more than its ceiling, and nothing remains while a queue with a positive weight could
use it. O(n log n), no loop over queues or priorities: what a priority can use does not depend on
the division, so its budget is known beforehand.
"""

from math import prod

import numpy as np
from msgspec import Struct

from kai_py.snapshot.resources import Bools, Floats, Ints


class Siblings(Struct, frozen=True, kw_only=True):
    """Queues of one level; ``group`` (n,) is the index of their parent, ascending.

    ``budget`` (..., groups) is what each group divides, amounts are (..., n), ranks (n,).
    ``ceiling`` is the most a queue can use: the lesser of its demand and its maximum.
    ``past_usage`` is the decayed fraction of the cluster that the queue used.
    """

    group: Ints
    budget: Floats
    ceiling: Floats
    deserved: Floats
    weight: Floats
    past_usage: Floats
    priority: Ints
    creation_order: Ints


class Portions(Struct, frozen=True):
    """(..., n) what each queue gets; ``weight_share``: its fraction of its bucket's surplus."""

    deserved: Floats
    surplus: Floats
    weight_share: Floats


def sum_by(group: Ints, values: Floats, groups: int) -> Floats:
    """(..., groups) the sums of ``values`` (..., n), added up in their order."""
    leading = values.shape[:-1]
    first = groups * np.arange(prod(leading))
    bins = (first[:, None] + group).ravel()
    sums: Floats = np.bincount(bins, values.ravel(), groups * len(first)).astype(
        np.float64, copy=False
    )
    return sums.reshape(*leading, groups)


def priority_buckets(siblings: Siblings) -> tuple[Ints, Ints]:
    """(n,) bucket of each queue, and (buckets,) the group of each bucket.

    A bucket is the siblings of one priority; buckets are numbered by group, highest priority first.
    """
    order = np.lexsort((-siblings.priority, siblings.group))
    group, priority = siblings.group[order], siblings.priority[order]
    starts = np.ones(len(order), bool)
    starts[1:] = (group[1:] != group[:-1]) | (priority[1:] != priority[:-1])
    bucket = np.empty(len(order), np.int64)
    bucket[order] = np.cumsum(starts) - 1
    return bucket, group[starts]


def surplus_claims(
    siblings: Siblings, bucket: Ints, buckets: int, is_competing: Bools, usage_weight: float
) -> Floats:
    """(..., n) the rate at which each competing queue draws on the surplus of its bucket.

    With w its fraction of the competing weight and u its past usage, that is max(0, w + k(w - u)).
    """
    weight = np.where(is_competing, siblings.weight, 0.0)
    part = relative_shares(weight, bucket, buckets)
    claim = np.maximum(0.0, part + usage_weight * (part - siblings.past_usage))
    return np.where(part > 0, claim, 0.0)


def relative_shares(claim: Floats, bucket: Ints, buckets: int) -> Floats:
    """(..., n) each claim as a fraction of its bucket's sum; 0 where that is 0."""
    total = sum_by(bucket, claim, buckets)[..., bucket]
    return np.divide(claim, total, out=np.zeros(claim.shape), where=total > 0)


NEGLIGIBLE = 1e-9
"""Amounts below this are rounding errors: no unit of any resource is that small."""


def water_fill(group: Ints, budget: Floats, rate: Floats, cap: Floats) -> Floats:
    """(..., n) amounts. ``group`` (n,) indexes ``budget`` (..., groups).

    Rates and caps (..., n) are finite, >= 0.

    The amounts of a group add up to min(budget, sum of the caps with a positive rate).
    """
    amounts = np.where(rate > 0, cap, 0.0)
    enough = sum_by(group, amounts, budget.shape[-1]) <= budget
    if not enough.all():
        amounts = _ration(group, budget, rate, amounts, enough)
    return np.where(amounts < NEGLIGIBLE, 0.0, amounts)


def _ration(group: Ints, budget: Floats, rate: Floats, cap: Floats, enough: Bools) -> Floats:
    """(..., n) amounts where there is ``enough`` (..., groups) for the caps of some groups only."""
    rate, groups = np.where(cap > 0, rate, 0.0), budget.shape[-1]
    full = enough[..., group] | _reaches_cap(group, budget, rate, cap)
    left = budget - sum_by(group, np.where(full, cap, 0.0), groups)
    rate_left = sum_by(group, np.where(full, 0.0, rate), groups)
    level = np.divide(left, rate_left, out=np.zeros(left.shape), where=rate_left > 0)
    return np.where(full, cap, np.minimum(cap, rate * np.maximum(level, 0.0)[..., group]))


def _reaches_cap(group: Ints, budget: Floats, rate: Floats, cap: Floats) -> Bools:
    """(..., n) competitors whose cap is reached before the budget of their group is spent."""
    level = np.divide(cap, rate, out=np.zeros(cap.shape), where=rate > 0)
    order = np.lexsort((level, np.broadcast_to(group, level.shape)))
    in_group = np.sort(group)
    ordered_cap, ordered_rate, ordered_level = (
        np.take_along_axis(each, order, axis=-1) for each in (cap, rate, level)
    )
    rates = sum_by(group, rate, budget.shape[-1])
    poured = running_sums(in_group, ordered_cap)
    pouring = rates[..., in_group] - running_sums(in_group, ordered_rate)
    filled = np.empty(cap.shape, np.bool_)
    reached = poured + ordered_level * pouring <= budget[..., in_group]
    np.put_along_axis(filled, order, reached, axis=-1)
    return filled


def running_sums(group: Ints, values: Floats) -> Floats:
    """(..., n) the sum of the values before each one in its group; ``group`` (n,) is ascending."""
    before = np.zeros(values.shape)
    np.cumsum(values[..., :-1], axis=-1, out=before[..., 1:])
    first = np.searchsorted(group, group, side="left")
    sums: Floats = before - before[..., first]
    return sums


def divide_exactly(siblings: Siblings, usage_weight: float) -> Portions:
    """Each queue's portion of its group's budget."""
    guarantee = np.minimum(siblings.deserved, siblings.budget[..., siblings.group])
    guaranteed = np.minimum(guarantee, siblings.ceiling)
    deserved = water_fill(siblings.group, siblings.budget, guarantee, guaranteed)
    usable = np.where(siblings.weight > 0, siblings.ceiling - deserved, 0.0)
    if not (usable > 0).any():
        nothing = np.zeros(deserved.shape)
        return Portions(deserved, nothing, nothing)
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
