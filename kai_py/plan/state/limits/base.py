"""Node limits beside resources, such as host ports, NUMA zones and attachable volumes.

A limit knows how many pods of a shape it admits to each node and follows what a statement places
and evicts; it costs nothing for pods that it does not concern. Advisory limits refuse no pod and
are only followed, because the preferred node of a pod depends on them.

``AllocatedItems`` counts the users of each item by node: an item is free again when its last user
has left. Users are counted now (idle) and once terminating pods have left and nominated pods have
come (future idle); a pod that starts now must find its items free in both. ``ReplicaCache``
computes replicas for all limited nodes once and then only for those that changed.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import reduce
from typing import Generic, Protocol, TypeVar

import numpy as np
from msgspec import Struct

from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.undo import Undo
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape


class NodeLimit(Protocol):
    """One limit; ``reason``: the unschedulable reason of nodes that have nothing left of it."""

    reason: str

    def applies_to(self, shape: Shape) -> bool:
        """Whether pods of the shape use any of it."""

    def replicas(self, shape: Shape, capacity: Capacity, max_replicas: int) -> Ints:
        """(nodes,) int64: pods of a shape it applies to for which enough is left.

        Exact up to ``max_replicas`` pods.
        """

    def allocate(self, member: Member, row: int, capacity: Capacity) -> Undo | None:
        """Allocate what the pod needs on a node; None where not enough is left."""

    def release(self, member: Member, row: int) -> Undo:
        """Free, in future idle capacity, what the pod has allocated on its node."""


class NodeLimits:
    """All limits together."""

    def __init__(self, limits: Sequence[NodeLimit], advisory: Sequence[NodeLimit] = ()) -> None:
        """``advisory``: limits that are followed and refuse no pod."""
        self._limits = tuple(limits)
        self._advisory = tuple(advisory)
        self._refusing: dict[int, tuple[NodeLimit, ...]] = {}
        self._tracked: dict[int, tuple[NodeLimit, ...]] = {}

    def refusing(self, shape: Shape) -> tuple[NodeLimit, ...]:
        """The limits that may refuse pods of the shape; for most shapes none."""
        cached = self._refusing.get(shape.number)
        if cached is None:
            cached = tuple(limit for limit in self._limits if limit.applies_to(shape))
            self._refusing[shape.number] = cached
        return cached

    def tracked(self, shape: Shape) -> tuple[NodeLimit, ...]:
        """The limits that may refuse pods of the shape, and the advisory ones that they use."""
        if not self._advisory:
            return self.refusing(shape)
        cached = self._tracked.get(shape.number)
        if cached is None:
            advisory = (each for each in self._advisory if each.applies_to(shape))
            cached = self._tracked[shape.number] = (*self.refusing(shape), *advisory)
        return cached

    def replicas(self, shape: Shape, capacity: Capacity, max_replicas: int) -> Ints | None:
        """(nodes,) pods that all limits admit, exact up to ``max_replicas``; None: unlimited."""
        limits = self.refusing(shape)
        if not limits:
            return None
        return reduce(
            np.minimum, (limit.replicas(shape, capacity, max_replicas) for limit in limits)
        )

    def allocate(self, member: Member, row: int, capacity: Capacity) -> list[Undo] | None:
        """Allocate what the pod needs of each limit; None, and nothing, where one is exhausted."""
        done: list[Undo] = []
        for limit in self.tracked(member.shape):
            undo = limit.allocate(member, row, capacity)
            if undo is None:
                for each in reversed(done):
                    each()
                return None
            done.append(undo)
        return done

    def release(self, member: Member, row: int) -> Sequence[Undo]:
        """Free, in future idle capacity, what the pod has allocated of each limit."""
        limits = self.tracked(member.shape)
        return [limit.release(member, row) for limit in limits] if limits else ()

    def shortages(self, shape: Shape, mask: Bools, counted: Ints) -> tuple[list[str], Bools]:
        """How many nodes in ``mask`` have too little of each limit for one more pod.

        ``counted``: (nodes,) int64, pods that are counted on each node and not allocated. A node
        counts for the first limit that refuses it; (nodes,) bool: those that none does.
        """
        texts: list[str] = []
        most = int(counted.max(initial=0)) + 1
        for limit in self.refusing(shape):
            refused = mask & (limit.replicas(shape, Capacity.IDLE, most) <= counted)
            if refused.any():
                texts.append(f"{np.count_nonzero(refused)} {limit.reason}")
                mask = mask & ~refused
        return texts, mask


Item = TypeVar("Item")


class AllocatedItems(Generic[Item]):
    """Users of each item, by node row; a node is counted when it is first asked for."""

    def __init__(self, allocated: Mapping[int, Sequence[tuple[Item, bool]]]) -> None:
        """``allocated``: per node each item, once per user, and whether that user terminates."""
        self._allocated = allocated
        self._counts: dict[int, tuple[Counter[Item], Counter[Item]]] = {}

    @property
    def rows(self) -> list[int]:
        """Rows of the nodes on which anything is, or was, allocated; in order."""
        return sorted(self._allocated.keys() | self._counts.keys())

    def on(self, row: int, capacity: Capacity) -> dict[Item, None]:
        """The items that are not free on a node for pods that start now, or later."""
        if row not in self._allocated and row not in self._counts:
            return {}
        idle, future_idle = self._users(row)
        users = future_idle if capacity is Capacity.FUTURE_IDLE else idle + future_idle
        # Evicted pods are only in the idle counts, placed ones only in the future idle counts.
        return {item: None for item, pods in users.items() if pods > 0}

    def allocate(self, row: int, items: Sequence[Item]) -> Undo:
        """Count one more user of each item; returns the undo."""
        self._change_count(row, items, 1)
        return lambda: self._change_count(row, items, -1)

    def release(self, row: int, items: Sequence[Item]) -> Undo:
        """Count one user less of each item, in future idle capacity; returns the undo."""
        self._change_count(row, items, -1)
        return lambda: self._change_count(row, items, 1)

    def _users(self, row: int) -> tuple[Counter[Item], Counter[Item]]:
        """Users of the items of a node now, and once terminating pods have gone."""
        known = self._counts.get(row)
        if known is None:
            users = self._allocated.get(row, ())
            known = self._counts[row] = (
                Counter(item for item, _ in users),
                Counter(item for item, terminates in users if not terminates),
            )
        return known

    def _change_count(self, row: int, items: Sequence[Item], change: int) -> None:
        counter = self._users(row)[1]
        for item in items:
            counter[item] += change


CountReplicas = Callable[[int, Shape, Capacity, int], int]
"""From node row, shape, capacity and ``max_replicas`` to pods, exact up to the last."""


class _CachedReplicas(Struct):
    """(nodes,) pods, exact up to ``max_replicas``; how many of the changes they include."""

    replicas: Ints
    max_replicas: int
    changes_seen: int


class ReplicaCache:
    """Replicas by shape and capacity on the nodes that have the limit; elsewhere unlimited."""

    def __init__(self, nodes: int, limited: Collection[int]) -> None:
        """``limited``: rows of the nodes on which replicas are counted."""
        self._nodes = nodes
        self._limited = limited
        self._known: dict[tuple[int, Capacity], _CachedReplicas] = {}
        self._changes: list[int] = []

    def mark_changed(self, row: int) -> None:
        """Recompute a node's replicas at the next request."""
        self._changes.append(row)

    def replicas(
        self, shape: Shape, capacity: Capacity, max_replicas: int, count_replicas: CountReplicas
    ) -> Ints:
        """(nodes,) pods of the shape, at least ``max_replicas`` without a limit; read-only."""
        cached = self._known.get((shape.number, capacity))
        rows: Iterable[int] = self._limited
        if cached is None or cached.max_replicas < max_replicas:
            cached = _CachedReplicas(
                np.full(self._nodes, max_replicas, dtype=np.int64), max_replicas, 0
            )
            self._known[shape.number, capacity] = cached
        else:
            rows = dict.fromkeys(self._changes[cached.changes_seen :])
        cached.changes_seen = len(self._changes)
        for row in rows:
            cached.replicas[row] = count_replicas(row, shape, capacity, cached.max_replicas)
        return cached.replicas
