"""What of a node is not counted as an amount, and still runs out?

Host ports, NUMA zones, volumes that can be attached: each is a limit that knows how many pods of a
shape it lets on each node, and that follows what a statement places and evicts. It costs nothing
for pods that it does not concern. Some refuse nobody and are only followed, because where a pod is
better off depends on them.

Which things are taken on which node, now and later?

A thing is held by any number of pods: it is free again when the last of them has left. *Later*
those who leave have left, and those who were promised room have come; who starts now must get along
with both.

How many pods of a shape does a limit let on each node?

Asked of all nodes that have the limit once, and then only of those where something changed.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Generic, Protocol, TypeVar

import numpy as np

from kai_py.plan.state.capacity import Capacity
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape

Undo = Callable[[], None]


class NodeLimit(Protocol):
    """One such limit; ``reason``: what is said of a node that has nothing left of it."""

    reason: str

    def applies_to(self, shape: Shape) -> bool:
        """Whether pods of the shape need any of it."""

    def replicas(self, shape: Shape, capacity: Capacity, max_replicas: int) -> Ints:
        """(nodes,) int64: so many pods of a shape that it concerns find enough of it.

        Exact up to ``most`` pods.
        """

    def allocate(self, member: Member, row: int, capacity: Capacity) -> Undo | None:
        """Take what the pod needs on a node; None where there is not enough."""

    def release(self, member: Member, row: int) -> Undo:
        """Free later what the pod holds on its node."""


class NodeLimits:
    """All of them together."""

    def __init__(self, limits: Sequence[NodeLimit], advisory: Sequence[NodeLimit] = ()) -> None:
        """``open_to_all``: those that are followed, and refuse nobody."""
        self._limits = tuple(limits)
        self._advisory = tuple(advisory)
        self._refusing: dict[int, tuple[NodeLimit, ...]] = {}
        self._tracked: dict[int, tuple[NodeLimit, ...]] = {}

    def refusing(self, shape: Shape) -> tuple[NodeLimit, ...]:
        """Those that may refuse pods of the shape: none, for most."""
        known = self._refusing.get(shape.number)
        if known is None:
            known = tuple(limit for limit in self._limits if limit.applies_to(shape))
            self._refusing[shape.number] = known
        return known

    def tracked(self, shape: Shape) -> tuple[NodeLimit, ...]:
        """Those, and the ones that pods of the shape use something of."""
        if not self._advisory:
            return self.refusing(shape)
        known = self._tracked.get(shape.number)
        if known is None:
            used = (each for each in self._advisory if each.applies_to(shape))
            known = self._tracked[shape.number] = (*self.refusing(shape), *used)
        return known

    def replicas(self, shape: Shape, capacity: Capacity, max_replicas: int) -> Ints | None:
        """(nodes,) pods that all of them let on each node, exact up to ``most``; None: any."""
        concerned = self.refusing(shape)
        if not concerned:
            return None
        return reduce(
            np.minimum, (limit.replicas(shape, capacity, max_replicas) for limit in concerned)
        )

    def allocate(self, member: Member, row: int, capacity: Capacity) -> list[Undo] | None:
        """Take what the pod needs of each; None, and nothing taken, where one has not enough."""
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
        """Free later what the pod holds of each."""
        concerned = self.tracked(member.shape)
        return [limit.release(member, row) for limit in concerned] if concerned else ()

    def shortages(self, shape: Shape, mask: Bools) -> list[str]:
        """For each, on how many of the nodes in ``mask`` one more pod finds nothing left now."""
        counts = (
            (
                int(np.count_nonzero(mask & (limit.replicas(shape, Capacity.IDLE, 1) < 1))),
                limit.reason,
            )
            for limit in self.refusing(shape)
        )
        return [f"{count} {reason}" for count, reason in counts if count]


Item = TypeVar("Item")


class AllocatedItems(Generic[Item]):
    """Holders of each thing, by node row."""

    def __init__(self, allocated: Mapping[int, Iterable[tuple[Item, bool]]]) -> None:
        """``held``: per node each thing with every holder of it, and whether that one leaves."""
        self._idle: dict[int, Counter[Item]] = {}
        self._future_idle: dict[int, Counter[Item]] = {}
        for row, things in allocated.items():
            listed = list(things)
            self._idle[row] = Counter(item for item, _ in listed)
            self._future_idle[row] = Counter(item for item, leaves in listed if not leaves)

    @property
    def rows(self) -> list[int]:
        """Nodes on which anything is, or was, held; in order."""
        return sorted(self._idle.keys() | self._future_idle.keys())

    def on(self, row: int, capacity: Capacity) -> dict[Item, None]:
        """What is taken on a node for those who come now, or later."""
        later = self._future_idle.get(row, Counter[Item]())
        both = (
            later
            if capacity is Capacity.FUTURE_IDLE
            else self._idle.get(row, Counter[Item]()) + later
        )
        return {item: None for item, holders in both.items() if holders > 0}

    def allocate(self, row: int, items: Sequence[Item]) -> Callable[[], None]:
        """One more holder of each, from now on or later; returns how to undo that."""
        _change_count(self._future_idle, row, items, 1)
        return lambda: _change_count(self._future_idle, row, items, -1)

    def release(self, row: int, items: Sequence[Item]) -> Callable[[], None]:
        """One holder less of each, later; returns how to undo that."""
        _change_count(self._future_idle, row, items, -1)
        return lambda: _change_count(self._future_idle, row, items, 1)


def _change_count(
    table: dict[int, Counter[Item]], row: int, items: Sequence[Item], change: int
) -> None:
    counter = table.setdefault(row, Counter())
    for item in items:
        counter[item] += change


CountReplicas = Callable[[int, Shape, Capacity, int], int]
"""Node row, shape, room and most to pods, exact up to most."""


@dataclass(slots=True)
class _CachedReplicas:
    """(nodes,) pods, exact up to ``most``, and how many changes they take into account."""

    replicas: Ints
    max_replicas: int
    changes_seen: int


class ReplicaCache:
    """Answers by shape and room for those nodes that have the limit; others let any number on."""

    def __init__(self, nodes: int, limited: Collection[int], count_replicas: CountReplicas) -> None:
        """``limited``: rows of the nodes that ``ask`` is asked about."""
        self._nodes = nodes
        self._limited = limited
        self._count_replicas = count_replicas
        self._known: dict[tuple[int, Capacity], _CachedReplicas] = {}
        self._changes: list[int] = []

    def mark_changed(self, row: int) -> None:
        """Ask about a node again."""
        self._changes.append(row)

    def replicas(self, shape: Shape, capacity: Capacity, max_replicas: int) -> Ints:
        """(nodes,) pods of the shape, at least ``most`` without a limit; not to be written to."""
        known = self._known.get((shape.number, capacity))
        rows: Iterable[int] = self._limited
        if known is None or known.max_replicas < max_replicas:
            known = _CachedReplicas(
                np.full(self._nodes, max_replicas, dtype=np.int64), max_replicas, 0
            )
            self._known[shape.number, capacity] = known
        else:
            rows = dict.fromkeys(self._changes[known.changes_seen :])
        known.changes_seen = len(self._changes)
        for row in rows:
            known.replicas[row] = self._count_replicas(row, shape, capacity, known.max_replicas)
        return known.replicas
