"""In which order do queues take turns when all gangs that wait in a queue cost the same?

What ``QueueLine`` says step by step, at once. A queue whose gangs all cost the same holds that much
more at each of its turns, so its keys (``queue_order``) are known beforehand. A queue above takes
its turns as its children take theirs, in their order, which says what it holds at each of them.
While all gangs ask for the same resources, however much, no part of a key falls as a queue takes
more: taking the least head again and again is merging sorted lines, and that is one sort of the
turns of each level, from the leaves up. O(depth x turns x log turns).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kai_py.policy.fairness_rules import FairnessRules
from kai_py.policy.queue_order import order_keys
from kai_py.policy.queue_usage import QueueUsage, exceeds
from kai_py.snapshot.resources import Floats, Ints
from kai_py.snapshot.tables.queue_tree import Index, QueueTable


@dataclass(frozen=True, slots=True)
class GangCosts:
    """What each gang of a leaf costs: ``pods`` (queues,) pods, each ``pod`` (resources, queues).

    No less than 0.
    """

    pod: Floats
    pods: Ints

    def request_same_resources(self, leaves: Sequence[int]) -> bool:
        """Whether the gangs of all ``leaves`` cost the same resources, however much of them."""
        asked = self.pod[:, leaves] > 0
        return bool((asked == asked[:, :1]).all())

    def by_pod(self, leaves: Index) -> Floats:
        """(resources, pods) what the pods cost of gangs that take the turns of ``leaves`` (n,)."""
        costs: Floats = self.pod[:, np.repeat(leaves, self.pods[leaves])]
        return costs


def round_robin_order(
    usage: QueueUsage, pending_counts: Mapping[int, int], costs: GangCosts, rules: FairnessRules
) -> Index:
    """(n,) leaves in the order of their turns, up to the first that would pass a ``max``.

    ``waiting``: leaf to how many gangs it has. All their ``costs`` are of the same resources.
    """
    queues = usage.queues
    leaves, over = np.empty(0, np.int32), np.empty(0, np.bool_)
    for depth, own in _leaves_by_depth(queues, pending_counts):
        leaves = np.concatenate((leaves, own))
        queue, request = queues.path[leaves, depth], costs.pod[:, leaves] * costs.pods[leaves]
        held = _allocated_before(usage, queue, leaves, costs)
        passes = exceeds(held + request, queues.max[:, queue]) & (request > 0)
        over = np.append(over, np.zeros(len(own), np.bool_)) | passes.any(axis=0)
        keys = order_keys(usage, queue, request, rules, allocated_before=held)
        merged = np.lexsort((*keys[::-1], queues.parent[queue]))
        leaves, over = leaves[merged], over[merged]
    return leaves[: int(over.argmax())] if over.any() else leaves


def cumulative_usage(allocated: Floats, costs: Floats) -> Floats:
    """(resources, n + 1) what is held before each of ``costs`` (resources, n) and in the end.

    They are added one by one.
    """
    steps = np.empty((len(allocated), costs.shape[1] + 1))
    steps[:, 0], steps[:, 1:] = allocated, costs
    sums: Floats = np.add.accumulate(steps, axis=1)
    return sums


def _leaves_by_depth(
    queues: QueueTable, pending_counts: Mapping[int, int]
) -> Iterator[tuple[int, Index]]:
    """Every depth, from the deepest leaf up to the roots, with the turns of the leaves there."""
    lines: dict[int, list[int]] = {}
    for leaf in sorted(pending_counts):
        lines.setdefault(int(queues.depth[leaf]), []).append(leaf)
    for depth in range(max(lines, default=-1), -1, -1):
        leaves = lines.get(depth, [])
        counts = [pending_counts[leaf] for leaf in leaves]
        yield depth, np.repeat(np.array(leaves, np.int32), counts)


def _allocated_before(usage: QueueUsage, queue: Index, leaves: Index, costs: GangCosts) -> Floats:
    """(resources, n) what each queue holds before each turn; turns of a queue stand together."""
    by_pod, pods = costs.by_pod(leaves), np.concatenate(([0], np.cumsum(costs.pods[leaves])))
    held = np.empty((len(by_pod), len(queue)))
    starts = np.flatnonzero(queue[1:] != queue[:-1]) + 1
    for start, end in pairwise((0, *starts.tolist(), len(queue))):
        before = usage.allocated[:, queue[start]]
        sums = cumulative_usage(before, by_pod[:, pods[start] : pods[end]])
        held[:, start:end] = sums[:, pods[start:end] - pods[start]]
    return held
