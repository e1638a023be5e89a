"""Quarantine: objects that could not be processed are set aside one by one; the others go on.

An exception while one object is read, derived or counted is a bug of the scheduler, or caused by an
object that the code does not expect. Either way it affects only that object, which gets an event
(``InvalidObject``) for each thing that goes wrong, and is tried again with its next change.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from kai_py.api.numbers import shortened
from kai_py.api.records.core import ObjectMeta
from kai_py.grouping.gang import Owner
from kai_py.snapshot.tables.pod_table import ObjectTable

Kinds = Mapping[str, tuple[str, str]]
"""API version and kind by collection, for the records that do not say theirs."""


class InvalidObject(Struct, frozen=True):
    """An object that is set aside, in full or in part, and why."""

    object: Owner
    message: str


OnFailure = Callable[[InvalidObject, Exception], None]
"""Called with every new failure; it may raise, and does where a failure must not be contained."""


def raise_failure(_object: InvalidObject, error: Exception) -> None:
    """Contain nothing: the exception ends what is being done."""
    raise error


def ignore_failure(_object: InvalidObject, _error: Exception) -> None:
    """Contain the failure; the snapshot lists the object."""


class Quarantine:
    """Objects that could not be processed, with the part that failed."""

    def __init__(self, on_failure: OnFailure = raise_failure, kinds: Kinds | None = None) -> None:
        """Start empty."""
        self._on_failure, self._kinds = on_failure, kinds or {}
        self._parts: dict[Owner, dict[str, str]] = {}

    def _reference(self, collection: str, record: object) -> Owner:
        """The reference to a record of a collection."""
        meta = getattr(record, "metadata", None)
        if not isinstance(meta, ObjectMeta):
            meta = ObjectMeta(name=str(getattr(record, "name", "")))
        api_version, kind = self._kinds.get(collection, ("", collection))
        api_version = getattr(record, "api_version", "") or api_version
        kind = getattr(record, "kind", "") or kind
        return Owner(api_version, kind, meta.namespace, meta.name, meta.uid)

    def report(self, affected: Owner, part: str, error: Exception) -> InvalidObject:
        """Set ``part`` of an object aside; the listener is called once."""
        reason = shortened(f"{type(error).__name__}: {error}")
        message = f"it cannot be processed ({part}: {reason}) and is set aside until it changes"
        invalid = InvalidObject(affected, message)
        parts = self._parts.setdefault(affected, {})
        if parts.get(part) != message:
            parts[part] = message
            self._on_failure(invalid, error)
        return invalid

    def report_record(
        self, collection: str, record: object, part: str, error: Exception
    ) -> InvalidObject:
        """As ``report``, for a record of a collection."""
        return self.report(self._reference(collection, record), part, error)

    def apply(self, table: ObjectTable, kind: str, old: object | None, new: object | None) -> None:
        """Pass a change of an object on to a table; a version that failed was never taken in."""
        part, record = type(table).__name__, new if new is not None else old
        if self._parts and part in self._parts.get(self._reference(kind, record), ()):
            old = None
        try:
            if old is not None or new is not None:
                table.apply(kind, old, new)
        except Exception as error:
            self.report_record(kind, record, part, error)
        else:
            self.clear_record(kind, record, part)

    def forget_record(self, collection: str, record: object) -> None:
        """Forget an object that was deleted."""
        self._parts.pop(self._reference(collection, record), None)

    def clear(self, affected: Owner, part: str) -> None:
        """Note that the part of the object has been processed without an error."""
        parts = self._parts.get(affected) if self._parts else None
        if parts is not None and parts.pop(part, None) is not None and not parts:
            del self._parts[affected]

    def clear_record(self, collection: str, record: object, part: str) -> None:
        """As ``clear``, for a record of a collection."""
        if self._parts:
            self.clear(self._reference(collection, record), part)

    def snapshot(self) -> tuple[InvalidObject, ...]:
        """All invalid objects, in order of their references."""
        listed = sorted(self._parts.items(), key=lambda item: _order(item[0]))
        return tuple(
            InvalidObject(affected, message)
            for affected, parts in listed
            for message in parts.values()
        )


def _order(affected: Owner) -> tuple[str, ...]:
    return affected.kind, affected.namespace, affected.name, affected.uid
