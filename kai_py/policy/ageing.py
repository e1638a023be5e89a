"""Ageing: the priority that a gang gains by waiting.

    points = min(limit, floor(time it has waited / time that counts as one point))

The time of one point is set by the gang, else by its queue or the nearest ancestor that sets one,
else by the configuration; 0 disables ageing. The limit is set by the queue or the configuration
only, so the author of a workload can't raise it. A gang waits since the creation of its oldest
pending pod; one that ran and was evicted starts from zero.

Below the limit, a gang that is d points behind is bypassed only by gangs created within d points'
time of it, and by none created later. O(pending pods) per gang that ages.
"""

from collections.abc import Iterable, Mapping
from typing import Self

from msgspec import Struct, field

from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.tables.queues import QueueInfo, inherited


class Ageing(Struct, frozen=True):
    """``seconds`` of waiting count as one point of priority (0: none), up to ``limit`` points."""

    seconds: float = 0.0
    limit: float = 1000

    def points(self, waited: float) -> int:
        """Points of a gang that has waited for ``waited`` seconds."""
        return int(min(self.limit, max(0.0, waited // self.seconds))) if self.seconds else 0


NO_AGEING = Ageing()


class QueueAgeing(Struct, frozen=True):
    """The ageing of every gang at ``now``; ``seconds`` and ``limit`` by queue, where set."""

    default: Ageing = NO_AGEING
    now: float = 0.0
    seconds: Mapping[str, float] = field(default_factory=dict)
    limit: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def for_queues(cls, queues: Iterable[QueueInfo], default: Ageing, now: float) -> Self:
        """From the specs of the queues, and the configuration as ``default``."""
        specs = tuple(queues)
        return cls(
            default,
            now,
            inherited(specs, lambda spec: spec.ageing),
            inherited(specs, lambda spec: spec.ageing_limit),
        )

    def points(self, gang: Gang) -> int:
        """Points of priority that ``gang`` has gained by waiting."""
        seconds = gang.settings.ageing
        if seconds is None:
            seconds = self.seconds.get(gang.queue, self.default.seconds)
        if not seconds:
            return 0
        limit = self.limit.get(gang.queue, self.default.limit)
        return Ageing(seconds, limit).points(self.now - gang.waiting_since)

    def priority(self, gang: Gang) -> int:
        """The priority of ``gang`` in the queue order, ageing included."""
        return gang.priority + self.points(gang)
