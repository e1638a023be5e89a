"""What do we know of one collection, and what has just changed?

A collection is a dict that changes in place, and every change is told, in order, to one listener:
the objects always equal the sum of the changes told. The rules:

- A whole list enters as a difference to what is known, so deletions that nobody told us of are
  seen.
- An object with another uid under a known name is a new object: DELETED, then ADDED.
- The same resourceVersion again is no change.
- An object that cannot be decoded is kept out, with its name and the reason; if an older version
  of it was known, that is deleted, because it is no longer true.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias

import msgspec

from kai_py.watch.resource import Decode, Key, Kind, T, key_of
from kai_py.watch.wire import decode_envelope

logger = logging.getLogger(__name__)

OnChange = Callable[[Kind[Any], Any, Any], None]
"""Told of a change: kind, old record (None: added), new record (None: deleted).

It runs inside the collection, must be quick and must not raise: an exception ends the mirror."""


@dataclass(frozen=True)
class Rejected:
    """An object that could not be decoded."""

    kind: str
    key: Key
    resource_version: str
    reason: str


Entry: TypeAlias = T | Rejected
"""The newest state of an object: its record, or why there is none."""


def entry_key(entry: Entry[T]) -> Key:
    """Give the key of an entry."""
    return entry.key if isinstance(entry, Rejected) else key_of(entry)


def entry_version(entry: Entry[T]) -> str:
    """Give the resourceVersion of an entry."""
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
        """Decode an object or say why not; raises ValueError if it does not even have a name."""
        try:
            return decode(raw)
        except ValueError as error:
            identity = decode_envelope(raw).metadata
            if not identity.name:
                raise
            key = (identity.namespace, identity.name)
            return Rejected(self.kind.name, key, identity.resource_version, str(error))

    def put(self, entry: Entry[T]) -> None:
        """Take the newest state of an object."""
        if isinstance(entry, Rejected):
            self._reject(entry)
            return
        key = key_of(entry)
        self.rejected.pop(key, None)
        old = self.objects.get(key)
        if old is not None and old.metadata.uid != entry.metadata.uid:
            self.remove(key)
            old = None
        if old is None or old.metadata.resource_version != entry.metadata.resource_version:
            self.objects[key] = entry
            self._on_change(self.kind, old, entry)

    def remove(self, key: Key, *, uid: str = "") -> None:
        """Forget an object, if it is the one with this uid (where given)."""
        old = self.objects.get(key)
        if old is not None and uid not in ("", old.metadata.uid):
            return
        self.rejected.pop(key, None)
        if old is not None:
            del self.objects[key]
            self._on_change(self.kind, old, None)

    def replace(self, entries: Mapping[Key, Entry[T]]) -> None:
        """Become equal to a whole list."""
        for key in [*self.objects, *self.rejected]:
            if key not in entries:
                self.remove(key)
        for entry in entries.values():
            self.put(entry)

    def _reject(self, entry: Rejected) -> None:
        known = self.rejected.get(entry.key)
        self.remove(entry.key)
        self.rejected[entry.key] = entry
        if known != entry:
            namespace, name = entry.key
            place = f"{namespace}/{name}" if namespace else name
            logger.warning("%s %s is left out: %s", entry.kind, place, entry.reason)
