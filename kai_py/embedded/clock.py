"""Clocks with timers: real time, and simulated time.

`RealClock` follows the running asyncio loop. `SimulatedClock` moves only through `advance`, which
runs the timers that are due in order of (due time, registration), so a run is a pure function of
its inputs. Both run callbacks on the caller's thread.
"""

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

SIMULATION_START = 1_767_225_600.0  # 2026-01-01T00:00:00Z


class Timer(Protocol):
    """A pending callback."""

    def cancel(self) -> None:
        """Drop the callback; harmless after it ran."""


class Clock(Protocol):
    """The time source of everything in the embedded cluster."""

    def now(self) -> float:
        """Unix seconds."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` once after `delay` seconds, 0 meaning after the present callback."""


class RealClock:
    """Wall time; callbacks run on the running asyncio loop."""

    def now(self) -> float:
        """Unix seconds."""
        return time.time()

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` on the running loop after `delay` seconds."""
        return asyncio.get_running_loop().call_later(delay, callback)


@dataclass(order=True)
class _SimulatedTimer:
    due: float
    sequence: int
    callback: Callable[[], None] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


class SimulatedClock:
    """Time that moves only through `advance` and `run_due`."""

    def __init__(self, start: float = SIMULATION_START) -> None:
        self._now = start
        self._timers: list[_SimulatedTimer] = []
        self._sequence = itertools.count()

    def now(self) -> float:
        """Simulated Unix seconds."""
        return self._now

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Register `callback` for `now + delay`."""
        timer = _SimulatedTimer(self._now + max(delay, 0.0), next(self._sequence), callback)
        heapq.heappush(self._timers, timer)
        return timer

    def next_due(self) -> float | None:
        """When the next timer is due, None when there is none."""
        while self._timers and self._timers[0].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0].due if self._timers else None

    def run_due(self) -> int:
        """Run everything due now, including what that schedules for now; return the count."""
        ran = 0
        while (due := self.next_due()) is not None and due <= self._now:
            heapq.heappop(self._timers).callback()
            ran += 1
        return ran

    def advance(self, seconds: float) -> None:
        """Move time forward by `seconds`, stopping at every timer on the way."""
        end = self._now + seconds
        self.run_due()
        while (due := self.next_due()) is not None and due <= end:
            self._now = due
            self.run_due()
        self._now = end
