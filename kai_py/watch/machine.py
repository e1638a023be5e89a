"""What a process needs of its machine besides the network: the time, random numbers, its own end.

Everything that talks to the API server gets these from its client, so that a simulation can run
several processes on one clock of its own, from one seed. Waiting is left to the event loop, whose
clock such a simulation owns as well.
"""

import logging
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NoReturn

logger = logging.getLogger(__name__)


def boot_clock() -> float:
    """Seconds that go on while the machine sleeps, so that a leader is deposed by sleeping."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def exit_process() -> NoReturn:
    """End this process now, without running anything that might still write."""
    logger.critical("leadership is lost: the process exits")
    logging.shutdown()
    os._exit(1)


@dataclass(frozen=True)
class Machine:
    """The machine of one process; by default the one it runs on."""

    now: Callable[[], float] = time.time
    """Seconds since the epoch."""
    boot_time: Callable[[], float] = boot_clock
    """Seconds of a clock that is never set and goes on while the machine sleeps."""
    chance: random.Random = field(default_factory=random.Random)
    exit_process: Callable[[], None] = exit_process
    """Ends this process at once, without running anything that might still write."""

    def utc_now(self) -> datetime:
        """The time in UTC."""
        return datetime.fromtimestamp(self.now(), UTC)

    def uniform(self, low: float, high: float) -> float:
        """A random number between ``low`` and ``high``."""
        return self.chance.uniform(low, high)

    def token(self) -> str:
        """Sixteen random hexadecimal digits, for a name that no other object has."""
        return f"{self.chance.getrandbits(64):016x}"
