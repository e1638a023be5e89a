"""Spare nodes of queues: only gangs that repair a loss may use them.

A queue names its spares by a label selector (``spec.spares``). A gang of the queue, or of one below
it, *repairs* while it has fewer running pods than its minimum and had enough before: a node or a
device failed under it, or it restarts because of that. A gang that was evicted for another one does
not repair, nor does one that grows or starts for the first time.

That a gang has run is remembered by its owner's uid, for ``REMEMBERED_SECONDS`` after it was last
seen. After a restart of the scheduler a gang is known to have run by the pods that it still has.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from kai_py.grouping.gang import is_satisfied
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.label_selector import label_selector_matches
from kai_py.snapshot.nodes import NodeColumns
from kai_py.snapshot.tables.queue_tree import QueueTable
from kai_py.snapshot.tables.queues import QueueInfo

REMEMBERED_SECONDS = 900.0
"""How long a framework may take to create the pods of a failed gang again."""

Rows = tuple[int, ...]


def spare_rows(queues: Iterable[QueueInfo], nodes: NodeColumns) -> dict[str, Rows]:
    """Rows of the spares of each queue that has any; O(nodes x queues with spares)."""
    found: dict[str, Rows] = {}
    for queue in queues:
        if queue.spares is not None:
            found[queue.name] = tuple(
                row
                for row, node in enumerate(nodes.records)
                if label_selector_matches(queue.spares, node.metadata.labels)
            )
    return found


@dataclass
class StartedGangs:
    """Owners, by uid, of gangs that have run with their minimum, and when they were last seen."""

    _seen: dict[str, float] = field(default_factory=dict)
    _evicted: dict[str, float] = field(default_factory=dict)

    def observe(self, gangs: Iterable[Gang], now: float) -> None:
        """Take in the gangs of a cycle; O(gangs)."""
        for gang in gangs:
            uid = gang.owner.uid
            if _has_minimum(gang):
                self._seen[uid] = now
                self._evicted.pop(uid, None)
            elif uid in self._seen:
                self._seen[uid] = now
            elif uid in self._evicted:
                self._evicted[uid] = now
        self._seen = _recent(self._seen, now)
        self._evicted = _recent(self._evicted, now)

    def record_evicted(self, gangs: Iterable[Gang], now: float) -> None:
        """These gangs lost pods to others: what they lack is no loss to repair."""
        for gang in gangs:
            self._seen.pop(gang.owner.uid, None)
            self._evicted[gang.owner.uid] = now

    def repairs(self, gang: Gang) -> bool:
        """Whether ``gang`` has lost pods that it needs, not to other gangs."""
        if gang.owner.uid in self._evicted or _has_minimum(gang):
            return False
        remains = bool(gang.bound) and not gang.starts_in_part
        return remains or gang.owner.uid in self._seen


@dataclass(frozen=True)
class Spares:
    """The spare nodes in a cycle: by queue, and the gangs that may use them."""

    rows: Mapping[str, Rows] = field(default_factory=dict)
    queues: QueueTable | None = None
    started: StartedGangs = field(default_factory=StartedGangs)

    @cached_property
    def exist(self) -> bool:
        """Whether any node is a spare."""
        return any(self.rows.values())

    def usable(self, gang: Gang) -> Rows:
        """The spares that ``gang`` may use now."""
        if not self.exist or not self.started.repairs(gang):
            return ()
        above = self._queues_of(gang)
        return _union(rows for name, rows in self.rows.items() if name in above)

    def closed(self, gang: Gang) -> Rows:
        """The spares that ``gang`` may not use now."""
        if not self.exist:
            return ()
        usable = frozenset(self.usable(gang))
        return tuple(row for row in _union(self.rows.values()) if row not in usable)

    def _queues_of(self, gang: Gang) -> Container[str]:
        if self.queues is None or gang.queue not in self.queues.positions:
            return (gang.queue,)
        ancestors = self.queues.ancestors(self.queues.positions[gang.queue])
        return tuple(self.queues.names[each] for each in ancestors.tolist())


def _union(rows: Iterable[Rows]) -> Rows:
    return tuple(sorted({row for each in rows for row in each}))


def _has_minimum(gang: Gang) -> bool:
    return bool(gang.bound) and is_satisfied(
        gang.tree, Counter(member.subgroup for member in gang.bound)
    )


def _recent(seen: Mapping[str, float], now: float) -> dict[str, float]:
    return {uid: at for uid, at in seen.items() if now - at <= REMEMBERED_SECONDS}
