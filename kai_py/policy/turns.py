"""In which order do queues take turns when every gang that waits costs the same?

What ``QueueLine`` says step by step, at once. With one cost for all, the key of a queue at its j-th
turn depends on j alone: it holds j times the cost more. No part of a key (``queue_order``) falls as
a queue takes more, so taking the least head again and again is merging sorted lines, and that is
one sort. It is done among siblings; from the roots down, every turn of a queue is then handed to
the child whose turn it is. O(depth x turns x log turns).
"""

from collections.abc import Iterable, Mapping

import numpy as np

from kai_py.policy.queue_order import order_keys
from kai_py.policy.rules import Rules
from kai_py.policy.standing import Standing, exceeds
from kai_py.snapshot.queues import Index, QueueTable
from kai_py.snapshot.resources import Bools, Floats, Ints


def turns(standing: Standing, waiting: Mapping[int, int], cost: Floats, rules: Rules) -> Index:
    """(n,) leaves in the order of their turns, up to the first that would pass a ``max``.

    ``waiting``: leaf to how many gangs it has. ``cost`` (resources,): of each of them, no less
    than 0.
    """
    queues = standing.queues
    counts = _turns_of_each(queues, waiting)
    at = np.repeat(np.arange(len(queues), dtype=np.int32), counts)
    busy = np.flatnonzero(counts).tolist()
    held = np.hstack([taken(standing.allocated[:, q], cost, counts[q])[:, :-1] for q in busy])
    request = np.broadcast_to(cost[:, None], held.shape)
    keys = order_keys(standing, at, request, rules, held=held)
    siblings = at[np.lexsort((*keys[::-1], queues.parent[at]))]
    asked = cost[:, None] > 0
    over: Bools = np.any(exceeds(held + request, queues.max[:, at]) & asked, axis=0)
    return _from_the_roots(queues, counts, siblings, over)


def taken(held: Floats, cost: Floats, count: int) -> Floats:
    """(resources, count + 1) what is held after each of ``count`` turns, added one by one."""
    steps = np.repeat(cost[:, None], count + 1, axis=1)
    steps[:, 0] = held
    sums: Floats = np.add.accumulate(steps, axis=1)
    return sums


def _turns_of_each(queues: QueueTable, waiting: Mapping[int, int]) -> Ints:
    counts = np.zeros(len(queues), dtype=np.int64)
    for leaf, count in waiting.items():
        counts[list(queues.lines[leaf])] += count
    return counts


def _from_the_roots(queues: QueueTable, counts: Ints, siblings: Index, over: Bools) -> Index:
    """Hand every turn down to a leaf.

    ``siblings``: children in the order of their turns, grouped by parent; ``over``: by queue and
    turn of it, whether that turn passes its max.
    """
    parents = queues.parent[siblings]
    turn = siblings[parents < 0]
    end = len(turn)
    for level in _depths(queues):
        by_queue = np.argsort(turn, kind="stable")
        reached = np.zeros(len(queues), dtype=np.bool_)
        reached[turn] = True
        passed = by_queue[over[np.repeat(reached, counts)]]
        end = min(end, int(passed.min(initial=end)))
        inner = by_queue[~queues.is_leaf[turn[by_queue]]]
        turn[inner] = siblings[(parents >= 0) & (queues.depth[siblings] == level + 1)]
    return turn[:end]


def _depths(queues: QueueTable) -> Iterable[int]:
    return range(len(queues.level_starts) - 1)
