"""Who stays for now, although the rules of fairness would let them go?

- Pods of a PodDisruptionBudget, beyond as many as may be disrupted now: the Eviction API would
  refuse, and a gang would wait for room that nobody leaves.
- Pods of a queue that lost as many as its ``maxEvictionsPerHour`` in the last hour. More at once
  than that may go together if nobody has left for an hour: the limit slows, it does not forbid.
- Gangs of which a pod was evicted less than ``eviction.cooldown`` ago.

What leaves in this cycle counts, and so does what was offered before in the same search, whether
or not it is taken. O(pods of the unit) each.

Who was evicted lately, and from which queue? What ``spared`` counts.

The process remembers what its plans evicted. The status of a queue holds the same, at most one
interval of writing behind, and is read back for queues that this process has not seen before: a
restart neither forgets a limit nor lets the same gang be evicted again at once. An event of one
gang in one cycle is one record. O(records) per cycle; records end after an hour or the cooldown.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from kai_py.plan.plan import Action, Eviction
from kai_py.plan.state.statement import Evicted
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.queue_specs import EvictionRecord, QueueSpec, inherited
from kai_py.snapshot.snapshot import Snapshot

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


class Evictable(Protocol):
    """Pods of one gang that are evicted together."""

    @property
    def gang(self) -> Gang:
        """The gang that loses them."""

    @property
    def members(self) -> Sequence[Member]:
        """The pods."""


Unit = TypeVar("Unit", bound=Evictable)


class Spared:
    """What decides in one cycle who stays; ``cooldown`` in seconds."""

    def __init__(self, snapshot: Snapshot, past: PastEvictions, cooldown: float) -> None:
        """As of ``snapshot.now``."""
        self.withheld: dict[str, str] = {}
        """Queue to what keeps some of its pods, as far as anybody was asked for them."""
        past.recall(snapshot.queues)
        past.forget(snapshot.now, cooldown)
        self._past, self._cooldown, self._now = past, cooldown, snapshot.now
        self._limits = inherited(snapshot.queues, lambda spec: spec.max_evictions_per_hour)
        self._allowed = [budget.allowed for budget in snapshot.budgets]
        self._names = [budget.name for budget in snapshot.budgets]
        self._budgets: dict[str, list[int]] = {}
        for position, budget in enumerate(snapshot.budgets):
            for uid in budget.pods:
                self._budgets.setdefault(uid, []).append(position)

    @property
    def is_open(self) -> bool:
        """Whether nobody is spared."""
        return not (self._limits or self._allowed or self._cooldown)

    def offered(self, units: Iterator[Unit], leaving: Mapping[str, Evicted]) -> Iterator[Unit]:
        """Those of ``units`` that may go, together with who is ``leaving`` (by pod uid)."""
        if self.is_open:
            yield from units
            return
        cooling = self._past.cooling(self._now, self._cooldown)
        lost, disrupted = self._losses(leaving), [0] * len(self._allowed)
        self._disrupt(disrupted, leaving)
        for unit in units:
            queue, pods = unit.gang.queue, [member.pod.uid for member in unit.members]
            if unit.gang.key in cooling:
                self.withheld[queue] = "eviction.cooldown"
                continue
            if self._is_slowed(queue, lost.get(queue, 0), len(pods)):
                self.withheld[queue] = f"maxEvictionsPerHour, which is {self._limits[queue]}"
                continue
            more = disrupted.copy()
            self._disrupt(more, pods)
            refused = next(
                (
                    name
                    for name, before, after, allowed in zip(
                        self._names, disrupted, more, self._allowed, strict=True
                    )
                    if after > max(before, allowed)
                ),
                None,
            )
            if refused is not None:
                self.withheld[queue] = f"PodDisruptionBudget {refused}"
                continue
            disrupted = more
            lost[queue] = lost.get(queue, 0) + len(pods)
            yield unit

    @contextmanager
    def noting(self) -> Iterator[Mapping[str, str]]:
        """What comes to be ``withheld`` in the block."""
        before, self.withheld = self.withheld, {}
        try:
            yield self.withheld
        finally:
            self.withheld = {**before, **self.withheld}

    def standing(self) -> Hashable:
        """What of the past decides now, as far as it spares anybody."""
        if self.is_open:
            return None
        cooling = self._past.cooling(self._now, self._cooldown)
        return tuple(sorted(self._past.lost(self._now).items())), cooling

    def remembered(self, queue: str) -> tuple[EvictionRecord, ...]:
        """Past evictions of a queue, as far as they may still spare anybody."""
        if not self._cooldown and queue not in self._limits:
            return ()
        return tuple(self._past.by_queue.get(queue, ()))

    def _losses(self, leaving: Mapping[str, Evicted]) -> dict[str, int]:
        lost = self._past.lost(self._now)
        for victim in leaving.values():
            lost[victim.gang.queue] = lost.get(victim.gang.queue, 0) + 1
        return lost

    def _is_slowed(self, queue: str, lost: int, more: int) -> bool:
        limit = self._limits.get(queue)
        return limit is not None and (not limit or (lost > 0 and lost + more > limit))

    def _disrupt(self, disrupted: list[int], pods: Iterable[str]) -> None:
        for uid in pods:
            for position in self._budgets.get(uid, ()):
                disrupted[position] += 1
