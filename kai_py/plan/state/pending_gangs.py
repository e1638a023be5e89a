"""Facts about all pending gangs that several steps of a cycle need, computed once per change."""

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter

from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot


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
        return tuple([gang for gang in self.all if not gang.attempts_exhausted])

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
        return Counter(map(attrgetter("queue"), self.all))

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
