"""Queue order: which queue places its next gang first, and which gang of the queue that is.

Between queues the first difference decides; a smaller key goes first:

1. Over its fair share or not. kai profile: over in every resource; native: in some resource that
   its gang requests, or, without a weight, where its gang would exceed what it deserves.
2. Within what it deserves with its gang, or not. kai: in all resources; native: in those that its
   gang requests.
3. Higher priority.
4. Would use a resource of which it may have none, or not.
5. Dominant share with its gang: max over resources of (allocated + gang - released) / allocatable.
6. Dominant share without the gang.
7. Less allocatable, resource by resource: the weaker queue.
8. Older, then by name.

So starved queues come before those that borrow, guarantees before priorities, and among equals the
one with the smallest part of its share (dominant resource fairness; Ghodsi et al., NSDI 2011). Keys
of one queue do not depend on other queues: the order is total, and a change of one queue moves only
that queue and its ancestors. Victims are taken in the reverse order (``victim_queue_order``), with
what was already taken from a queue as ``released``. In the tree an inner queue competes with the
gang of the best of its children.

``QueueOrder`` keeps this order up to date while a cycle places gangs: every inner queue (and the
cluster) has a heap of its children by key. A change of one leaf gives new keys only to the leaf and
its ancestors. Outdated heap entries are dropped when they surface. O(depth x (resources + log
siblings)) per change, O(1) to read.

Inside a queue the gang with the smaller key goes first:

1. Higher priority; with *ageing*, including the points gained by waiting, so that work of low
   priority is served in the end.
2. Below minMember, before at minMember, before above it.
3. Older, then by name.

The order is total. Ageing changes the order, not which gangs may be evicted.

*Rotation* precedes all that, over all queues: a gang whose victim search ran out of budget comes
after all gangs that did not, and of several the one that ran out the longest ago comes first. So no
gang heads two cycles with the same search, and every gang has its turn however small the budget.
"""

import heapq
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from kai_py.policy.fairness_rules import ComparedResources, FairnessRules
from kai_py.policy.queue_usage import QueueUsage, exceeds
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.resources import Bools, Floats
from kai_py.snapshot.tables.queue_tree import Index

NO_SHARE_PENALTY = 1000.0
"""Dominant share per unit allocated of a resource of which nothing may be allocated."""


def by_priority_and_age(gang: Gang) -> tuple[int, float, str]:
    """The rank of a gang among those of all queues, where no share of a queue decides."""
    return -gang.priority, gang.created, gang.key


def order_keys(
    usage: QueueUsage,
    at: Index,
    request: Floats,
    rules: FairnessRules,
    released: Floats | None = None,
    *,
    allocated_before: Floats | None = None,
    compared: Bools | None = None,
) -> Floats:
    """(keys, n) the keys of the queues ``at`` (n,), most significant first.

    ``request`` (resources, n) is that of each queue's next gang, ``released`` what was taken from
    the queue already, ``allocated_before`` what it has if that differs from its current usage.
    ``compared`` (resources,): those that decide in the native profile, if not the requested ones.
    """
    queues = usage.queues
    allocated = usage.allocated[:, at] if allocated_before is None else allocated_before
    fair = usage.fair[:, at]
    allocatable, deserved = usage.allocatable[:, at], queues.deserved[:, at]
    with_gang = allocated + request
    over = exceeds(allocated, fair)
    beyond = exceeds(with_gang, deserved)
    if rules.compared_resources is ComparedResources.ALL:
        is_over, is_beyond = over.all(axis=0), beyond.any(axis=0)
    else:
        decides = request > 0 if compared is None else compared[:, None]
        is_beyond = (beyond & decides).any(axis=0)
        # Without a weight nothing of the surplus falls to the queue, whatever its priority.
        over |= beyond & (queues.weight[:, at] == 0)
        is_over = (over & decides).any(axis=0)
    uses_none = ((allocatable == 0) & (with_gang > 0)).any(axis=0)
    bound = np.where(np.isinf(allocatable), usage.total[:, None], allocatable)
    left = with_gang if released is None else with_gang - released
    return np.vstack(
        (
            is_over,
            is_beyond,
            -queues.priority[at],
            uses_none,
            dominant_share(left, bound),
            dominant_share(allocated, bound),
            allocatable,
            queues.creation_order[at],
        )
    )


def dominant_share(allocated: Floats, bound: Floats) -> Floats:
    """(n,) the largest fraction allocated of any resource."""
    fraction = np.divide(allocated, bound, out=allocated * NO_SHARE_PENALTY, where=bound > 0)
    share: Floats = fraction.max(axis=0, initial=0.0)
    return share


QueueKey = tuple[float, ...]
CLUSTER = -1


class _Standing(NamedTuple):
    """What the key of a queue takes from what it has ``allocated``, whatever its gang requests.

    ``rows``: by resource what is allocated, whether that is above the fair share, the most that
    counts as deserved, what is allocatable, the same without inf, and whether there is a weight.
    """

    allocated: list[float]
    above_all: bool
    beyond: bool
    uses_none: bool
    share: float
    rows: list[tuple[float, bool, float, float, float, float]]


