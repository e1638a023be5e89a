"""Who was evicted lately, and from which queue? What ``spared`` counts.

The process remembers what its plans evicted. The status of a queue holds the same, at most one
interval of writing behind, and is read back for queues that this process has not seen before: a
restart neither forgets a limit nor lets the same gang be evicted again at once. An event of one
gang in one cycle is one record. O(records) per cycle; records end after an hour or the cooldown.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from kai_py.plan.plan import Action, Eviction
from kai_py.snapshot.queue_specs import EvictionRecord, QueueSpec

HOUR = 3600.0
MOST_RECORDS = 128
"""Of one queue; the oldest of more are told as one, of the later time."""


@dataclass
class PastEvictions:
    """Records by queue, oldest first; times in seconds since the epoch."""

    by_queue: dict[str, list[EvictionRecord]] = field(default_factory=dict)
    _known: set[str] = field(default_factory=set)

    def recall(self, queues: Iterable[QueueSpec]) -> None:
        """Take over what the statuses of queues say that were not seen before."""
        for spec in queues:
            if spec.name in self._known:
                continue
            self._known.add(spec.name)
            if spec.evictions:
                own = self.by_queue.get(spec.name, [])
                self.by_queue[spec.name] = sorted([*spec.evictions, *own], key=lambda it: it.at)

    def note(self, evictions: Iterable[Eviction], now: float) -> None:
        """Pods are evicted for others."""
        pods: dict[tuple[str, str], int] = {}
        for each in evictions:
            if each.action is not Action.STALE:
                pods[each.queue, each.gang] = pods.get((each.queue, each.gang), 0) + 1
        for (queue, gang), count in pods.items():
            record = EvictionRecord(gang, float(int(now)), count)
            self.by_queue.setdefault(queue, []).append(record)

    def forget(self, now: float, cooldown: float) -> None:
        """Drop what counts no more at ``now``."""
        since = now - max(HOUR, cooldown)
        recent = {q: [it for it in kept if it.at > since] for q, kept in self.by_queue.items()}
        self.by_queue = {queue: _few(kept) for queue, kept in recent.items() if kept}

    def lost(self, now: float) -> dict[str, int]:
        """Pods that each queue lost in the last hour."""
        return {
            queue: sum(record.pods for record in kept if record.at > now - HOUR)
            for queue, kept in self.by_queue.items()
        }

    def cooling(self, now: float, cooldown: float) -> frozenset[str]:
        """Gangs of which a pod was evicted within ``cooldown``."""
        records = (record for kept in self.by_queue.values() for record in kept)
        return frozenset(record.gang for record in records if record.at > now - cooldown)


def _few(records: list[EvictionRecord]) -> list[EvictionRecord]:
    excess = len(records) - MOST_RECORDS
    if excess <= 0:
        return records
    merged, rest = records[: excess + 1], records[excess + 1 :]
    return [replace(merged[-1], pods=sum(record.pods for record in merged)), *rest]
