"""Batched reclaim: whether many equivalent gangs may reclaim one after the other.

In step i a gang of cost c joins queue R, which then has i times c more than before, and at most one
victim leaves another queue. What R has only grows and what others have only shrinks, so each rule
of ``reclaim_rules`` that bounds R holds at every step if it holds at the last:

1. R stays within its fair share, and so does its side against every queue that loses something:
   then saturation refuses nothing (rules 1 and 4).
2. The queues that may be reclaimed from are the same at the first step and the last, and so is
   whether R stays within what it deserves against each: then neither changes in between (rule 2).

What a queue had before each of its victims left is compared for every victim (rule 3). A True is
exact; a False may be due to one of the steps alone. O(victims x resources).
"""

from dataclasses import replace

import numpy as np

from kai_py.policy.fairness_rules import FairnessRules
from kai_py.policy.queue_usage import QueueUsage, diverging_siblings, exceeds
from kai_py.policy.reclaim_rules import (
    Reclaimer,
    Victims,
    allowed_by_share,
    check_reclaimer,
    compared_rows,
    reclaimable_queues,
    stays_within_deserved,
)


def may_reclaim_batch(
    usage_before: QueueUsage,
    reclaimer: Reclaimer,
    count: int,
    victims: Victims,
    rules: FairnessRules,
) -> bool:
    """Whether ``count`` preemptible gangs like ``reclaimer`` may take ``victims``, in their order.

    ``usage_before``: before the first step. Each gang takes one victim, or none.
    """
    last = _usage_before_last(usage_before, reclaimer, count, victims)
    if check_reclaimer(last, reclaimer, rules) is not None:
        return False
    reclaimable = reclaimable_queues(usage_before, reclaimer, rules)
    if not np.array_equal(reclaimable, reclaimable_queues(last, reclaimer, rules)):
        return False
    ours, theirs = diverging_siblings(usage_before.queues, reclaimer.queue)
    rows = compared_rows(reclaimer.request, rules)
    starved = stays_within_deserved(usage_before, reclaimer, ours, rows)
    if not np.array_equal(starved, stays_within_deserved(last, reclaimer, ours, rows)):
        return False
    at = victims.queue
    return (
        bool(reclaimable[at].all())
        and not _ends_above_share(last, reclaimer, victims)
        and bool(
            allowed_by_share(usage_before, theirs[at], starved[at], victims.amount, rows).all()
        )
    )


def _usage_before_last(
    usage_before: QueueUsage, reclaimer: Reclaimer, count: int, victims: Victims
) -> QueueUsage:
    """``usage_before`` with all but the last gang added and all but the last victim removed."""
    path = usage_before.queues.ancestors(reclaimer.queue)
    freed = victims.first(len(victims.queue) - 1).freed(usage_before.queues)
    allocated = usage_before.allocated - freed
    allocated[:, path] += (count - 1) * reclaimer.request[:, None]
    return replace(usage_before, allocated=allocated)


def _ends_above_share(usage_after: QueueUsage, reclaimer: Reclaimer, victims: Victims) -> bool:
    """Whether the reclaimer's side ends above its fair share against any queue that loses."""
    ours, _ = diverging_siblings(usage_after.queues, reclaimer.queue)
    sides = np.unique(ours[victims.queue])
    involved = (reclaimer.request > 0) | (victims.amount > 0).any(axis=1)
    gained = usage_after.allocated[:, sides] + reclaimer.request[:, None]
    return bool(exceeds(gained, usage_after.fair[:, sides])[involved].any())
