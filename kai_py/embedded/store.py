"""In-memory store of all objects, by kind, namespace and name.

One revision counter counts all writes, as in etcd. The store checks revisions, existence and
ownership links; the contents of objects are validated before they get here. Documents handed in
belong to the store; documents handed out are shared and must not be changed.

Every operation is O(1) but `list`, which sorts, and the log's compaction.
"""

from collections.abc import Callable, Sequence

from kai_py.embedded.documents import Json, name_of, namespace_of, uid_of
from kai_py.embedded.errors import already_exists
from kai_py.embedded.event_log import MAX_CHANGES, Change, ChangeType, EventLog

StoredKey = tuple[str, str, str]
"""Key of an object: its kind's storage name (`jobs.batch`), namespace, name."""


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
        """Call `receive` no more."""
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
        for owner in document["metadata"].get("ownerReferences") or ():
            self._dependents.setdefault(owner["uid"], {})[key] = None

    def _unindex(self, storage: str, document: Json) -> None:
        key = (storage, namespace_of(document), name_of(document))
        for owner in document["metadata"].get("ownerReferences") or ():
            held = self._dependents.get(owner["uid"], {})
            held.pop(key, None)
            if not held:
                self._dependents.pop(owner["uid"], None)
