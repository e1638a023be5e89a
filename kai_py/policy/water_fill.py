"""Weighted max-min division of budgets among competitors (water filling).

Each competitor i of a group receives min(cap_i, level x rate_i), where the group's common level is
as high as the budget allows: weighted max-min fairness (progressive filling; Bertsekas and
Gallager, Data Networks, 6.5.2). All groups are filled at once by one sort: competitors of a group
fill up in the order of cap / rate, so the ones that are full are a prefix. O(n log n).
"""

import numpy as np

from kai_py.policy.siblings import sum_by
from kai_py.snapshot.resources import Bools, Floats, Ints

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
