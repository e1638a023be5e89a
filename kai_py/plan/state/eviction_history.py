"""Eviction history: which queues and gangs lost pods lately, for the limits that count them.

It is kept in memory. The status of each queue has the same records, at most one write interval
behind; they are read for queues that are new to this process, so after a restart the limits still
hold. The evictions of one gang in one cycle are one record. O(records) per cycle; a record is
dropped after an hour, or after the cooldown if that is longer.

Preemption, which is within a queue, is counted apart: a queue that could protect its pods from
others by evictions that it causes itself would need nothing but a small gang of high priority.
Relocated pods are evicted for the scheduler's reasons, whichever gang then starts.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, takewhile
from typing import NamedTuple

from msgspec.structs import replace

from kai_py.api.times import DAY, HOUR, happened_within
from kai_py.plan.plan import Action, Eviction
from kai_py.snapshot.gang_changes import NOTHING_KNOWN, GangChanges
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.tables.queues import EvictionRecord, QueueInfo

MAX_GANGS = 16_384
"""Gangs whose evictions of the last day are counted: those that were evicted last."""
MAX_RECORDS = 128
"""Per queue; the oldest beyond that are merged into one, dated as the latest of them."""


def is_within_queue(action: Action) -> bool:
    """Whether a queue does an eviction by ``action`` to its own pods."""
    return action is Action.PREEMPT


class GangEviction(NamedTuple):
    """Pods of a gang were evicted ``at``; ``within_queue``: by preemption."""

    at: float
    within_queue: bool = False


@dataclass
class EvictionHistory:
    """Records by queue, oldest first; times in seconds since the epoch.

    With ``by_others``, a method counts only evictions for gangs of other queues.
    """

    by_queue: dict[str, list[EvictionRecord]] = field(default_factory=dict)
    by_gang: dict[str, list[GangEviction]] = field(default_factory=dict)
    """When each gang lost pods within a day; in memory only."""
    _planned: dict[str, tuple[str, GangEviction, str]] = field(default_factory=dict)
    """By pod uid: the queue, the eviction and the gang; it may still be refused. Latest last."""
    _known: set[str] = field(default_factory=set)
    _started: tuple[Mapping[str, Gang], float, Sequence[Gang]] | None = None

    def restore(self, queues: Sequence[QueueInfo]) -> None:
        """Add the records in the statuses of queues that were not there at the last call."""
        before, self._known = self._known, {spec.name for spec in queues}
        for spec in queues:
            if spec.name not in before and spec.evictions:
                own = self.by_queue.get(spec.name, [])
                self.by_queue[spec.name] = sorted([*spec.evictions, *own], key=lambda it: it.at)

    def record(self, evictions: Iterable[Eviction], now: float) -> None:
        """Record evictions for the benefit of other gangs."""
        others = [it for it in evictions if it.action not in (Action.STALE, Action.DEPARTURE)]
        for each in others:
            eviction = GangEviction(now, is_within_queue(each.action))
            self._planned.pop(each.pod.uid, None)
            self._planned[each.pod.uid] = each.queue, eviction, each.gang
        counted = Counter((each.queue, each.gang, is_within_queue(each.action)) for each in others)
        for (queue, gang, within_queue), count in counted.items():
            record = EvictionRecord(gang, float(int(now)), count, within_queue)
            self.by_queue.setdefault(queue, []).append(record)
            recent = [it for it in self.by_gang.pop(gang, ()) if happened_within(DAY, it.at, now)]
            self.by_gang[gang] = [*recent, GangEviction(now, within_queue)]

    def withdraw(self, refused: Iterable[str]) -> None:
        """Forget the evictions of these pods, by uid: they were planned and then refused."""
        for uid in refused:
            if uid in self._planned:
                self._withdraw(*self._planned.pop(uid))

    def _withdraw(self, queue: str, eviction: GangEviction, gang: str) -> None:
        """Count one pod less; a gang that has lost no pod at all was not evicted."""
        wanted = gang, float(int(eviction.at)), eviction.within_queue
        records = self.by_queue.get(queue, [])
        found = [it for it in records if (it.gang, it.at, it.within_queue) == wanted]
        if not found:
            return
        position, pods = records.index(found[0]), found[0].pods - 1
        records[position : position + 1] = [replace(found[0], pods=pods)] if pods else []
        if not pods:
            kept = [each for each in self.by_gang.pop(gang, ()) if each != eviction]
            by_gang = {**self.by_gang, **({gang: kept} if kept else {})}
            # They are kept in the order of their last evictions.
            self.by_gang = dict(sorted(by_gang.items(), key=lambda item: item[1][-1].at))

    def prune(self, now: float, cooldown: float) -> None:
        """Drop records that no longer count at ``now``."""
        while self._planned:
            uid, (_, eviction, _) = next(iter(self._planned.items()))
            if happened_within(HOUR, eviction.at, now):
                break
            del self._planned[uid]
        counted = max(HOUR, cooldown)
        recent = {
            queue: [each for each in records if happened_within(counted, each.at, now)]
            for queue, records in self.by_queue.items()
        }
        self.by_queue = {
            queue: _merge_oldest(records) for queue, records in recent.items() if records
        }
        while self.by_gang:
            # In the order of their last evictions.
            first = next(iter(self.by_gang))
            last = self.by_gang[first][-1].at
            if happened_within(DAY, last, now) and len(self.by_gang) <= MAX_GANGS:
                break
            del self.by_gang[first]

    def started_since(
        self, gangs: Mapping[str, Gang], since: float, changes: GangChanges = NOTHING_KNOWN
    ) -> Sequence[Gang]:
        """All gangs of which a pod started later than ``since``, and maybe others.

        O(gangs that have changed).
        """
        if self._started is None or since < self._started[1]:
            found = [gang for gang in gangs.values() if gang.last_bound > since]
            self._started = gangs, since, found
        before, _, started = self._started
        if before is not gangs:
            stay = [g for g in started if g.last_bound > since and gangs.get(g.key) is g]
            changed = [gangs[key] for key in changes.between(before, gangs) if key in gangs]
            new = [gang for gang in changed if gang.last_bound > since]
            self._started = gangs, since, [*stay, *new]
        return self._started[2]

    @property
    def differs_by_others(self) -> bool:
        """Whether any eviction was a preemption within a queue; O(records)."""
        by_queue = chain.from_iterable(self.by_queue.values())
        by_gang = chain.from_iterable(self.by_gang.values())
        return any(it.within_queue for it in by_queue) or any(it.within_queue for it in by_gang)

    def times_of(self, gang: str, now: float, *, by_others: bool = False) -> list[float]:
        """When the gang lost pods within the last day, in ascending order."""
        recorded = self.by_gang.get(gang)
        if recorded is None:
            return []
        return [
            each.at
            for each in recorded
            if happened_within(DAY, each.at, now) and not (by_others and each.within_queue)
        ]

    def last_of(self, gang: str, now: float) -> float:
        """When the gang last lost a pod within the last day; 0: it did not."""
        return next(reversed(self.times_of(gang, now)), 0.0)

    def evicted_last_hour(self, now: float, *, by_others: bool = False) -> dict[str, int]:
        """Pods that each queue lost in the last hour."""
        return {
            queue: sum(
                each.pods
                for each in records
                if happened_within(HOUR, each.at, now) and not (by_others and each.within_queue)
            )
            for queue, records in self.by_queue.items()
        }

    def in_cooldown(
        self, now: float, cooldown: float, *, by_others: bool = False
    ) -> frozenset[str]:
        """Gangs of which a pod was evicted within ``cooldown`` seconds."""

        def counts(record: EvictionRecord | GangEviction) -> bool:
            is_recent = happened_within(cooldown, int(record.at), now)
            return is_recent and not (by_others and record.within_queue)

        recorded = (
            record.gang
            for records in self.by_queue.values()
            for record in records
            if counts(record)
        )
        # Records that were merged name one of their gangs; this process knows the others.
        last = takewhile(
            lambda gang: int(self.by_gang[gang][-1].at) > now - cooldown, reversed(self.by_gang)
        )
        known = (gang for gang in last if any(map(counts, self.by_gang[gang])))
        return frozenset(chain(recorded, known))


def _merge_oldest(records: list[EvictionRecord]) -> list[EvictionRecord]:
    """At most ``MAX_RECORDS``: the oldest become one, or one of each kind."""
    excess = len(records) - MAX_RECORDS
    if excess <= 0:
        return records
    merged, rest = records[: excess + 2], records[excess + 2 :]
    kinds = {record.within_queue: record for record in merged}
    if len(kinds) == 1:
        merged, rest = records[: excess + 1], records[excess + 1 :]
        kinds = {merged[-1].within_queue: merged[-1]}
    sums = [
        replace(last, pods=sum(record.pods for record in merged if record.within_queue is kind))
        for kind, last in kinds.items()
    ]
    return [*sorted(sums, key=lambda it: it.at), *rest]
