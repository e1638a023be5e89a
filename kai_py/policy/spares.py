"""Spare nodes of queues: only gangs that repair a loss may use them.

A queue names its spares by a label selector (``spec.spares``). A gang of the queue, or of one below
it, *repairs* while it has fewer running pods than its minimum and had enough before: a node or a
device failed under it, or it restarts because of that. A gang that was evicted for another one does
not repair, nor does one that grows or starts for the first time.

That a gang has run is remembered for ``REMEMBERED_SECONDS`` after it was last seen, by its owner's
uid and its key. An owner may have several gangs, such as the groups of a LeaderWorkerSet, of which
one that is new does not repair because another has run. A gang that replaces a deleted one, as when
a RayJob starts again with another cluster, counts as that one. After a restart of the scheduler a
gang is known to have run by the pods that it still has.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from kai_py.api.groups import grouped
from kai_py.api.selectors import label_selector_matches
from kai_py.api.times import happened_within
from kai_py.grouping.gang import is_satisfied
from kai_py.snapshot.gangs import Gang
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


class _Started(NamedTuple):
    """When a gang that has run was last seen, and whether it has lost pods to other gangs since."""

    seen: float
    was_evicted: bool = False


@dataclass
class StartedGangs:
    """Gangs that have run with their minimum, by the uid of their owner and their key."""

    _known: dict[str, dict[str, _Started]] = field(default_factory=dict)

    def observe(self, gangs: Iterable[Gang], now: float) -> None:
        """Take in the gangs of a cycle; O(gangs)."""
        present = grouped(gangs, lambda gang: gang.owner.uid)
        self._known = {
            uid: found
            for uid in dict.fromkeys((*self._known, *present))
            if (found := _now_known(self._known.get(uid, {}), present.get(uid, ()), now))
        }

    def record_evicted(self, gangs: Iterable[Gang], now: float) -> None:
        """These gangs lost pods to others: what they lack is no loss to repair."""
        for gang in gangs:
            self._known.setdefault(gang.owner.uid, {})[gang.key] = _Started(now, was_evicted=True)

    def repairs(self, gang: Gang) -> bool:
        """Whether ``gang`` has lost pods that it needs, not to other gangs."""
        known = self._known.get(gang.owner.uid, {}).get(gang.key)
        if _has_minimum(gang) or (known is not None and known.was_evicted):
            return False
        remains = bool(gang.bound) and not gang.starts_in_part
        return remains or known is not None


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


def _now_known(
    known: Mapping[str, _Started], present: Sequence[Gang], now: float
) -> dict[str, _Started]:
    """By key, the gangs of one owner that have run, once those ``present`` were seen."""
    found: dict[str, _Started] = {}
    keys = {gang.key for gang in present}
    gone = {
        key: each
        for key, each in known.items()
        if key not in keys and happened_within(REMEMBERED_SECONDS, each.seen, now)
    }
    for gang in present:
        if _has_minimum(gang):
            found[gang.key] = _Started(now)
        elif gang.key in known:
            found[gang.key] = known[gang.key]._replace(seen=now)
        elif gone:
            found[gang.key] = gone.pop(next(iter(gone)))._replace(seen=now)
    return found | gone
