"""The order in which queues lose pods to a reclaimer: the most saturated queue comes first.

It is the reverse of the order in which queues place gangs (``queue_order``). Nothing is requested,
and what was taken from a queue already counts as released. In the native profile a queue is over
its fair share if it still is so, without what was released, in a resource that the reclaimer
requests.

Every inner queue (and the cluster) has a heap of its children. Only the leaf that comes first ever
changes, so it and its ancestors are first in their heaps. O(depth x (resources + log siblings)) per
change, O(depth) to read; queues that have no sibling left need no key.
"""

import heapq
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from kai_py.policy.fairness_rules import ComparedResources, FairnessRules
from kai_py.policy.queue_order import CLUSTER, NO_SHARE_PENALTY, QueueKey, order_keys
from kai_py.policy.queue_usage import QueueUsage
from kai_py.snapshot.resources import Floats


class VictimQueueOrder:
    """The leaf queues that may lose pods to one request.

    Reads ``usage.allocated`` when a leaf is updated; entitlements are read once.
    """

    def __init__(
        self,
        usage: QueueUsage,
        rules: FairnessRules,
        leaves: Sequence[int],
        reclaimer_request: Floats,
    ) -> None:
        """``leaves``: the positions of the queues; ``reclaimer_request``: (resources,)."""
        self._usage, self._rules = usage, rules
        self._compares_all = rules.compared_resources is ComparedResources.ALL
        self._compared: list[bool] = (reclaimer_request > 0).tolist()
        self._bounds = usage.bounds_by_queue
        self._tie_breakers = usage.tie_breakers_by_queue
        self._priority: list[int] = usage.queues.priority.tolist()
        self._parent: list[int] = usage.queues.parent.tolist()
        self._allocated: dict[int, _Allocated] = {}
        self._released: dict[int, list[float]] = {}
        self._none = [0.0] * len(usage.total)
        self._heaps: dict[int, list[tuple[QueueKey, int]]] = {}
        self._fill_heaps(leaves)

    def first(self) -> int | None:
        """The leaf that comes first; None if none is left."""
        queue = CLUSTER
        while (heap := self._heaps.get(queue)) is not None:
            if not heap:
                return None
            queue = heap[0][1]
        return queue

    def release(self, leaf: int, amount: Floats) -> None:
        """Count ``amount`` (resources,) as taken from ``leaf``, the first one."""
        amounts = amount.tolist()
        queue = leaf
        while queue != CLUSTER:
            parent = self._parent[queue]
            if len(self._heaps[parent]) > 1:
                released = self._released.get(queue)
                if released is None:
                    self._released[queue] = amounts.copy()
                else:
                    for row, released_now in enumerate(amounts):
                        released[row] += released_now
                self._move(queue, parent)
            queue = parent

    def update(self, leaf: int) -> None:
        """Order the queues again once usage of ``leaf``, the first one, has changed."""
        queue = leaf
        while queue != CLUSTER:
            parent = self._parent[queue]
            if len(self._heaps[parent]) > 1:
                self._allocated.pop(queue, None)
                self._move(queue, parent)
            queue = parent

    def remove(self, leaf: int) -> None:
        """Leave out ``leaf``, the first one, as it has no more pods to lose."""
        queue = leaf
        while queue != CLUSTER:
            parent = self._parent[queue]
            heapq.heappop(self._heaps[parent])
            if self._heaps[parent]:
                return
            queue = parent

    def _fill_heaps(self, leaves: Sequence[int]) -> None:
        """As ``_move`` would, but in arrays: O(queues x (resources + depth))."""
        ancestry = self._usage.queues.ancestry
        involved = sorted({each for leaf in leaves for each in ancestry[leaf]})
        at, nothing = np.array(involved, np.int32), np.zeros((len(self._none), len(involved)))
        keys = -order_keys(self._usage, at, nothing, self._rules, compared=np.array(self._compared))
        self._heaps[CLUSTER] = []
        for key, queue in zip(map(tuple, keys.T.tolist()), involved, strict=True):
            self._heaps.setdefault(self._parent[queue], []).append((key, queue))
        for heap in self._heaps.values():
            heapq.heapify(heap)

    def _move(self, queue: int, parent: int) -> None:
        """Move the queue, the first of its siblings, to its place among them."""
        heapq.heapreplace(self._heaps[parent], (self._key(queue), queue))

    def _key(self, queue: int) -> QueueKey:
        """The negated column of ``order_keys`` for one queue."""
        usage = self._allocated.get(queue)
        if usage is None:
            usage = self._allocated[queue] = self._read(queue)
        released = self._released.get(queue, self._none)
        over, beyond, left = usage.over, usage.beyond, 0.0
        for row, amount, most, deserved in usage.compared:
            rest = amount - released[row]
            over = over or rest > most
            beyond = beyond or rest > deserved
            if over and beyond:
                break
        for row, amount, bound in usage.shares:
            rest = amount - released[row]
            share = rest / bound if bound > 0 else rest * NO_SHARE_PENALTY
            left = max(left, share)
        return -over, -beyond, self._priority[queue], *usage.uses_none, -left, *usage.last

    def _read(self, queue: int) -> "_Allocated":
        over_all, beyond_any, uses_none, share = True, False, False, 0.0
        compared, shares = list[tuple[int, float, float, float]](), list[tuple[int, float, float]]()
        amounts: list[float] = self._usage.allocated[:, queue].tolist()
        for row, (amount, bounds) in enumerate(zip(amounts, self._bounds[queue], strict=True)):
            fair, deserved, allocatable, bound, has_weight = bounds
            over_all = over_all and amount > fair
            beyond_any = beyond_any or amount > deserved
            if self._compared[row]:
                most = fair if has_weight else min(fair, deserved)
                compared.append((row, amount, most, deserved))
            if amount > 0:
                uses_none = uses_none or allocatable == 0
                shares.append((row, amount, bound))
                share = max(share, amount / bound if bound > 0 else amount * NO_SHARE_PENALTY)
        last = (-share, *(-each for each in self._tie_breakers[queue]))
        if self._compares_all:
            return _Allocated((), shares, (-uses_none,), last, over=over_all, beyond=beyond_any)
        return _Allocated(compared, shares, (-uses_none,), last)


class _Allocated(Struct, frozen=True):
    """What a queue has allocated, by resource, as far as it decides.

    ``compared``: (row, amount, the most that is not over the fair share, deserved) of the resources
    that may be exceeded once pods are released; ``over``, ``beyond``: whether others are.
    ``shares``: (row, amount, bound of the dominant share). The other parts belong to the key.
    """

    compared: Sequence[tuple[int, float, float, float]]
    shares: Sequence[tuple[int, float, float]]
    uses_none: tuple[float]
    last: tuple[float, ...]
    over: bool = False
    beyond: bool = False
