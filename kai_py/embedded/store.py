"""In-memory store of all objects, with a log of their changes, as etcd has one.

Objects are kept by kind, namespace and name. Every write gets the next revision of one counter and
is appended to the log of its kind. A watch is a position in that log. Compaction drops old changes;
a watch that starts before the oldest change gets 410 and must list again.

The store checks that the name of a new object is free, and keeps an index of owners; the contents
of objects are validated before they get here. Documents handed in belong to the store; documents
handed out are shared and must not be changed.

Every operation is O(1) but `list`, which sorts, and the log's compaction. Reading k new changes in
a log of n is O(log n + k).
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from enum import Enum
from functools import cached_property

import msgspec
from msgspec import Struct

from kai_py.embedded.documents import Json, name_of, namespace_of, owners_of, uid_of
from kai_py.embedded.errors import RequestError, already_exists, expired

MAX_CHANGES = 20_000
"""Changes kept per kind; older ones are compacted away in batches."""

StoredKey = tuple[str, str, str]
"""Key of an object: its kind's storage name (`jobs.batch`), namespace, name."""


class ChangeType(Enum):
    """Kind of a change; the values are those of watch events."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Change(Struct, frozen=True, dict=True):
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


class Store:
    """Revisioned objects of all kinds."""

    def __init__(self, kept_changes: int = MAX_CHANGES) -> None:
        self.revision = 1
        self._kept_changes = kept_changes
        self._compacted_through = 0
        self._objects: dict[str, dict[str, dict[str, Json]]] = {}
        self._logs: dict[str, EventLog] = {}
        self._by_uid: dict[str, StoredKey] = {}
        self._dependents: dict[str, dict[StoredKey, None]] = {}
        self._subscribers: list[Callable[[Change], None]] = []

    def get(self, storage: str, namespace: str, name: str) -> Json | None:
        """The object, or None."""
        return self._objects.get(storage, {}).get(namespace, {}).get(name)

    def list(self, storage: str, namespace: str | None = None) -> list[Json]:
        """The objects of a kind by namespace and name; None means all namespaces."""
        by_namespace = self._objects.get(storage, {})
        namespaces = sorted(by_namespace) if namespace is None else [namespace]
        return [
            document
            for each in namespaces
            for _, document in sorted(by_namespace.get(each, {}).items())
        ]

    def count(self, storage: str) -> int:
        """How many objects of a kind there are."""
        return sum(len(each) for each in self._objects.get(storage, {}).values())

    def by_uid(self, uid: str) -> Json | None:
        """The object with this uid, or None."""
        key = self._by_uid.get(uid)
        return self.get(*key) if key else None

    def key_of_uid(self, uid: str) -> StoredKey | None:
        """The key of the object with this uid, or None."""
        return self._by_uid.get(uid)

    def dependents(self, uid: str) -> Sequence[tuple[str, Json]]:
        """Return (storage, object) of everything that names `uid` as an owner, oldest first."""
        found = ((key[0], self.get(*key)) for key in self._dependents.get(uid, {}))
        return [(storage, document) for storage, document in found if document is not None]

    def insert(self, storage: str, document: Json) -> Json:
        """Add a new object; raises RequestError 409 when its name is taken."""
        name = name_of(document)
        if self.get(storage, namespace_of(document), name) is not None:
            raise already_exists(storage, name)
        return self._write(ChangeType.ADDED, storage, document, previous=None)

    def replace(self, storage: str, document: Json, previous: Json) -> Json:
        """Put `document` in the place of `previous`."""
        return self._write(ChangeType.MODIFIED, storage, document, previous=previous)

    def remove(self, storage: str, previous: Json) -> Json:
        """Delete an object; return its last state with the revision of the deletion."""
        self._unindex(storage, previous)
        namespace, by_namespace = namespace_of(previous), self._objects[storage]
        del by_namespace[namespace][name_of(previous)]
        if not by_namespace[namespace]:
            del by_namespace[namespace]
        self._by_uid.pop(uid_of(previous), None)
        # A copy: the deletion has a revision of its own, and `previous` is shared.
        return self._record(ChangeType.DELETED, storage, dict(previous), previous)

    def log(self, storage: str) -> EventLog:
        """The log of a kind."""
        if storage not in self._logs:
            self._logs[storage] = EventLog(self._kept_changes)
            self._logs[storage].compact(self._compacted_through)
        return self._logs[storage]

    def compact(self, revision: int | None = None) -> None:
        """Drop history up to `revision`, by default all of it."""
        self._compacted_through = self.revision if revision is None else revision
        for log in self._logs.values():
            log.compact(self._compacted_through)

    def subscribe(self, receive: Callable[[Change], None]) -> None:
        """Call `receive` with every change of every kind, in order, during the write."""
        self._subscribers.append(receive)

    def unsubscribe(self, receive: Callable[[Change], None]) -> None:
        """Stop calling `receive`."""
        self._subscribers.remove(receive)

    def _write(
        self, change: ChangeType, storage: str, document: Json, previous: Json | None
    ) -> Json:
        if previous is not None:
            self._unindex(storage, previous)
        return self._record(change, storage, document, previous)

    def _record(
        self, change: ChangeType, storage: str, document: Json, previous: Json | None
    ) -> Json:
        self.revision += 1
        document["metadata"] = document["metadata"] | {"resourceVersion": str(self.revision)}
        if change is not ChangeType.DELETED:
            self._index(storage, document)
        entry = Change(change, storage, document, previous, self.revision)
        self.log(storage).append(entry)
        for receive in self._subscribers:
            receive(entry)
        return document

    def _index(self, storage: str, document: Json) -> None:
        namespace, name = namespace_of(document), name_of(document)
        by_namespace = self._objects.setdefault(storage, {})
        by_namespace.setdefault(namespace, {})[name] = document
        key = (storage, namespace, name)
        self._by_uid[uid_of(document)] = key
        for owner in owners_of(document):
            self._dependents.setdefault(owner["uid"], {})[key] = None

    def _unindex(self, storage: str, document: Json) -> None:
        key = (storage, namespace_of(document), name_of(document))
        for owner in owners_of(document):
            held = self._dependents.get(owner["uid"], {})
            held.pop(key, None)
            if not held:
                self._dependents.pop(owner["uid"], None)
