"""Queues over time, as samples of a simulation."""

from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_SAMPLES = 240


@dataclass(frozen=True, slots=True)
class EntitlementSample:
    """GPUs of each queue at one time: allocated, and entitled by its fair share."""

    seconds: float
    shares: Mapping[str, tuple[float, float]]


@dataclass(slots=True)
class EntitlementSamples:
    """Samples at distances of at least ``seconds`` / ``MAX_SAMPLES`` of the simulated time."""

    seconds: float
    samples: list[EntitlementSample] = field(default_factory=list)

    def add(self, seconds: float, shares: Mapping[str, tuple[float, float]]) -> None:
        """Add the state at ``seconds`` if the last sample is old enough."""
        if not self.samples or seconds - self.samples[-1].seconds >= self.seconds / MAX_SAMPLES:
            self.samples.append(EntitlementSample(seconds, dict(shares)))
