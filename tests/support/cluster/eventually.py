"""How does a test wait for what a cluster will do in its own time?"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.support.patience import patience

T = TypeVar("T")

PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 0.2
PAUSES_PER_WAIT = 20
"""What takes longer is asked for more rarely: servers and tests share the processors."""


async def eventually(
    probe: Callable[[], Awaitable[T]], *, within: float = 15.0, what: str = "the expected state"
) -> T:
    """Return the first truthy answer of `probe`; fail, showing the last one, after `within` s
    of a quiet machine.

    An AssertionError in `probe` counts as "not yet" and is raised when time is up; so do a
    LookupError and a ValueError (`(one,) = found`), as what a controller has yet to write is absent
    before it is wrong.
    """
    longest = patience(within)
    began = time.monotonic()
    late: Exception
    while True:
        try:
            answer = await probe()
            if answer:
                return answer
            late = AssertionError(f"{what} not reached in {longest:.0f} s, last seen: {answer!r}")
        except (AssertionError, LookupError, ValueError) as error:
            late = error
        waited = time.monotonic() - began
        if waited > longest:
            raise late
        pause = max(waited / PAUSES_PER_WAIT, PAUSE_SECONDS)
        await asyncio.sleep(min(pause, LONGEST_PAUSE_SECONDS))
