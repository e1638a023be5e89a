"""What of a node is not counted as an amount, and still runs out?

Host ports, NUMA zones, volumes that can be attached: each is a limit that knows how many pods of a
shape it lets on each node, and that follows what a statement places and evicts. It costs nothing
for pods that it does not concern. Some refuse nobody and are only followed, because where a pod is
better off depends on them.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Protocol

import numpy as np

from kai_py.plan.state.capacity import Room
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape

Undo = Callable[[], None]


class NodeLimit(Protocol):
    """One such limit; ``reason``: what is said of a node that has nothing left of it."""

    reason: str

    def concerns(self, shape: Shape) -> bool:
        """Whether pods of the shape need any of it."""

    def copies(self, shape: Shape, room: Room, most: int) -> Ints:
        """(nodes,) int64: so many pods of a shape that it concerns find enough of it.

        Exact up to ``most`` pods.
        """

    def take(self, member: Member, row: int, room: Room) -> Undo | None:
        """Take what the pod needs on a node; None where there is not enough."""

    def give_back(self, member: Member, row: int) -> Undo:
        """Free later what the pod holds on its node."""


class NodeLimits:
    """All of them together."""

    def __init__(self, limits: Sequence[NodeLimit], open_to_all: Sequence[NodeLimit] = ()) -> None:
        """``open_to_all``: those that are followed, and refuse nobody."""
        self._limits = tuple(limits)
        self._open = tuple(open_to_all)
        self._concerned: dict[int, tuple[NodeLimit, ...]] = {}
        self._followed: dict[int, tuple[NodeLimit, ...]] = {}

    def of(self, shape: Shape) -> tuple[NodeLimit, ...]:
        """Those that may refuse pods of the shape: none, for most."""
        known = self._concerned.get(shape.number)
        if known is None:
            known = tuple(limit for limit in self._limits if limit.concerns(shape))
            self._concerned[shape.number] = known
        return known

    def followed(self, shape: Shape) -> tuple[NodeLimit, ...]:
        """Those, and the ones that pods of the shape use something of."""
        if not self._open:
            return self.of(shape)
        known = self._followed.get(shape.number)
        if known is None:
            used = (each for each in self._open if each.concerns(shape))
            known = self._followed[shape.number] = (*self.of(shape), *used)
        return known

    def copies(self, shape: Shape, room: Room, most: int) -> Ints | None:
        """(nodes,) pods that all of them let on each node, exact up to ``most``; None: any."""
        concerned = self.of(shape)
        if not concerned:
            return None
        return reduce(np.minimum, (limit.copies(shape, room, most) for limit in concerned))

    def take(self, member: Member, row: int, room: Room) -> list[Undo] | None:
        """Take what the pod needs of each; None, and nothing taken, where one has not enough."""
        done: list[Undo] = []
        for limit in self.followed(member.shape):
            undo = limit.take(member, row, room)
            if undo is None:
                for each in reversed(done):
                    each()
                return None
            done.append(undo)
        return done

    def give_back(self, member: Member, row: int) -> Sequence[Undo]:
        """Free later what the pod holds of each."""
        concerned = self.followed(member.shape)
        return [limit.give_back(member, row) for limit in concerned] if concerned else ()

    def shortages(self, shape: Shape, mask: Bools) -> list[str]:
        """For each, on how many of the nodes in ``mask`` one more pod finds nothing left now."""
        counts = (
            (int(np.count_nonzero(mask & (limit.copies(shape, Room.NOW, 1) < 1))), limit.reason)
            for limit in self.of(shape)
        )
        return [f"{count} {reason}" for count, reason in counts if count]
