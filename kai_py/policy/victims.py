"""Victims as arrays: which queues lose what, and how much of it was released before."""

from dataclasses import dataclass

import numpy as np

from kai_py.policy.sibling_division import running_sums
from kai_py.snapshot.resources import Floats
from kai_py.snapshot.tables.queue_tree import Index, QueueTable


@dataclass(frozen=True, slots=True)
class Victims:
    """Evictions in the order of taking: (n,) leaf queues, (resources, n) what each releases.

    One entry is what is evicted together: an elastic pod alone, the minMember set of a gang as a
    whole.
    """

    queue: Index
    amount: Floats

    def first(self, count: int) -> "Victims":
        """The first ``count`` evictions."""
        return Victims(self.queue[:count], self.amount[:, :count])

    def freed(self, queues: QueueTable) -> Floats:
        """(resources, queues) what the evictions release, propagated to all ancestors."""
        own = np.zeros((len(self.amount), len(queues)))
        np.add.at(own.T, self.queue, self.amount.T)
        return queues.subtree_sums(own)


def freed_before(their_queues: Index, amount: Floats) -> Floats:
    """(resources, n) what is released in the same queue before each victim."""
    if len(their_queues) == 1:
        return np.zeros_like(amount)
    order = np.argsort(their_queues, kind="stable")
    group = their_queues[order].astype(np.int64)
    freed = np.empty_like(amount)
    freed[:, order] = running_sums(group, amount[:, order])
    return freed
