"""When is a failed write tried again, and how long do we wait?

Per object, never per process: one object that fails delays nobody else. The wait doubles from
``base`` to ``ceiling`` with full jitter over its upper half (waits spread, yet never collapse to
zero), and is never shorter than the server's ``Retry-After``.

Only failures that say nothing about the object are transient: no answer, 429, 5xx. A conflict is
no failure but news, and is answered by reading the object again, which is the caller's business.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from kai_py.watch.errors import ApiError, ServerError, TooManyRequests, Unreachable

Result = TypeVar("Result")
TRANSIENT = (Unreachable, TooManyRequests, ServerError)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """At most ``attempts`` tries, waiting between ``base`` and ``ceiling`` seconds."""

    attempts: int = 8
    base: float = 0.1
    maximum: float = 10.0

    def delay(self, failures: int, *, at_least: float = 0.0) -> float:
        """Seconds to wait after the given number of failures in a row (1 or more)."""
        longest = min(self.maximum, self.base * 2.0 ** min(failures - 1, 30))
        return max(at_least, longest * random.uniform(0.5, 1.0))

    async def sleep(self, failures: int, error: ApiError) -> None:
        """Wait as long as this failure calls for."""
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
    """Which objects have failed lately, and from when on each may be tried again.

    ``now`` is any clock in seconds that only goes forward. Costs a dictionary entry per failing
    object; an object that succeeds is forgotten.
    """

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._failures: dict[str, int] = {}
        self._not_before: dict[str, float] = {}

    def is_ready(self, key: str, now: float) -> bool:
        """Whether the object may be tried at ``now``."""
        return self._not_before.get(key, now) <= now

    def failures(self, key: str) -> int:
        """How often in a row the object has failed."""
        return self._failures.get(key, 0)

    def record_failure(self, key: str, now: float, *, at_least: float = 0.0) -> float:
        """Note a failure; gives the seconds until the next try is due."""
        failures = self._failures.get(key, 0) + 1
        wait = self._policy.delay(failures, at_least=at_least)
        self._failures[key] = failures
        self._not_before[key] = now + wait
        return wait

    def reset(self, key: str) -> None:
        """Forget the object's failures."""
        self._failures.pop(key, None)
        self._not_before.pop(key, None)

    def forget_idle(self, now: float, idle: float) -> None:
        """Drop objects whose next try has been due for ``idle`` seconds: nobody asks for them."""
        for key in [key for key, due in self._not_before.items() if due + idle < now]:
            self.reset(key)
