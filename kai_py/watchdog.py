"""The watchdog of a cycle: processor time by gang, and an end to a cycle over its limit.

The pure cycle tells whose turn begins and polls wherever a search spends from a budget; here is the
clock. A cycle over its limit is ended at the next poll, and the gang whose turns took the most time
of it is named: not merely the one that happened to be planned then. Only what the cycle's own
thread computes counts: where other processes keep it waiting, no gang is to blame.
"""

import time
from collections.abc import Callable

from kai_py.plan.session.turns import CycleOverLimitError


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
        longest = max(self._seconds, key=self._seconds.__getitem__, default="")
        raise CycleOverLimitError(longest, self._limit)

    def _end_turn(self, now: float) -> None:
        if self._gang:
            taken = now - self._turn_began
            self._seconds[self._gang] = self._seconds.get(self._gang, 0.0) + taken
            self._turn_began = now
