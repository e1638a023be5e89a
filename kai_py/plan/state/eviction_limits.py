"""Eviction limits: what protects pods although fairness would allow their eviction.

- A PodDisruptionBudget protects its pods beyond the number that may be disrupted now: the Eviction
  API would refuse, and a gang would wait for capacity that is never released. Of a pod that several
  budgets select it refuses every eviction, whatever they allow.
- ``maxEvictionsPerHour`` protects the pods of a queue that lost that many in the last hour. A
  larger unit may be evicted if the queue lost none for an hour: the limit slows evictions down, it
  does not prevent them.
- ``eviction.cooldown`` protects gangs that lost a pod within that time.
- ``eviction.settlingTime`` protects pods that started within that time and are expected to end by
  themselves. Other pods that started within it are only protected from relocation
  (``has_settled``).

Workloads that would fail for good are protected elsewhere: their pods are in no unit
(``victims.units``).

Evictions of this cycle count, and so do all units that were yielded before in the same search,
whether or not they became victims. O(pods of the unit) each.

The history of evictions is kept in memory. The status of each queue has the same records, at most
one write interval behind; they are read for queues that are new to this process, so after a restart
the limits still hold. The evictions of one gang in one cycle are one record. O(records) per cycle;
a record is dropped after an hour, or after the cooldown if that is longer.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, takewhile
from typing import Protocol, TypeVar

from kai_py.plan.plan import Action, Eviction
from kai_py.plan.state.assignment import Evicted
from kai_py.policy.runtime_history import ExpectedEnds, RuntimeHistory
from kai_py.snapshot.gang_changes import NOTHING_KNOWN, GangChanges
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.queues import EvictionRecord, QueueInfo, inherited

SETTLING = "eviction.settlingTime"
HOUR = 3600.0
DAY = 24 * HOUR
MAX_GANGS = 16_384
"""Gangs whose evictions of the last day are counted: those that were evicted last."""
MAX_RECORDS = 128
"""Per queue; the oldest beyond that are merged into one, dated as the latest of them."""


@dataclass
class EvictionHistory:
    """Records by queue, oldest first; times in seconds since the epoch."""

    by_queue: dict[str, list[EvictionRecord]] = field(default_factory=dict)
    by_gang: dict[str, list[float]] = field(default_factory=dict)
    """When each gang lost pods within a day; in memory only."""
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
        pods: dict[tuple[str, str], int] = {}
        for each in evictions:
            if each.action not in (Action.STALE, Action.DEPARTURE):
                pods[each.queue, each.gang] = pods.get((each.queue, each.gang), 0) + 1
        for (queue, gang), count in pods.items():
            record = EvictionRecord(gang, float(int(now)), count)
            self.by_queue.setdefault(queue, []).append(record)
            recent = [at for at in self.by_gang.pop(gang, ()) if at > now - DAY]
            self.by_gang[gang] = [*recent, now]

    def prune(self, now: float, cooldown: float) -> None:
        """Drop records that no longer count at ``now``."""
        since = now - max(HOUR, cooldown)
        recent = {
            q: [it for it in records if it.at > since] for q, records in self.by_queue.items()
        }
        self.by_queue = {
            queue: _merge_oldest(records) for queue, records in recent.items() if records
        }
        while self.by_gang:
            # In the order of their last evictions.
            first = next(iter(self.by_gang))
            if self.by_gang[first][-1] > now - DAY and len(self.by_gang) <= MAX_GANGS:
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

    def evictions_of(self, gang: str, now: float) -> int:
        """How often the gang lost pods within the last day."""
        times = self.by_gang.get(gang)
        return 0 if times is None else sum([at > now - DAY for at in times])

    def evicted_last_hour(self, now: float) -> dict[str, int]:
        """Pods that each queue lost in the last hour."""
        return {
            queue: sum(record.pods for record in records if record.at > now - HOUR)
            for queue, records in self.by_queue.items()
        }

    def in_cooldown(self, now: float, cooldown: float) -> frozenset[str]:
        """Gangs of which a pod was evicted within ``cooldown`` seconds."""
        recorded = (
            record.gang
            for records in self.by_queue.values()
            for record in records
            if record.at > now - cooldown
        )
        # Records that were merged name one of their gangs; this process knows the others.
        last = takewhile(
            lambda gang: int(self.by_gang[gang][-1]) > now - cooldown, reversed(self.by_gang)
        )
        return frozenset(chain(recorded, last))


def _merge_oldest(records: list[EvictionRecord]) -> list[EvictionRecord]:
    excess = len(records) - MAX_RECORDS
    if excess <= 0:
        return records
    merged, rest = records[: excess + 1], records[excess + 1 :]
    return [replace(merged[-1], pods=sum(record.pods for record in merged)), *rest]


class Evictable(Protocol):
    """Pods of one gang that are evicted together."""

    @property
    def gang(self) -> Gang:
        """The gang of the pods."""

    @property
    def members(self) -> Sequence[Member]:
        """The pods."""


Unit = TypeVar("Unit", bound=Evictable)


class EvictionLimits:
    """The eviction limits of one cycle; ``cooldown`` in seconds."""

    def __init__(
        self,
        snapshot: Snapshot,
        history: EvictionHistory,
        cooldown: float,
        *,
        settling: float = 0.0,
        per_day: int = 0,
        runtimes: RuntimeHistory | None = None,
    ) -> None:
        """As of ``snapshot.now``."""
        self._snapshot, self._settling_time, self._per_day = snapshot, settling, per_day
        self._ends = ExpectedEnds(runtimes or RuntimeHistory(), snapshot.now)
        self.protected_by: dict[str, str] = {}
        """By queue, the last limit that protected pods which were considered as victims."""
        history.restore(snapshot.queues)
        history.prune(snapshot.now, cooldown)
        self._history, self._cooldown, self._now = history, cooldown, snapshot.now
        self._hourly_limits = inherited(snapshot.queues, lambda spec: spec.max_evictions_per_hour)
        self._allowed = [budget.allowed for budget in snapshot.budgets]
        self._names = [budget.name for budget in snapshot.budgets]
        self._budgets: dict[str, list[int]] = {}
        for position, budget in enumerate(snapshot.budgets):
            for uid in budget.pods:
                self._budgets.setdefault(uid, []).append(position)
        self._counted: list[str] = []
        self._lost: dict[str, int] = {}
        self._disrupted = [0] * len(self._allowed)
        self._was_kept_in_place = False

    @cached_property
    def _cooling(self) -> frozenset[str]:
        return self._history.in_cooldown(self._now, self._cooldown)

    @cached_property
    def _started(self) -> Mapping[str, float]:
        """By uid, when the pods started that did so within the settling time."""
        since = self._now - self._settling_time
        if not self._settling_time:
            return {}
        return {
            member.pod.uid: member.bound_since
            for gang in self._started_gangs(since)
            for member in gang.bound
            if member.bound_since > since
        }

    @cached_property
    def _settling(self) -> frozenset[str]:
        """Uids of those pods in ``_started`` that will end by themselves."""
        if not self._started:
            return frozenset()
        since = self._now - self._settling_time
        return frozenset(
            member.pod.uid
            for gang in self._started_gangs(since)
            for member in gang.bound
            if member.pod.uid in self._started and self._ends.will_end(gang, member)
        )

    def has_settled(self, unit: Evictable) -> bool:
        """Whether the unit may be relocated: none of its pods started within the settling time."""
        if self._started.keys().isdisjoint(member.pod.uid for member in unit.members):
            return True
        # Not a protection from eviction: other actions may still evict it.
        self._was_kept_in_place = True
        return False

    @property
    def settled_at(self) -> float | None:
        """When the first pod that the settling time protected may be evicted; None for none."""
        kept = self._was_kept_in_place or SETTLING in self.protected_by.values()
        if not kept or not self._started:
            return None
        return min(self._started.values()) + self._settling_time

    @property
    def ends(self) -> Iterator[float]:
        """When time alone ends the protection of pods that were considered as victims."""
        if self.settled_at is not None:
            yield self.settled_at
        for queue, records in self._history.by_queue.items() if self.protected_by else ():
            spans = (self._cooldown, HOUR if queue in self._hourly_limits else 0.0)
            ends = (record.at + span for record in records for span in spans)
            yield from (end for end in ends if end > self._now)
        for gang in self.evicted_often:
            yield self._history.by_gang[gang][-self._per_day] + DAY

    @property
    def has_settling_pods(self) -> bool:
        """Whether time alone will end the protection of any pod."""
        return bool(self._started)

    @property
    def is_unlimited(self) -> bool:
        """Whether no limit protects any pod."""
        limited = self._hourly_limits or self._allowed or self._cooldown or self._settling
        return not limited

    def evictions_of(self, gang: Gang) -> int:
        """How often the gang was evicted within the last day, without this cycle."""
        history = self._history
        return history.evictions_of(gang.key, self._now) if history.by_gang else 0

    @cached_property
    def evicted_often(self) -> frozenset[str]:
        """Keys of gangs that were evicted ``eviction.evictionsPerDay`` times in the last day."""
        if not self._per_day:
            return frozenset()
        counts = (
            (key, self._history.evictions_of(key, self._now)) for key in self._history.by_gang
        )
        return frozenset(key for key, count in counts if count >= self._per_day)

    def evictable(self, units: Iterator[Unit], evicted: Mapping[str, Evicted]) -> Iterator[Unit]:
        """Those of ``units`` that may be evicted together with ``evicted`` (by pod uid)."""
        if self.is_unlimited:
            yield from units
            return
        self._count_evicted(evicted)
        lost, disrupted = self._lost.copy(), self._disrupted.copy()
        for unit in units:
            queue, pods = unit.gang.queue, [member.pod.uid for member in unit.members]
            if unit.gang.key in self._cooling:
                self.protected_by[queue] = "eviction.cooldown"
                continue
            if self._exceeds_rate(queue, lost.get(queue, 0), len(pods)):
                self.protected_by[queue] = (
                    f"maxEvictionsPerHour, which is {self._hourly_limits[queue]}"
                )
                continue
            if self._settling and not self._settling.isdisjoint(pods):
                self.protected_by[queue] = SETTLING
                continue
            budget = self._refusing_budget(pods, disrupted)
            if budget:
                self.protected_by[queue] = f"PodDisruptionBudget {budget}"
                continue
            self._count_disruptions(disrupted, pods)
            lost[queue] = lost.get(queue, 0) + len(pods)
            yield unit

    def blocking_budget(self, pods: Iterable[str], evicted: Mapping[str, Evicted]) -> str:
        """The PodDisruptionBudget that forbids evicting these pods, by uid, beside ``evicted``."""
        self._count_evicted(evicted)
        return self._refusing_budget(pods, self._disrupted)

    def _refusing_budget(self, pods: Iterable[str], disrupted: Sequence[int]) -> str:
        """The budget that forbids evicting these pods; "" if none does. O(pods).

        ``disrupted``: by position of a budget, how many of its pods are evicted without them. A
        budget that is exceeded already protects only the pods that would exceed it further.
        """
        counts: dict[int, int] = {}
        for uid in pods:
            positions = self._budgets.get(uid, ())
            if len(positions) > 1:
                first, second = (self._names[position] for position in positions[:2])
                return f"{first} (with {second}, and no pod of several budgets is evicted)"
            for position in positions:
                counts[position] = counts.get(position, 0) + 1
        for position in sorted(counts):
            if disrupted[position] + counts[position] > self._allowed[position]:
                return self._names[position]
        return ""

    @contextmanager
    def recording(self) -> Iterator[Mapping[str, str]]:
        """The limits that protect pods within the block, by queue."""
        before, self.protected_by = self.protected_by, {}
        try:
            yield self.protected_by
        finally:
            self.protected_by = {**before, **self.protected_by}

    def snapshot(self) -> Hashable:
        """The history that decides now, as far as it protects pods; part of cache keys.

        None also while no gang is pending: then nothing is searched, and nothing has to be kept.
        """
        if not self._snapshot.pending:
            return None
        if self.is_unlimited and not (self.evicted_often or self._started):
            return None
        cooling = self._history.in_cooldown(self._now, self._cooldown)
        lost = tuple(sorted(self._history.evicted_last_hour(self._now).items()))
        return lost, cooling, frozenset(self._started), self.evicted_often

    def counted_evictions(self, queue: str) -> tuple[EvictionRecord, ...]:
        """Past evictions of a queue, as far as they may still protect pods."""
        if not self._cooldown and queue not in self._hourly_limits:
            return ()
        return tuple(self._history.by_queue.get(queue, ()))

    def _count_evicted(self, evicted: Mapping[str, Evicted]) -> None:
        """Bring the counts of lost and disrupted pods up to date; mostly ``evicted`` only grew."""
        pods = list(evicted)
        if pods[: len(self._counted)] != self._counted or not self._counted:
            self._counted = []
            self._lost = self._history.evicted_last_hour(self._now)
            self._disrupted = [0] * len(self._allowed)
        added = pods[len(self._counted) :]
        for uid in added:
            queue = evicted[uid].gang.queue
            self._lost[queue] = self._lost.get(queue, 0) + 1
        self._count_disruptions(self._disrupted, added)
        self._counted = pods

    def _started_gangs(self, since: float) -> Sequence[Gang]:
        snapshot = self._snapshot
        return self._history.started_since(snapshot.gangs, since, snapshot.gang_changes)

    def _exceeds_rate(self, queue: str, evicted: int, more: int) -> bool:
        limit = self._hourly_limits.get(queue)
        return limit is not None and (not limit or (evicted > 0 and evicted + more > limit))

    def _count_disruptions(self, disrupted: list[int], pods: Iterable[str]) -> None:
        for uid in pods:
            for position in self._budgets.get(uid, ()):
                disrupted[position] += 1
