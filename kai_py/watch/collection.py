"""Mirrored collection of one kind, and the notification of its changes.

A collection is a dict that changes in place. Every change is passed, in order, to one listener: the
objects always equal the sum of the changes. The rules:

- A whole list is applied as a difference, so deletions that no event reported are noticed.
- An object with another uid under a known name is a new object: DELETED, then ADDED.
- The same resourceVersion again is no change.
- An object that cannot be decoded is left out, and its name and the reason are recorded. An older
  version of it is removed, because it is no longer true. Of kinds that hold capacity it is read
  without the fields that cannot be decoded, and recorded likewise.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeAlias

import msgspec
from msgspec import Struct

from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.partial import read_partly, unreadable_fields
from kai_py.watch.resource import Decode, Key, Kind, T, key_of
from kai_py.watch.wire import decode_envelope, decode_nested

logger = logging.getLogger(__name__)

MAX_REASON = 1000
"""Longest reason, in characters, why an object is left out."""

STEP = 32
"""Objects of a list that are taken in at once, before other work of the event loop has its turn."""

OnChange = Callable[[Kind[Any], Any, Any], None]
"""Listener for changes: kind, old record (None: added), new record (None: deleted).

It runs inside the collection, must be quick and must not raise: an exception ends the mirror. The
scheduler's listener contains whatever goes wrong with one object.
"""


class Rejected(Struct, frozen=True):
    """An object that could not be decoded."""

    kind: str
    key: Key
    resource_version: str
    reason: str
    uid: str = ""


Entry: TypeAlias = T | Rejected
"""The newest state of an object: its record, or why it could not be decoded."""


def entry_key(entry: Entry[T]) -> Key:
    """The key of an entry."""
    return entry.key if isinstance(entry, Rejected) else key_of(entry)


def entry_version(entry: Entry[T]) -> str:
    """The resourceVersion of an entry."""
    if isinstance(entry, Rejected):
        return entry.resource_version
    return entry.metadata.resource_version


class Collection(Generic[T]):
    """The objects of one kind."""

    def __init__(self, kind: Kind[T], on_change: OnChange) -> None:
        self.kind = kind
        self.objects: dict[Key, T] = {}
        self.rejected: dict[Key, Rejected] = {}
        self._on_change = on_change

    def read(self, decode: Decode[T], raw: msgspec.Raw) -> Entry[T]:
        """Decode an object, or return why that fails; raises ValueError if it has no name."""
        try:
            return decode_nested(decode, raw)
        except Exception as error:
            identity = decode_envelope(raw).metadata
            if not identity.name:
                raise ValueError(str(error)) from error
            if self.kind.holds_capacity:
                partial = decode_nested(lambda data: read_partly(decode, data), raw)
                if partial is not None:
                    return partial[0]
            key, version = (identity.namespace, identity.name), identity.resource_version
            return Rejected(self.kind.name, key, version, str(error)[:MAX_REASON], identity.uid)

    def put(self, entry: Entry[T]) -> None:
        """Apply the newest state of an object."""
        self._put(entry_key(entry), entry)

    def _put(self, key: Key, entry: Entry[T]) -> None:
        if isinstance(entry, Rejected):
            self._reject(entry)
            return
        self._note_unreadable(key, entry)
        old = self.objects.get(key)
        # Recreated under the same name: listeners must see the deletion first.
        if old is not None and old.metadata.uid != entry.metadata.uid:
            self.remove(key)
            old = None
        if old is None or old.metadata.resource_version != entry.metadata.resource_version:
            self.objects[key] = entry
            self._on_change(self.kind, old, entry)

    def remove(self, key: Key, *, uid: str = "") -> None:
        """Remove an object; with ``uid``, only if it is the one with this uid."""
        old = self.objects.get(key)
        if old is not None and uid not in ("", old.metadata.uid):
            return
        self.rejected.pop(key, None)
        if old is not None:
            del self.objects[key]
            self._on_change(self.kind, old, None)

    def count_differences(self, entries: Mapping[Key, Entry[T]]) -> int:
        """Count the objects that a whole list adds, changes or removes."""
        known: dict[Key, Entry[T]] = {**self.rejected, **self.objects}
        changed = sum(
            key not in known or entry_version(known[key]) != entry_version(entry)
            for key, entry in entries.items()
        )
        return changed + sum(key not in entries for key in known)

    def replace(self, entries: Mapping[Key, Entry[T]]) -> None:
        """Become equal to a whole list."""
        for _ in self.replacing(entries):
            pass

    def replacing(self, entries: Mapping[Key, Entry[T]]) -> Iterator[None]:
        """Become equal to a whole list in steps of bounded length; each change is one of a watch.

        Nothing else may change the collection before the last step.
        """
        gone = [key for key in (*self.objects, *self.rejected) if key not in entries]
        for number, key in enumerate(gone, 1):
            self.remove(key)
            if number % STEP == 0:
                yield
        for number, (key, entry) in enumerate(entries.items(), 1):
            self._put(key, entry)
            if number % STEP == 0:
                yield

    def _note_unreadable(self, key: Key, record: T) -> None:
        """List a record of which some fields could not be read among the rejected objects."""
        meta = record.metadata
        reason = unreadable_fields(meta) if isinstance(meta, ObjectMeta) else ""
        previous = self.rejected.pop(key, None)
        if reason:
            entry = Rejected(self.kind.name, key, meta.resource_version, reason, meta.uid)
            self.rejected[key] = entry
            self._warn(entry, previous, "is read in part only")

    def _reject(self, entry: Rejected) -> None:
        previous = self.rejected.get(entry.key)
        self.remove(entry.key)
        self.rejected[entry.key] = entry
        self._warn(entry, previous, "is ignored")

    def _warn(self, entry: Rejected, previous: Rejected | None, consequence: str) -> None:
        """Log why an object is not read as it is, once for each reason."""
        if previous is None or previous.reason != entry.reason:
            namespace, name = entry.key
            qualified_name = f"{namespace}/{name}" if namespace else name
            template = "%s %s %s: %s"
            logger.warning(template, entry.kind, qualified_name, consequence, entry.reason)
