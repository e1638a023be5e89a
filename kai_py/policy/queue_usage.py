"""Queue usage: what each queue has allocated against what it is entitled to.

One value that order, limits and reclaim read. The arrays may be the working state of a cycle:
``allocated`` changes while the cycle places gangs, entitlements do not.

Past usage of queues as measured by an external source, such as Prometheus.

Replaces our own ``usage_history``: amounts are averages over a window and count as a fraction of
what the cluster has now. Measurements older than ``stale_after`` count as none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from kai_py.snapshot.resources import Bools, Floats
from kai_py.snapshot.tables.queue_tree import Index, QueueTable


@dataclass(frozen=True)
class QueueUsage:
    """Amounts (resources, queues), each with the queue's subtree; ``total`` (resources,).

    ``allocated`` counts pods on nodes (of those that terminate the lingering ones),
    ``non_preemptible`` those of them that may not be evicted.
    """

    queues: QueueTable
    total: Floats
    allocated: Floats
    non_preemptible: Floats
    fair: Floats

    @cached_property
    def allocatable(self) -> Floats:
        """(resources, queues) the most a queue may have undisturbed; inf where unbounded."""
        entitled = np.maximum(self.queues.deserved, self.fair)
        return np.minimum(self.queues.max, entitled)


def copy_usage(usage: QueueUsage) -> QueueUsage:
    """A copy of ``usage`` that later placements and evictions do not change."""
    return replace(
        usage,
        allocated=usage.allocated.copy(),
        non_preemptible=usage.non_preemptible.copy(),
    )


def exceeds(amount: Floats, bound: Floats) -> Bools:
    """Whether amounts are above bounds by more than the rounding errors of sums of fractions."""
    return np.greater(amount, bound + tolerance(bound))


def exceeds_any(amount: Floats, bound: Floats) -> Bools:
    """(n,) whether amounts (resources, n) are above their bounds in any resource."""
    return np.asarray(exceeds(amount, bound).any(axis=0))


def tolerance(bound: Floats) -> Floats:
    """How far above each bound an amount still counts as equal."""
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


UsageByQueue = Mapping[str, Mapping[str, float]]
"""Amounts by queue and resource, in quota units."""


@dataclass
class ExternalUsage:
    """The last measurement; it is valid for ``stale_after`` seconds."""

    stale_after: float
    _amounts: UsageByQueue = field(default_factory=dict, init=False)
    _measured_at: float = field(default=-np.inf, init=False)

    def record(self, amounts: UsageByQueue, at: float) -> None:
        """Store ``amounts`` measured ``at`` (seconds since the epoch)."""
        self._amounts, self._measured_at = amounts, at

    def fractions(
        self, now: float, queues: Sequence[str], resources: Sequence[str], total: Floats
    ) -> Floats:
        """(resources, queues) past usage as a fraction of ``total`` (resources,)."""
        used = np.zeros((len(resources), len(queues)))
        if now > self._measured_at + self.stale_after:
            return used
        for column, queue in enumerate(queues):
            amounts = self._amounts.get(queue)
            if amounts:
                used[:, column] = [amounts.get(name, 0.0) for name in resources]
        offered = np.broadcast_to(total[:, None], used.shape)
        return np.divide(used, offered, out=np.zeros_like(used), where=offered > 0)
