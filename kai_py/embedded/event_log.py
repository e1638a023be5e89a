"""Log of the changes of one kind, by revision.

Every write of the store gets the next revision of one counter and is appended to the log of its
kind. A watch is a position in that log. Compaction drops old changes; a watch that starts before
the oldest change gets 410 and must list again, as with etcd.

Reading is O(log n + k) for k new changes in a log of n.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import msgspec

from kai_py.embedded.documents import Json
from kai_py.embedded.errors import RequestError, expired

MAX_CHANGES = 20_000
"""Changes kept per kind; older ones are compacted away in batches."""


class ChangeType(Enum):
    """Kind of a change; the values are those of watch events."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True)
class Change:
    """One write: the object after it (for a deletion: its last state) and before it."""

    type: ChangeType
    storage: str
    object: Json
    previous: Json | None
    revision: int

    @cached_property
    def encoded(self) -> bytes:
        """The object as JSON text, encoded once however many watchers there are."""
        return msgspec.json.encode(self.object)


class EventLog:
    """The changes of one kind in order of revision, and the listeners for new ones."""

    def __init__(self, kept: int = MAX_CHANGES) -> None:
        self.compacted_through = 0
        self._dropped_through = 0
        self._kept = kept
        self._changes: list[Change] = []
        self._revisions: list[int] = []
        self._listeners: dict[int, Callable[[], None]] = {}
        self._next_listener = 0

    def append(self, change: Change) -> None:
        """Add a change and call the listeners."""
        self._changes.append(change)
        self._revisions.append(change.revision)
        # At twice the size, so that the cost of compaction is O(1) per append.
        if len(self._changes) > 2 * self._kept:
            self.compact(self._revisions[-self._kept - 1])
        for wake in tuple(self._listeners.values()):
            wake()

    def after(self, revision: int) -> Sequence[Change]:
        """The changes after `revision`; raises RequestError 410 if one has been dropped."""
        if revision < self._dropped_through:
            raise self._too_old(revision)
        return self._changes[bisect_right(self._revisions, revision) :]

    def check_start(self, revision: int) -> None:
        """Raise RequestError 410 when a watch may no longer start at `revision`.

        Stricter than `after`: a watcher of a quiet kind misses nothing by a compaction, but one
        that returns with a compacted revision cannot prove that.
        """
        if revision < self.compacted_through:
            raise self._too_old(revision)

    def compact(self, revision: int) -> None:
        """Drop the changes up to and including `revision`."""
        cut = bisect_right(self._revisions, revision)
        if cut:
            self._dropped_through = self._revisions[cut - 1]
        del self._changes[:cut]
        del self._revisions[:cut]
        self.compacted_through = max(self.compacted_through, revision)

    def _too_old(self, revision: int) -> RequestError:
        return expired(f"too old resource version: {revision} ({self.compacted_through})")

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` after every append; return the function that stops that."""
        self._next_listener += 1
        number = self._next_listener
        self._listeners[number] = wake
        return lambda: self._listeners.pop(number, None) and None
