"""Allocated GPUs and fair shares of the queues over time.

A sample is taken at most once per interval. When there are ``MAX_SAMPLES`` every second one is
dropped and the interval doubles: memory is bounded, and the whole time stays in view.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kai_py.api.times import CLOCK_STEP
from kai_py.plan.plan import Plan
from kai_py.snapshot.accounting import GPU

FIRST_INTERVAL = 1.0
MAX_SAMPLES = 360


@dataclass(frozen=True, slots=True)
class ShareSample:
    """GPUs by queue at ``time``, in seconds since the epoch."""

    time: float
    allocated: dict[str, float]
    fair_share: dict[str, float]


class ShareHistory:
    """The samples, oldest first; ``interval`` in seconds."""

    def __init__(self) -> None:
        self.interval = FIRST_INTERVAL
        self._samples: list[ShareSample] = []
        self._newest: ShareSample | None = None

    @property
    def samples(self) -> tuple[ShareSample, ...]:
        """The samples kept, and the newest whether or not it is kept."""
        newest = self._newest
        # The newest sample may be the last kept one.
        extra = () if newest is None or newest in self._samples[-1:] else (newest,)
        return (*self._samples, *extra)

    def recall(self, samples: Sequence[ShareSample]) -> None:
        """Put those of earlier leaders, oldest first, before all others."""
        first = self._samples[0].time if self._samples else math.inf
        earlier = [sample for sample in samples if sample.time < first]
        self._samples = [*earlier, *self._samples]
        if len(earlier) > 1:
            widest = (earlier[-1].time - earlier[0].time) / (len(earlier) - 1)
            while self.interval < widest / 2:
                self.interval *= 2
        self._thin_out()

    def record(self, plan: Plan, now: float) -> None:
        """Take a sample if one is due."""
        sample = ShareSample(
            time=now,
            allocated={share.queue: share.allocated.get(GPU, 0.0) for share in plan.queues},
            fair_share={share.queue: share.fair_share.get(GPU, 0.0) for share in plan.queues},
        )
        self._newest = sample
        while self._samples and self._samples[-1].time > now + CLOCK_STEP:
            self._samples.pop()  # of a clock that has been set back
        if self._samples and now - self._samples[-1].time < self.interval:
            return
        self._samples.append(sample)
        self._thin_out()

    def _thin_out(self) -> None:
        while len(self._samples) >= MAX_SAMPLES:
            self._samples = self._samples[::2]
            self.interval *= 2
