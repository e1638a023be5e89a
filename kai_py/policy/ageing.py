"""How much priority does a gang gain by waiting?

    points = min(limit, floor(time it has waited / time that counts as one point))

The time of one point is what the gang says, else its queue or the nearest queue above it that says
anything, else the configuration; 0 means that waiting counts nothing. The limit is the queue's or
the configuration's: who may write a workload can't lift it. A gang waits since the oldest of its
waiting pods exists, so one that ran and was evicted starts anew.

Below the limit, a gang that is d points behind is passed over by work that comes within d points'
time of it, and by nothing that comes later. O(waiting pods) per gang that ages.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.tables.queues import QueueInfo, inherited


@dataclass(frozen=True, slots=True)
class Ageing:
    """``seconds`` of waiting that count as one point of priority (0: none), ``most`` at most."""

    seconds: float = 0.0
    limit: float = 1000

    def points(self, waited: float) -> int:
        """What a gang gains by having waited so long."""
        return int(min(self.limit, max(0.0, waited // self.seconds))) if self.seconds else 0


NO_AGEING = Ageing()


@dataclass(frozen=True, slots=True)
class QueueAgeing:
    """The ageing of every gang at ``now``; ``seconds`` and ``most`` by queue, where one says so."""

    default: Ageing = NO_AGEING
    now: float = 0.0
    seconds: Mapping[str, float] = field(default_factory=dict)
    limit: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def for_queues(cls, queues: Iterable[QueueInfo], default: Ageing, now: float) -> Self:
        """As the queues say it, and above them the configuration."""
        specs = tuple(queues)
        return cls(
            default,
            now,
            inherited(specs, lambda spec: spec.ageing),
            inherited(specs, lambda spec: spec.ageing_limit),
        )

    def points(self, gang: Gang) -> int:
        """Points of priority that ``gang`` gained by waiting."""
        seconds = gang.ageing
        if seconds is None:
            seconds = self.seconds.get(gang.queue, self.default.seconds)
        if not seconds:
            return 0
        most = self.limit.get(gang.queue, self.default.limit)
        return Ageing(seconds, most).points(self.now - gang.waiting_since)

    def priority(self, gang: Gang) -> int:
        """The priority with which ``gang`` stands in line."""
        return gang.priority + self.points(gang)
