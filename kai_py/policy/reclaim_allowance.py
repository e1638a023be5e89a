"""What queues may still lose to a reclaimer: rule 3 of ``reclaim_rules``, one victim at a time.

For searches that choose victims with that rule in mind. ``check_reclaim`` still has to allow what
they find: it takes the victims of a queue in a fixed order, and judges by other rules as well.
"""

import numpy as np

from kai_py.policy.fairness_rules import FairnessRules
from kai_py.policy.queue_usage import QueueUsage, diverging_siblings, tolerance
from kai_py.policy.reclaim_rules import Reclaimer, compared_rows, stays_within_deserved
from kai_py.snapshot.resources import Floats


class ReclaimAllowance:
    """By how much queues are above what no victim may be taken from, less what was taken."""

    def __init__(self, usage: QueueUsage, reclaimer: Reclaimer, rules: FairnessRules) -> None:
        """Nothing is taken yet."""
        ours, theirs = diverging_siblings(usage.queues, reclaimer.queue)
        rows = compared_rows(reclaimer.request, rules)
        starved = stays_within_deserved(usage, reclaimer, ours, rows)
        deserved = np.where(starved, usage.queues.deserved[:, theirs], np.inf)
        bound = np.minimum(usage.allocatable[:, theirs], deserved)
        above = usage.allocated[:, theirs] - bound - tolerance(bound)
        self._rows: list[int] = rows.tolist()
        self._siblings: list[int] = theirs.tolist()
        self._above: list[list[float]] = above[rows].T.tolist()

    def allows(self, queue: int) -> bool:
        """Whether a victim may be taken from ``queue``."""
        return any(each > 0 for each in self._above[self._siblings[queue]])

    def take(self, queue: int, amount: Floats) -> None:
        """Count ``amount`` (resources,) as taken from ``queue``; a negative one as given back."""
        above = self._above[self._siblings[queue]]
        for position, row in enumerate(self._rows):
            above[position] -= amount.item(row)
