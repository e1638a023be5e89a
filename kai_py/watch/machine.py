"""The machine of a process, apart from the network: time, chance, memory, and its exit.

Everything that talks to the API server gets the time and random numbers from its client, so that a
simulation can run several processes on one clock of its own, from one seed. Waiting is left to the
event loop, whose clock such a simulation owns as well.

Memory that the process has freed is kept for the next cycle. A cycle makes arrays over all nodes
and drops them at its end. By default the C library returns them to the kernel, and the next cycle
gets them back page by page: at 10,000 nodes that takes as long as placing a gang.
"""

import ctypes
import logging
import os
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NoReturn

from msgspec import Struct, field

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


class Machine(Struct, frozen=True):
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


KEPT = 64 * 2**20
"""Bytes of freed memory that the process keeps."""
LARGEST_KEPT = 32 * 2**20
"""The largest array that is kept; glibc allows no more."""

# The parameters of ``mallopt(3)``.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> bool:
    """Keep freed memory from now on; False where the C library has no such setting."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT) and mallopt(M_TRIM_THRESHOLD, KEPT))


FIRST_DELAY, MAX_DELAY = 0.2, 30.0
"""Seconds."""


class Backoff:
    """The delays of one operation, which double; not to be shared between operations.

    Each is multiplied by a random factor, so that clients that failed together do not retry
    together.
    """

    def __init__(self, uniform: Callable[[float, float], float]) -> None:
        self._uniform = uniform
        self._delay = 0.0

    def next(self) -> float:
        """The seconds to wait after one more failure."""
        self._delay = min(max(self._delay * 2, FIRST_DELAY), MAX_DELAY)
        return self._delay * self._uniform(0.8, 1.2)

    def reset(self) -> None:
        """Start over after a success."""
        self._delay = 0.0
