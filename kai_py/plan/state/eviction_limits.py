"""Eviction limits: what protects pods although fairness would allow their eviction.

- A PodDisruptionBudget protects its pods beyond the number that may be disrupted now: the Eviction
  API would refuse, and a gang would wait for capacity that is never released. It refuses every
  eviction of a pod that several budgets select, whatever they allow, and none of pods that the
  only budget exempts, as they are not ready.
- Pods whose eviction the API server has just refused are protected until it is asked again.
- ``maxEvictionsPerHour`` protects the pods of a queue that lost that many in the last hour. A
  larger unit may be evicted if the queue lost none for an hour: the limit slows evictions down, it
  does not prevent them.
- ``eviction.cooldown`` protects gangs that lost a pod within that time.
- ``eviction.settlingTime`` protects pods that started within that time and are expected to end by
  themselves. Other pods that started within it are only protected from relocation
  (``has_settled``).

Preemptions, which are within a queue, count for the hourly limit, the cooldown and
``eviction.evictionsPerDay`` only against further preemptions within it: they do not protect its
pods from other queues (``by_others``).

Workloads that would fail for good are protected elsewhere: their pods are in no unit
(``victims.units``).

Evictions of this cycle count, and so do all units that were yielded before in the same search,
whether or not they became victims. O(pods of the unit) each.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Protocol, TypeVar

from kai_py.api.times import DAY, HOUR
from kai_py.plan.state.assignment import Evicted
from kai_py.plan.state.eviction_history import EvictionHistory, is_within_queue
from kai_py.policy.runtime_history import ExpectedEnds, RuntimeHistory
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.queues import EvictionRecord, inherited

SETTLING = "eviction.settlingTime"
REFUSED = "a refusal by the API server (see FailedEviction events)"


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
        """The limits as they are at ``snapshot.now``."""
        self._snapshot, self._settling_time, self._per_day = snapshot, settling, per_day
        self._ends = ExpectedEnds(runtimes or RuntimeHistory(), snapshot.now)
        self.protected_by: dict[str, str] = {}
        """By queue, the last limit that protected pods which were considered as victims."""
        self._refused = snapshot.refused_evictions
        history.restore(snapshot.queues)
        history.withdraw(self._refused)
        history.prune(snapshot.now, cooldown)
        self._history, self._cooldown, self._now = history, cooldown, snapshot.now
        self._hourly_limits = inherited(snapshot.queues, lambda spec: spec.max_evictions_per_hour)
        self._allowed = [budget.allowed for budget in snapshot.budgets]
        self._names = [budget.name for budget in snapshot.budgets]
        self._budgets: dict[str, list[int]] = {}
        for position, budget in enumerate(snapshot.budgets):
            for uid in budget.pods:
                self._budgets.setdefault(uid, []).append(position)
        for uid in {uid for budget in snapshot.budgets for uid in budget.exempt}:
            if len(self._budgets[uid]) == 1:
                del self._budgets[uid]
        self._counted: list[str] = []
        self._lost: dict[bool, dict[str, int]] = {}
        self._disrupted = [0] * len(self._allowed)
        self._was_kept_in_place = False

    @cached_property
    def differs_by_others(self) -> bool:
        """Whether ``by_others`` makes a difference: preemptions within queues are known."""
        return self._history.differs_by_others

    @cached_property
    def _cooling(self) -> Mapping[bool, frozenset[str]]:
        """By ``by_others``."""
        past, now, cooldown = self._history, self._now, self._cooldown
        return {each: past.in_cooldown(now, cooldown, by_others=each) for each in (False, True)}

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
        for by_others in (False, True):
            for gang in self.evicted_often(by_others=by_others):
                times = self._history.times_of(gang, self._now, by_others=by_others)
                yield times[-self._per_day] + DAY

    @property
    def has_settling_pods(self) -> bool:
        """Whether time alone will end the protection of any pod."""
        return bool(self._started)

    @property
    def is_unlimited(self) -> bool:
        """Whether no limit protects any pod."""
        limited = self._hourly_limits or self._allowed or self._cooldown or self._settling
        return not (limited or self._refused)

    def evictions_of(self, gang: Gang, *, by_others: bool) -> int:
        """How often the gang was evicted within the last day, without this cycle."""
        return len(self._history.times_of(gang.key, self._now, by_others=by_others))

    def last_evicted(self, gang: Gang) -> float:
        """When the gang last lost a pod to another, before this cycle; 0: not within a day."""
        return self._history.last_of(gang.key, self._now)

    def evicted_often(self, *, by_others: bool) -> frozenset[str]:
        """Keys of gangs that were evicted ``eviction.evictionsPerDay`` times in the last day."""
        return self._evicted_often[by_others]

    def protect_evicted_often(self, queue: str) -> None:
        """Note that gangs of ``queue`` were no candidates because they were evicted often."""
        self.protected_by[queue] = f"eviction.evictionsPerDay, which is {self._per_day}"

    @cached_property
    def _evicted_often(self) -> Mapping[bool, frozenset[str]]:
        past, now = self._history, self._now
        keys = past.by_gang if self._per_day else ()
        return {
            each: frozenset(
                key for key in keys if len(past.times_of(key, now, by_others=each)) >= self._per_day
            )
            for each in (False, True)
        }

    def evictable(
        self, units: Iterator[Unit], evicted: Mapping[str, Evicted], *, by_others: bool = False
    ) -> Iterator[Unit]:
        """The units that may be evicted together with ``evicted`` (by pod uid).

        ``by_others``: for gangs of other queues.
        """
        if self.is_unlimited:
            yield from units
            return
        self._count_evicted(evicted)
        lost, disrupted = self._lost[by_others].copy(), self._disrupted.copy()
        cooling = self._cooling[by_others]
        for unit in units:
            queue, pods = unit.gang.queue, [member.pod.uid for member in unit.members]
            if unit.gang.key in cooling:
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
            protection = self._protection(pods, disrupted)
            if protection:
                self.protected_by[queue] = protection
                continue
            self._count_disruptions(disrupted, pods)
            lost[queue] = lost.get(queue, 0) + len(pods)
            yield unit

    def counts(self, evicted: Evicted) -> bool:
        """Whether the eviction may protect pods that were not protected before it."""
        return evicted.gang.queue in self._hourly_limits or evicted.member.pod.uid in self._budgets

    def is_refused(self, pod: str) -> bool:
        """Whether the API server has just refused to evict the pod, by uid."""
        return pod in self._refused

    def protection_of(self, pods: Sequence[str], evicted: Mapping[str, Evicted]) -> str:
        """Why the API server would refuse to evict these pods, by uid, beside ``evicted``.

        "" if it would evict them.
        """
        self._count_evicted(evicted)
        return self._protection(pods, self._disrupted)

    def _protection(self, pods: Sequence[str], disrupted: Sequence[int]) -> str:
        if not self._refused.isdisjoint(pods):
            return REFUSED
        budget = self._refusing_budget(pods, disrupted)
        return f"PodDisruptionBudget {budget}" if budget else ""

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
                return f"{first} (with {second}; pods that several budgets select are not evicted)"
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
        if self.is_unlimited and not (self._evicted_often[False] or self._started):
            return None
        past, now = self._history, self._now
        counted = tuple(
            (
                tuple(sorted(past.evicted_last_hour(now, by_others=each).items())),
                past.in_cooldown(now, self._cooldown, by_others=each),
                self._evicted_often[each],
            )
            for each in ((False, True) if self.differs_by_others else (False,))
        )
        return counted, frozenset(self._started)

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
            past, now = self._history, self._now
            kinds = (False, True)
            self._lost = {each: past.evicted_last_hour(now, by_others=each) for each in kinds}
            self._disrupted = [0] * len(self._allowed)
        added = pods[len(self._counted) :]
        for uid in added:
            queue, within = evicted[uid].gang.queue, is_within_queue(evicted[uid].action)
            for lost in (self._lost[False],) if within else self._lost.values():
                lost[queue] = lost.get(queue, 0) + 1
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
