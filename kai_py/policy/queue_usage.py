"""Queue usage: what each queue has allocated against what it is entitled to.

One value that order, limits and reclaim read. The arrays may be the working state of a cycle:
``allocated`` changes while the cycle places gangs, entitlements do not.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

import numpy as np

from kai_py.snapshot.resources import Bools, Floats
from kai_py.snapshot.tables.queue_tree import Index, QueueTable


class QuotaBound(StrEnum):
    """The bounds of a queue: ``max``, or ``deserved`` for non-preemptible pods."""

    MAX = "OverLimit"
    DESERVED = "NonPreemptibleOverQuota"


@dataclass(frozen=True)
class QueueUsage:
    """Amounts (resources, queues), each with the queue's subtree; ``total`` (resources,).

    ``allocated`` counts pods on nodes (of those that terminate the lingering ones),
    ``non_preemptible`` those of them that may not be evicted. ``owed``: the claims of these pods
    that other queues are charged with, and that fall to them when the pods there have ended;
    ``owed_non_preemptible`` those of the pods that may not be evicted. They count against bounds
    only.
    """

    queues: QueueTable
    total: Floats
    allocated: Floats
    non_preemptible: Floats
    fair: Floats
    owed: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    owed_non_preemptible: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    def __post_init__(self) -> None:
        """Without amounts owed, these are 0."""
        for name in ("owed", "owed_non_preemptible"):
            if getattr(self, name).shape != self.allocated.shape:
                object.__setattr__(self, name, np.zeros_like(self.allocated))

    @cached_property
    def allocatable(self) -> Floats:
        """(resources, queues) the most a queue may have undisturbed; inf where unbounded."""
        entitled = np.maximum(self.queues.deserved, self.fair)
        return np.minimum(self.queues.max, entitled)

    @cached_property
    def bounds_by_queue(self) -> list[list[list[float]]]:
        """By queue and resource, what the order of queues compares amounts with.

        The most that counts as within the fair share, and as within what is deserved; allocatable;
        the same with the cluster's total in place of inf; and whether the queue has a weight.
        """
        fair, deserved = self.fair, self.queues.deserved
        within = fair + tolerance(fair), deserved + tolerance(deserved)
        finite = np.where(np.isinf(self.allocatable), self.total[:, None], self.allocatable)
        has_weight = (self.queues.weight > 0).astype(np.float64)
        columns = np.array((*within, self.allocatable, finite, has_weight))
        by_queue: list[list[list[float]]] = columns.transpose(2, 1, 0).tolist()
        return by_queue

    @cached_property
    def tie_breakers_by_queue(self) -> list[list[float]]:
        """By queue, what is allocatable, resource by resource, and its place by creation."""
        columns = np.concatenate((self.allocatable, self.queues.creation_order[None]))
        by_queue: list[list[float]] = columns.T.tolist()
        return by_queue

    def with_owed(self, owed: Floats, owed_non_preemptible: Floats) -> "QueueUsage":
        """The same usage with other amounts owed, (resources, queues) each."""
        return replace(self, owed=owed, owed_non_preemptible=owed_non_preemptible)

    def counted(self, bound: QuotaBound, at: Index | int) -> Floats:
        """(resources, n) what counts against a bound of the queues ``at`` (n,), or of one."""
        own, owed = self.allocated, self.owed
        if bound is QuotaBound.DESERVED:
            own, owed = self.non_preemptible, self.owed_non_preemptible
        counted: Floats = own[:, at] + owed[:, at]
        return counted


def copy_usage(usage: QueueUsage) -> QueueUsage:
    """A copy of ``usage`` that later placements and evictions do not change."""
    return replace(
        usage,
        allocated=usage.allocated.copy(),
        non_preemptible=usage.non_preemptible.copy(),
        owed=usage.owed.copy(),
        owed_non_preemptible=usage.owed_non_preemptible.copy(),
    )


def exceeds(amount: Floats, bound: Floats) -> Bools:
    """Where amounts are above bounds by more than a rounding error; arrays of any shape."""
    return np.greater(amount, bound + tolerance(bound))


def is_above(amount: float, bound: float) -> bool:
    """``exceeds`` for one amount."""
    return amount > bound + (1e-9 + 1e-12 * abs(bound))


def exceeds_any(amount: Floats, bound: Floats) -> Bools:
    """(n,) whether amounts (resources, n) are above their bounds in any resource."""
    return np.asarray(exceeds(amount, bound).any(axis=0))


def exceeds_fair_share(usage: QueueUsage, queue: int, cost: Floats) -> bool:
    """Whether ``cost`` (resources,) by itself is above the fair share of a queue or its ancestors.

    What a gang of that cost were given, other queues would take back.
    """
    fair = usage.fair[:, usage.queues.ancestors(queue)].min(axis=1)
    return bool(exceeds(np.where(cost > 0, cost, 0.0), fair).any())


def tolerance(bound: Floats) -> Floats:
    """How far above each bound, of any shape, an amount still counts as equal."""
    slack: Floats = 1e-9 + 1e-12 * np.abs(bound)
    return slack


def shared_depth(queues: QueueTable, queue: int) -> Index:
    """(queues,) how many ancestors, itself included, each queue shares with ``queue``."""
    cached = queues.shared_depths.get(queue)
    if cached is None:
        same = (queues.path == queues.path[queue]) & (queues.path >= 0)
        cached = np.cumprod(same, axis=1, dtype=np.int32).sum(axis=1, dtype=np.int32)
        queues.shared_depths[queue] = cached
    return cached


def diverging_siblings(queues: QueueTable, queue: int) -> tuple[Index, Index]:
    """(queues,) twice: the siblings at which the paths of ``queue`` and of each queue diverge.

    They are on the first level at which the paths differ, the first on the side of ``queue``. Where
    one queue is an ancestor of the other, both are that ancestor.
    """
    cached = queues.divergence.get(queue)
    if cached is None:
        max_level = np.minimum(queues.depth, queues.depth[queue])
        level = np.minimum(shared_depth(queues, queue), max_level)
        ours = queues.path[queue, level]
        theirs = np.take_along_axis(queues.path, level[:, None].astype(np.intp), axis=1)[:, 0]
        cached = queues.divergence[queue] = (ours, theirs)
    return cached
