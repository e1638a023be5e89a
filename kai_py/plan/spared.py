"""Who stays for now, although the rules of fairness would let them go?

- Pods of a PodDisruptionBudget, beyond as many as may be disrupted now: the Eviction API would
  refuse, and a gang would wait for room that nobody leaves.
- Pods of a queue that lost as many as its ``maxEvictionsPerHour`` in the last hour. More at once
  than that may go together if nobody has left for an hour: the limit slows, it does not forbid.
- Gangs that were evicted less than ``eviction.cooldown`` ago.

What leaves in this cycle counts, and so does what was offered before in the same search, whether
or not it is taken. O(pods of the unit) each.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kai_py.plan.statement import Evicted
from kai_py.plan.victim_units import VictimUnit
from kai_py.snapshot.queue_specs import inherited
from kai_py.snapshot.snapshot import Snapshot

HOUR = 3600.0


@dataclass
class PastEvictions:
    """When pods were evicted (seconds since the epoch): by queue, and by gang the latest."""

    by_queue: dict[str, list[float]] = field(default_factory=dict)
    by_gang: dict[str, float] = field(default_factory=dict)

    def note(self, queue: str, gang: str, now: float) -> None:
        """A pod of ``gang`` is evicted."""
        self.by_queue.setdefault(queue, []).append(now)
        self.by_gang[gang] = now

    def forget(self, now: float, cooldown: float) -> None:
        """Drop what counts no more at ``now``."""
        recent = {q: [at for at in times if at > now - HOUR] for q, times in self.by_queue.items()}
        self.by_queue = {queue: times for queue, times in recent.items() if times}
        self.by_gang = {gang: at for gang, at in self.by_gang.items() if at > now - cooldown}


class Spared:
    """What decides in one cycle who stays; ``cooldown`` in seconds."""

    def __init__(self, snapshot: Snapshot, past: PastEvictions, cooldown: float) -> None:
        """As of ``snapshot.now``."""
        self.withheld: dict[str, str] = {}
        """Queue to what keeps some of its pods, as far as anybody was asked for them."""
        past.forget(snapshot.now, cooldown)
        self._past, self._cooldown = past, cooldown
        self._limits = inherited(snapshot.queues, lambda spec: spec.max_evictions_per_hour)
        self._allowed = [budget.allowed for budget in snapshot.budgets]
        self._names = [budget.name for budget in snapshot.budgets]
        self._budgets: dict[str, list[int]] = {}
        for position, budget in enumerate(snapshot.budgets):
            for uid in budget.pods:
                self._budgets.setdefault(uid, []).append(position)

    def offered(
        self, units: Iterator[VictimUnit], leaving: Mapping[str, Evicted]
    ) -> Iterator[VictimUnit]:
        """Those of ``units`` that may go, together with who is ``leaving`` (by pod uid)."""
        cooling = self._past.by_gang if self._cooldown else {}
        if not (self._limits or self._allowed or cooling):
            yield from units
            return
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

    def _losses(self, leaving: Mapping[str, Evicted]) -> dict[str, int]:
        lost = {queue: len(times) for queue, times in self._past.by_queue.items()}
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
