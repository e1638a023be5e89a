"""Interning: equal parts of decoded records are kept in memory once.

Pods of a workload differ in their names and times; containers, tolerations, labels, conditions and
their strings are equal. A part that was seen before, which its encoding tells, is replaced by the
first one; so are the parts inside a new part. Records are frozen, so only ``is`` can tell the
difference. The tables are bounded, in entries and in bytes: when one is full, all are cleared.
O(size of the encoding) per part, a few microseconds per pod.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec.structs import fields, force_setattr

T = TypeVar("T")

MAX_INTERNED = 20_000
"""Cached parts of one field, or strings, at most."""

MAX_INTERNED_BYTES = 16 * 1024 * 1024
"""The encodings of all cached parts, at most: one annotation may have 256 KiB."""

NO_ITEMS: dict[str, Any] = {}
"""In place of every empty dict: the dicts of a record are never changed."""

UNIQUE_FIELDS = frozenset({"name", "uid", "resource_version"})
"""Fields whose strings are hardly ever those of another object."""

_encode_equal = msgspec.msgpack.Encoder().encode


def interned(decode: Callable[[Any], T]) -> Callable[[Any], T]:
    """``decode``, with equal parts of everything it decodes kept once."""
    interning = Interning()
    return lambda raw: interning.intern(decode(raw))


class Interning:
    """The parts seen so far; ``intern`` makes a record share them."""

    def __init__(self) -> None:
        """No parts seen yet."""
        self._strings: dict[str, str] = {}
        self._parts: dict[tuple[type, str], dict[bytes, Any]] = {}
        self._bytes = 0

    def intern(self, record: T) -> T:
        """The record itself, its parts replaced; there must be no other reference to it."""
        kind: type = type(record)
        for name in _names(kind):
            part = getattr(record, name)
            if isinstance(part, msgspec.Struct):
                self._intern_fields(part)
        return record

    def _intern_fields(self, struct: msgspec.Struct) -> None:
        kind, strings = type(struct), self._strings
        for name in _names(kind):
            part = getattr(struct, name)
            # Most fields are not set. Of empty values only dicts are worth interning: each is an
            # object of its own.
            if not part and type(part) is not dict:
                continue
            if type(part) is str:
                shared = strings.get(part) or self._cached(strings, part, part)
            else:
                shared = self._intern_part(kind, name, part) if part else NO_ITEMS
            if shared is not part:
                force_setattr(struct, name, shared)

    def _intern_part(self, kind: type, name: str, part: Any) -> Any:
        if isinstance(part, int | float):
            return part
        try:
            key = _encode_equal(part)
        except OverflowError:  # an integer beyond 64 bits, of a file: the API server writes none
            return part
        table = self._parts.setdefault((kind, name), {})
        shared = table.get(key)
        if shared is None:
            self._intern_inside(part)
            shared = self._cached(table, key, part)
        return shared

    def _intern_inside(self, part: Any) -> None:
        if isinstance(part, tuple):
            for each in part:
                self._intern_inside(each)
        elif isinstance(part, msgspec.Struct):
            self._intern_fields(part)
        elif isinstance(part, dict):
            for key, value in part.items():
                if type(value) is str:
                    part[key] = self._cached(self._strings, value, value)

    def _cached(self, table: dict[Any, Any], key: Any, value: Any) -> Any:
        known = table.get(key)
        if known is not None:
            return known
        if len(table) >= MAX_INTERNED or self._bytes >= MAX_INTERNED_BYTES:
            self._bytes = 0
            self._strings.clear()
            for each in self._parts.values():
                each.clear()
        self._bytes += len(key)
        table[key] = value
        return value


@cache
def _names(kind: type) -> tuple[str, ...]:
    """Fields whose values are more than a number, a time, or a string of one object."""
    if not issubclass(kind, msgspec.Struct):
        return ()
    plain = {int, float, bool}
    return tuple(
        each.name
        for each in fields(kind)
        if each.type not in plain
        and "datetime" not in str(each.type)
        and not (each.name in UNIQUE_FIELDS and each.type is str)
    )
