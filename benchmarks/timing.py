"""How is a step timed so that the figure can be repeated?

The garbage collector is set as the running scheduler sets it: what exists before the step is
frozen. The median of several runs is taken; slow steps are repeated less often.
"""

import resource
import statistics
import time
from collections.abc import Callable
from typing import TypeVar

from kai_py.watch.mirror import freeze_memory

MEGABYTE = 1e6
T = TypeVar("T")


def median_seconds(
    step: Callable[[], T],
    *,
    prepare: Callable[[], None] = lambda: None,
    most: int = 7,
    budget: float = 6.0,
) -> tuple[float, T]:
    """Seconds of ``step``, and what its last run gave; ``prepare`` runs before each, untimed.

    At most ``most`` runs, none begun after ``budget`` seconds. Garbage is collected as in the
    scheduler's own process.
    """
    freeze_memory()
    times: list[float] = []
    began = time.perf_counter()
    while True:
        prepare()
        start = time.perf_counter()
        result = step()
        times.append(time.perf_counter() - start)
        if len(times) >= most or time.perf_counter() - began > budget:
            return statistics.median(times), result


def peak_resident_mb() -> float:
    """The most memory this process ever had resident."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEGABYTE
