"""Retry policy and backoff for failed writes.

Per object, never per process: an object that fails delays no other. The wait doubles from ``base``
to ``maximum`` with jitter over its upper half (waits spread, yet never collapse to zero), and is
never shorter than the server's ``Retry-After``.

Only failures that say nothing about the object are transient: no answer, 429, 5xx. A conflict is
not a failure: the caller reads the object again.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct

from kai_py.api.times import backoff_seconds
from kai_py.watch.errors import ApiError, ServerError, TooManyRequests, Unreachable

Result = TypeVar("Result")
TRANSIENT = (Unreachable, TooManyRequests, ServerError)
IDLE_SECONDS = 600.0
"""An object whose next attempt has been due for so long is gone, or is not needed any more."""


class RetryPolicy(Struct, frozen=True):
    """At most ``attempts`` tries, waiting between ``base`` and ``maximum`` seconds.

    ``uniform`` draws a number between two others, for the jitter.
    """

    attempts: int = 8
    base: float = 0.1
    maximum: float = 10.0
    uniform: Callable[[float, float], float] = random.uniform

    def delay(self, failures: int, *, at_least: float = 0.0) -> float:
        """Seconds to wait after the given number of failures in a row (1 or more)."""
        longest = backoff_seconds(failures, self.base, self.maximum)
        return max(at_least, longest * self.uniform(0.5, 1.0))

    async def sleep(self, failures: int, error: ApiError) -> None:
        """Wait as long as this failure requires."""
        await asyncio.sleep(self.delay(failures, at_least=error.retry_after))


async def retry_transient(call: Callable[[], Awaitable[Result]], policy: RetryPolicy) -> Result:
    """Repeat an idempotent ``call`` while its failure is transient; raises the last failure."""
    for failures in range(1, policy.attempts):
        try:
            return await call()
        except TRANSIENT as error:
            await policy.sleep(failures, error)
    return await call()


class ObjectBackoff:
    """Objects that failed lately, and the earliest time of each one's next attempt.

    ``now`` is any monotonic clock in seconds. Costs a dictionary entry per failing object; one that
    succeeds is removed, and so are, now and then, those that are not tried again.
    """

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._failures: dict[str, int] = {}
        self._not_before: dict[str, float] = {}
        self._next_look = 0.0

    def is_ready(self, key: str, now: float) -> bool:
        """Whether the object may be tried at ``now``."""
        return self._not_before.get(key, now) <= now

    def failures(self, key: str) -> int:
        """Number of failures of the object in a row."""
        return self._failures.get(key, 0)

    def record_failure(self, key: str, now: float, *, at_least: float = 0.0) -> float:
        """Record a failure; returns the seconds until the next attempt is due."""
        self._forget_idle(now)
        failures = self._failures.get(key, 0) + 1
        wait = self._policy.delay(failures, at_least=at_least)
        self._failures[key] = failures
        self._not_before[key] = now + wait
        return wait

    def reset(self, key: str) -> None:
        """Forget the object's failures."""
        self._failures.pop(key, None)
        self._not_before.pop(key, None)

    def _forget_idle(self, now: float) -> None:
        if now < self._next_look:
            return
        self._next_look = now + IDLE_SECONDS
        for key in [key for key, due in self._not_before.items() if due + IDLE_SECONDS < now]:
            self.reset(key)
