"""Requests that failed in an action: one that needs no less fails too, without a search.

That is part of what the actions decide, for such a request takes none of the probe budget and is
told the same reason. KAI's ``MinimalJobRepresentatives`` (``minimal_job_comparison.go``) is the
same rule.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

Failure = TypeVar("Failure")


class FailedRequests(Generic[Failure]):
    """Failures by kind of request; they hold until capacity grows again."""

    def __init__(self) -> None:
        """Nothing has failed yet."""
        self._failures: dict[Hashable, list[tuple[int, int, Failure]]] = {}

    def find(self, kind: Hashable, size: int, priority: int = 0) -> Failure | None:
        """The failure of no more pods of no lower priority, the last one that there was."""
        for failed_size, failed_priority, failure in reversed(self._failures.get(kind, ())):
            if size >= failed_size and priority <= failed_priority:
                return failure
        return None

    def add(self, kind: Hashable, failure: Failure, size: int, priority: int = 0) -> None:
        """A request for ``size`` pods failed."""
        self._failures.setdefault(kind, []).append((size, priority, failure))

    def clear(self) -> None:
        """Capacity has grown: any request may succeed."""
        self._failures.clear()
