"""Who gets how much when a budget is poured over competitors at given rates?

Each competitor i of a group receives min(cap_i, level x rate_i), where the group's common level is
as high as the budget allows: weighted max-min fairness (progressive filling; Bertsekas and
Gallager, Data Networks, 6.5.2). All groups are filled at once by one sort: competitors of a group
fill up in the order of cap / rate, so the ones that are full are a prefix. O(n log n).
"""

import numpy as np

from kai_py.snapshot.resources import Bools, Floats, Ints

NEGLIGIBLE = 1e-9
"""Amounts below this are float noise: no unit of any resource is that small."""


def water_fill(group: Ints, budget: Floats, rate: Floats, cap: Floats) -> Floats:
    """(n,) amounts. ``group`` (n,) indexes ``budget`` (groups,); rates and caps are finite, >= 0.

    The amounts of a group add up to min(budget, sum of the caps with a positive rate).
    """
    cap = np.where(rate > 0, cap, 0.0)
    rate = np.where(cap > 0, rate, 0.0)
    full = _filled(group, budget, rate, cap)
    groups = len(budget)
    left = budget - np.bincount(group, np.where(full, cap, 0.0), groups)
    rate_left = np.bincount(group, np.where(full, 0.0, rate), groups)
    level = np.divide(left, rate_left, out=np.zeros(groups), where=rate_left > 0)
    amounts = np.where(full, cap, np.minimum(cap, rate * np.maximum(level, 0.0)[group]))
    return np.where(amounts < NEGLIGIBLE, 0.0, amounts)


def _filled(group: Ints, budget: Floats, rate: Floats, cap: Floats) -> Bools:
    """(n,) competitors that receive their whole cap."""
    level = np.divide(cap, rate, out=np.zeros(len(cap)), where=rate > 0)
    order = np.lexsort((level, group))
    in_group = group[order]
    rates = np.bincount(group, rate, len(budget))
    poured = running_sums(in_group, cap[order])
    pouring = rates[in_group] - running_sums(in_group, rate[order])
    filled = np.empty(len(cap), bool)
    filled[order] = poured + level[order] * pouring <= budget[in_group]
    enough = np.bincount(group, cap, len(budget)) <= budget
    return filled | enough[group]


def running_sums(group: Ints, values: Floats) -> Floats:
    """(n,) the sum of the values that stand before each one in its group; groups are contiguous."""
    before = np.concatenate(([0.0], np.cumsum(values)))[:-1]
    first = np.searchsorted(group, group, side="left")
    return before - before[first] if len(before) else before