class QueueOrder:
    """Leaves in the order in which they may place their next gang.

    Reads ``usage.allocated`` whenever a leaf is updated; entitlements are read once.
    """

    def __init__(self, usage: QueueUsage, rules: FairnessRules) -> None:
        """No leaf has a gang yet."""
        queues = usage.queues
        self._usage, self._rules = usage, rules
        self._compares_all = rules.compared_resources is ComparedResources.ALL
        self._bounds = usage.bounds_by_queue
        self._tie_breakers = usage.tie_breakers_by_queue
        self._priority = (-queues.priority).tolist()
        self._parent = queues.parent.tolist()
        self._request: dict[int, list[float]] = {}
        self._standings: dict[int, _Standing] = {}
        self._last_update: dict[int, tuple[list[float] | None, list[list[float]]]] = {}
        self._first_leaf: dict[int, int] = {}
        self._version = [0] * len(queues)
        self._heaps: dict[int, list[tuple[QueueKey, int, int]]] = {}

    def update(self, leaf: int, request: Floats | None) -> None:
        """Set the ``request`` (resources,) of the next gang of ``leaf``, or None for no gang.

        Also to be called when what the leaf has allocated has changed.
        """
        amounts = None if request is None else request.tolist()
        usage = self._usage
        path = usage.queues.ancestry[leaf]
        state = amounts, [usage.allocated[:, each].tolist() for each in path]
        if self._last_update.get(leaf) == state:
            return
        self._last_update[leaf] = state
        if amounts is None:
            self._request.pop(leaf, None)
        else:
            self._request[leaf] = amounts
        first = leaf if amounts is not None else None
        for queue, has in zip(reversed(path), reversed(state[1]), strict=True):
            self._push(queue, first, has)
            first = self._first_in(self._parent[queue])

    def first(self) -> int | None:
        """The leaf whose gang comes next; None where no leaf has one."""
        return self._first_in(CLUSTER)

    def _push(self, queue: int, leaf: int | None, allocated: list[float]) -> None:
        """Reinsert the queue among its siblings, with ``leaf`` as its best; None removes it.

        ``allocated``: (resources,) of the queue.
        """
        self._version[queue] += 1
        if leaf is None:
            self._first_leaf.pop(queue, None)
            return
        self._first_leaf[queue] = leaf
        standing = self._standings.get(queue)
        if standing is None or standing.allocated != allocated:
            standing = self._standings[queue] = _standing(allocated, self._bounds[queue])
        entry = (self._key(queue, standing, self._request[leaf]), queue, self._version[queue])
        heapq.heappush(self._heaps.setdefault(self._parent[queue], []), entry)

    def _first_in(self, queue: int) -> int | None:
        heap = self._heaps.get(queue, [])
        while heap and self._version[heap[0][1]] != heap[0][2]:
            heapq.heappop(heap)
        return self._first_leaf[heap[0][1]] if heap else None

    def _key(self, queue: int, standing: _Standing, request: list[float]) -> QueueKey:
        """The column of ``order_keys`` for one queue."""
        _, over, beyond, uses_none, without, rows = standing
        if not self._compares_all:
            over = beyond = False
        with_gang = without
        for requested, row in zip(request, rows, strict=True):
            if requested <= 0:
                continue
            allocated, is_above, deserved, allocatable, bound, has_weight = row
            after = allocated + requested
            if after > deserved:
                beyond = True
            if not self._compares_all and (is_above or (after > deserved and not has_weight)):
                over = True
            if allocatable == 0 and after > 0:
                uses_none = True
            part = after / bound if bound > 0 else after * NO_SHARE_PENALTY
            with_gang = max(with_gang, part)
        tie_breakers = self._tie_breakers[queue]
        return over, beyond, self._priority[queue], uses_none, with_gang, without, *tie_breakers


def _standing(allocated: list[float], bounds: Sequence[Sequence[float]]) -> _Standing:
    """The standing of a queue; ``bounds``: its part of ``QueueUsage.bounds_by_queue``."""
    above_all, beyond, uses_none, share = True, False, False, 0.0
    rows: list[tuple[float, bool, float, float, float, float]] = []
    for has, (fair, deserved, allocatable, bound, has_weight) in zip(
        allocated, bounds, strict=True
    ):
        is_above = has > fair
        above_all = above_all and is_above
        beyond = beyond or has > deserved
        uses_none = uses_none or (allocatable == 0 and has > 0)
        share = max(share, has / bound if bound > 0 else has * NO_SHARE_PENALTY)
        rows.append((has, is_above, deserved, allocatable, bound, has_weight))
    return _Standing(allocated, above_all, beyond, uses_none, share, rows)


GangKey = tuple[float, int, float, str]


def gang_key(gang: Gang, elastic_rank: int, ageing_points: int = 0) -> GangKey:
    """The key of ``gang``; ``elastic_rank``: 0 below minMember, 1 at it, 2 above it."""
    return (-gang.priority - ageing_points, elastic_rank, gang.created, gang.key)


def in_rotation(gangs: Sequence[Gang], out_of_budget: Mapping[str, int]) -> list[list[Gang]]:
    """Groups of gangs in rotation order; ``out_of_budget``: cycle of the last time, by gang key."""
    if not out_of_budget:
        return [list(gangs)] if gangs else []

    def last_exhausted(gang: Gang) -> int:
        return out_of_budget.get(gang.key, -1)

    return [
        list(group) for _, group in groupby(sorted(gangs, key=last_exhausted), key=last_exhausted)
    ]
