"""Round-robin order of queues whose pending gangs all have the same cost, in one pass.

The result is the same as that of ``QueueOrder`` step by step. A queue whose gangs all cost the same
has that much more after each of its turns, so its keys (``queue_order``) are known beforehand. The
turns of an inner queue are those of its children, in their order, which says what it has before
each of them.

While all gangs request the same resources, however much, no part of a key falls as a queue gets
more: taking the least head again and again is merging sorted lists, and that is one sort of the
turns of each level, from the leaves up. O(depth x turns x log turns).
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct

from kai_py.api.groups import grouped
from kai_py.policy.fairness_rules import FairnessRules
from kai_py.policy.queue_order import order_keys
from kai_py.policy.queue_usage import QueueUsage, exceeds
from kai_py.snapshot.resources import Floats, Ints
from kai_py.snapshot.tables.queue_tree import Index, QueueTable


class GangCosts(Struct, frozen=True):
    """The cost of each gang of a leaf: ``pods`` (queues,) pods of cost ``pod`` (resources, queues).

    Costs are not negative.
    """

    pod: Floats
    pods: Ints

    def request_same_resources(self, leaves: Sequence[int]) -> bool:
        """Whether the gangs of all ``leaves`` request the same resources, in any amounts."""
        requested = self.pod[:, leaves] > 0
        return bool((requested == requested[:, :1]).all())

    def by_pod(self, leaves: Index) -> Floats:
        """(resources, pods) the costs of the pods of one gang per turn of ``leaves`` (n,)."""
        costs: Floats = self.pod[:, leaves.repeat(self.pods[leaves])]
        return costs


def round_robin_order(
    usage: QueueUsage, pending_counts: Mapping[int, int], costs: GangCosts, rules: FairnessRules
) -> Index:
    """(n,) leaves in the order of their turns, up to the first that would exceed a ``max``.

    ``pending_counts``: pending gangs by leaf. All their ``costs`` are of the same resources.
    """
    queues = usage.queues
    leaves, exceeded = np.empty(0, np.int32), np.empty(0, np.bool_)
    for depth, own in _leaves_by_depth(queues, pending_counts):
        leaves = np.concatenate((leaves, own))
        queue, request = queues.path[leaves, depth], costs.pod[:, leaves] * costs.pods[leaves]
        allocated = _allocated_before(usage, queue, leaves, costs)
        counted = allocated + usage.owed[:, queue] + request
        passes = exceeds(counted, queues.max[:, queue]) & (request > 0)
        exceeded = np.append(exceeded, np.zeros(len(own), np.bool_)) | passes.any(axis=0)
        keys = order_keys(usage, queue, request, rules, allocated_before=allocated)
        merged = np.lexsort((*keys[::-1], queues.parent[queue]))
        leaves, exceeded = leaves[merged], exceeded[merged]
    return leaves[: int(exceeded.argmax())] if exceeded.any() else leaves


def cumulative_usage(allocated: Floats, costs: Floats) -> Floats:
    """(resources, n + 1) what is allocated before each of ``costs`` (resources, n), and at the end.

    Costs are added one by one.
    """
    steps = np.empty((len(allocated), costs.shape[1] + 1))
    steps[:, 0], steps[:, 1:] = allocated, costs
    # Not cumsum of the costs plus a start: sums must be bit-equal to single charges.
    sums: Floats = np.add.accumulate(steps, axis=1)
    return sums


def _leaves_by_depth(
    queues: QueueTable, pending_counts: Mapping[int, int]
) -> Iterator[tuple[int, Index]]:
    """Every depth, from the deepest leaf up to the roots, with the turns of its leaves."""
    by_depth = grouped(sorted(pending_counts), lambda leaf: int(queues.depth[leaf]))
    for depth in range(max(by_depth, default=-1), -1, -1):
        leaves = by_depth.get(depth, [])
        counts = [pending_counts[leaf] for leaf in leaves]
        yield depth, np.repeat(np.array(leaves, np.int32), counts)


def _allocated_before(usage: QueueUsage, queue: Index, leaves: Index, costs: GangCosts) -> Floats:
    """(resources, n) what each queue has before each turn; turns of a queue are adjacent."""
    by_pod, pods = costs.by_pod(leaves), np.concatenate(([0], np.cumsum(costs.pods[leaves])))
    allocated = np.empty((len(by_pod), len(queue)))
    starts = np.flatnonzero(queue[1:] != queue[:-1]) + 1
    for start, end in pairwise((0, *starts.tolist(), len(queue))):
        before = usage.allocated[:, queue[start]]
        sums = cumulative_usage(before, by_pod[:, pods[start] : pods[end]])
        allocated[:, start:end] = sums[:, pods[start:end] - pods[start]]
    return allocated
