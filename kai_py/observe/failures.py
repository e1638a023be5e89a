"""Contained failures: exceptions that are counted and logged with their subject, and go no further.

A failure for one object must not end the work for others, or the process. The first failure of a
part and subject is logged with its trace, repetitions at most once per ``REPEAT_SECONDS``; the
metric counts all of them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from kai_py.snapshot.quarantine import InvalidObject

log = logging.getLogger(__name__)

REPEAT_SECONDS = 600.0
RESTART_SECONDS = 1.0
MAX_REMEMBERED = 10_000

Count = Callable[[str], None]


class Failures:
    """Contains exceptions; ``count`` is called with the part of the program that failed."""

    def __init__(self, count: Count, clock: Callable[[], float]) -> None:
        """``clock``: the time in seconds."""
        self._count = count
        self._clock = clock
        self._logged: dict[tuple[str, str, str], float] = {}

    @contextmanager
    def contained(self, part: str, subject: object = "") -> Iterator[None]:
        """A block whose exception ends here; ``subject``: the object that it is about."""
        try:
            yield
        except Exception as error:
            self.report(part, str(subject), error)

    def report(self, part: str, subject: str, error: Exception) -> None:
        """Count and log a contained exception."""
        self._count(part)
        key, now = (part, subject, type(error).__name__), self._clock()
        last = self._logged.get(key)
        if last is not None and now < last + REPEAT_SECONDS:
            return
        if len(self._logged) >= MAX_REMEMBERED:
            self._logged.clear()
        self._logged[key] = now
        about = f" for {subject}" if subject else ""
        log.error("%s failed%s; the rest goes on", part, about, exc_info=error)

    def report_invalid(self, invalid: InvalidObject, error: Exception) -> None:
        """Count and log an object that is set aside."""
        each = invalid.object
        name = f"{each.namespace}/{each.name}" if each.namespace else each.name
        self.report("snapshot", f"{each.kind} {name}", error)

    async def supervise(self, part: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run a task that lasts; after an exception it starts again."""
        while True:
            with self.contained(part):
                await run()
                return
            await asyncio.sleep(RESTART_SECONDS)
