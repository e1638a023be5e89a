"""Exponential backoff with jitter.

Delays are ``first``, 2·first, 4·first … up to ``maximum``, each times a random factor between 0.8
and 1.2, so that clients that failed together do not retry together.
"""

import random
from collections.abc import Callable


class Backoff:
    """The delays of one operation; not to be shared between operations. Times in seconds."""

    def __init__(
        self,
        *,
        first: float = 0.2,
        maximum: float = 30.0,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._first = first
        self._maximum = maximum
        self._uniform = uniform
        self._delay = 0.0

    def next(self) -> float:
        """The seconds to wait after one more failure."""
        self._delay = min(max(self._delay * 2, self._first), self._maximum)
        return self._delay * self._uniform(0.8, 1.2)

    def reset(self) -> None:
        """Start over after a success."""
        self._delay = 0.0
