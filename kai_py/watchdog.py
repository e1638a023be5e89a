"""The watchdog of a cycle: processor time by gang, and an end to a cycle over its limit.

The pure cycle tells whose turn begins and polls wherever a search spends from a budget; here is the
clock. A cycle over its limit is ended at the next poll, and the gangs whose turns took the most of
its time are named, not merely the one that happened to be planned then. If each ended cycle named
one gang only, a tenant with twenty of them would keep all others waiting for twenty cycles. Only
what the cycle's own thread computes counts: where other processes keep it waiting, no gang is to
blame.
"""

import time
from collections.abc import Callable

from kai_py.plan.session.turns import CycleOverLimitError

MIN_SHARE = 0.01
"""A gang that took a smaller part of the limit is named only if none took more."""


class CycleTimer:
    """The time of one cycle, from its creation on, in the thread that plans it."""

    def __init__(self, limit: float, clock: Callable[[], float] = time.thread_time) -> None:
        """``limit`` in seconds."""
        self._limit, self._clock = limit, clock
        self._started = self._turn_began = clock()
        self._gang = ""
        self._seconds: dict[str, float] = {}

    def begin(self, gang: str) -> None:
        """The turn of a gang begins; its key, or "" where it has ended."""
        now = self._clock()
        self._end_turn(now)
        self._gang, self._turn_began = gang, now

    def poll(self) -> None:
        """Go on, unless the cycle is over its limit.

        :raises CycleOverLimitError: it is.
        """
        now = self._clock()
        if now - self._started <= self._limit:
            return
        self._end_turn(now)
        raise CycleOverLimitError(self._longest(), self._limit)

    def _longest(self) -> dict[str, float]:
        """The longest turns, which together took half of the time of all turns; seconds by key."""
        found: dict[str, float] = {}
        half = sum(self._seconds.values()) / 2
        for key, seconds in sorted(self._seconds.items(), key=lambda each: -each[1]):
            if found and (seconds < MIN_SHARE * self._limit or sum(found.values()) >= half):
                break
            found[key] = seconds
        return found

    def _end_turn(self, now: float) -> None:
        if self._gang:
            taken = now - self._turn_began
            self._seconds[self._gang] = self._seconds.get(self._gang, 0.0) + taken
            self._turn_began = now
