"""How long a test waits before it calls something late, on this machine and under its present load.

Deadlines in tests are written for a quiet machine of the reference's speed and go through
``patience``. A slower or busier machine gets as many times longer; none gets less.
"""

import os
import statistics
import time
from functools import cache

REFERENCE_SECONDS = 0.0024
"""What ``_work`` takes on the machine the deadlines were written on."""
LARGEST_FACTOR = 20.0
LARGEST_LIMIT_FACTOR = 3.0
"""A test that hangs must end, and be named, long before the whole run has to."""


def patience(seconds: float) -> float:
    """Seconds to wait for what takes less than ``seconds`` on a quiet machine."""
    return seconds * min(max(1.0, _speed()) * max(1.0, _load()), LARGEST_FACTOR)


def time_limit(seconds: float) -> float:
    """Seconds after which a test that takes less than ``seconds`` on a quiet machine is ended."""
    return min(patience(seconds), seconds * LARGEST_LIMIT_FACTOR)


def processor_seconds(seconds: float) -> float:
    """Processor time for what takes ``seconds`` of it on the reference machine."""
    return seconds * max(1.0, _speed())


@cache
def _speed() -> float:
    """Times the reference of processor time that this machine takes, measured once per session."""
    taken = []
    for _ in range(5):
        started = time.process_time()
        _work()
        taken.append(time.process_time() - started)
    return statistics.median(taken) / REFERENCE_SECONDS


def _work() -> int:
    counts: dict[int, int] = {}
    for number in range(30_000):
        counts[number % 997] = counts.get(number % 997, 0) + number
    return sum(counts.values())


def _load() -> float:
    """Processes that want to run, per core, over the last minute."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)
