"""Facts about all pending gangs that several steps of a cycle need, computed once per change.

Among them the due amounts: what queues are entitled to, as far as their pending gangs could use it
now.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from kai_py.plan.state.queues import Quota
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.resources import Floats
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.queue_tree import QueueTable


@dataclass
class PendingGangs:
    """The gangs of a snapshot, all by key, and the keys of those that are pending."""

    _gangs: Mapping[str, Gang] = field(default_factory=dict)
    _pending: tuple[str, ...] = ()

    def updated(self, snapshot: Snapshot) -> "PendingGangs":
        """The pending gangs of ``snapshot``; the same object as long as no gang changes."""
        # Snapshots share the mapping as long as every gang in it is the same.
        if snapshot.gangs is self._gangs and snapshot.pending == self._pending:
            return self
        return PendingGangs(snapshot.gangs, snapshot.pending)

    @cached_property
    def all(self) -> tuple[Gang, ...]:
        """The pending gangs, by key."""
        return tuple([self._gangs[key] for key in self._pending])

    @cached_property
    def tried(self) -> tuple[Gang, ...]:
        """The gangs that have attempts left."""
        return tuple([gang for gang in self.all if not gang.settings.attempts_exhausted])

    @cached_property
    def tried_keys(self) -> Set[str]:
        """The keys of these."""
        return frozenset([gang.key for gang in self.tried])

    @cached_property
    def gated(self) -> tuple[Gang, ...]:
        """The gangs with a pod that only our scheduling gate holds."""
        return tuple([gang for gang in self.all if gang.has_our_gate])

    @cached_property
    def by_queue(self) -> Mapping[str, int]:
        """How many each queue has."""
        counts = Counter[str]()
        for gang, number in self.sizes:
            counts[gang.queue] += number
        return counts

    @cached_property
    def sizes(self) -> tuple[tuple[Gang, int], ...]:
        """One of each queue and size, and how many there are."""
        return tuple(_by_size(self.all))

    @cached_property
    def shapes(self) -> Mapping[int, Shape]:
        """The shapes of their pending pods, by number."""
        shapes: dict[int, Shape] = {}
        for gang in self.all:
            shapes.update(gang.pending_shapes)
        return shapes


def _by_size(pending: tuple[Gang, ...]) -> Iterator[tuple[Gang, int]]:
    by_size: dict[tuple[str, int, int], tuple[Gang, int]] = {}
    for gang in pending:
        charge = gang.common_charge
        if charge is None:
            yield gang, 1
            continue
        # The gangs keep their charges alive, so an id stands for one charge.
        size = gang.queue, id(charge), len(gang.pending)
        found = by_size.get(size)
        by_size[size] = (gang, 1) if found is None else (found[0], found[1] + 1)
    yield from by_size.values()


Sizes = tuple[tuple[Gang, int], ...]
"""Pending gangs, each with how many of its queue are of its size."""


@dataclass(slots=True)
class LastDue:
    """The last result of ``due_amounts`` with its inputs; the result is read-only."""

    pending: Sizes = ()
    queues: QueueTable | None = None
    usage: tuple[bytes, bytes] = (b"", b"")
    found: Floats = field(default_factory=lambda: np.zeros((0, 0)))


def due_amounts(pending: Sizes, quota: Quota, last: LastDue) -> Floats:
    """(resources, queues) what queues are entitled to and could use now.

    That is what they have allocated, and as many of their pending gangs, the smallest first, as fit
    into their fair shares with it. Gangs beyond the share do not count: the queue is not entitled
    to their capacity. O(sizes x depth) once the pending gangs, or usage or shares, have changed.
    """
    usage = quota.usage.allocated.tobytes(), quota.usage.fair.tobytes()
    if pending is not last.pending or quota.queues is not last.queues or usage != last.usage:
        last.found = _due_amounts(pending, quota)
        last.pending, last.queues, last.usage = pending, quota.queues, usage
    return last.found


def _due_amounts(pending: Sizes, quota: Quota) -> Floats:
    usage, counts = quota.usage, dict[tuple[float, int, tuple[float, ...]], int]()
    for gang, number in pending:
        queue = quota.queue_of(gang)
        if queue is not None:
            charge, pods = gang.common_charge, gang.pending
            cost = quota.cost_of(pods) if charge is None else quota.cost(charge) * len(pods)
            amounts = tuple(cost.tolist())
            size = math.fsum(amounts), queue, amounts
            counts[size] = counts.get(size, 0) + number
    # Lists, as a handful of amounts at a time are no work for arrays.
    due, fair = usage.allocated.tolist(), usage.fair.tolist()
    paths = quota.queues.ancestry
    for (_, queue, amounts), count in sorted(counts.items(), key=lambda size: size[0][:2]):
        cells = [(row, at) for row, each in enumerate(amounts) if each > 0 for at in paths[queue]]
        # Most of many sizes do not fit; the first cell shows that.
        if not cells or any(
            fair[row][at] - due[row][at] + 1e-9 < amounts[row] for row, at in cells
        ):
            continue
        fitting = [(fair[row][at] - due[row][at] + 1e-9) / amounts[row] for row, at in cells]
        number = math.floor(min(*fitting, count))
        for row, at in cells:
            due[row][at] += amounts[row] * number
    return np.array(due)
