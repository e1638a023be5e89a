"""Sibling queues: the queues of one level in groups that divide the share of their parent.

Arrays are (..., n) or (..., groups): the leading axes, as a rule resources, are divided side by
side.
"""

from dataclasses import dataclass
from math import prod

import numpy as np

from kai_py.snapshot.resources import Bools, Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Siblings:
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


@dataclass(frozen=True, slots=True)
class Portions:
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
