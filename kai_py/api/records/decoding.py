"""Decoding JSON into records as Go's clients decode it: null is the empty value.

Go writes a list or map that was never set as null, unless its field says ``omitempty``, and the API
server stores some of these (``spec.drivers`` of a CSINode). Read back, null leaves a field as it
was, and an item of a list or a value of a map is the zero value of its type (encoding/json,
Unmarshal). Records have the API's defaults, so a null field counts as absent.

A document without such nulls is decoded in one pass; the second pass is for those with them.

Interning: equal parts of decoded records are kept in memory once.

Pods of a workload differ in their names and times; containers, tolerations, labels, conditions and
their strings are equal. A part that was seen before is replaced by the first one, found by its
encoding; within a new part the same is done. Records are frozen, so only ``is`` can tell the
difference. Tables are bounded, in entries and in bytes: when one is full all are cleared. O(size of
the encoding) per part, a few microseconds per pod.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect
from msgspec.structs import fields, force_setattr

T = TypeVar("T")

_NULL = msgspec.Raw(b"null")
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode
_shape: Callable[[Any], inspect.Type] = cache(inspect.type_info)
_List = inspect.ListType | inspect.VarTupleType
_ZEROS: tuple[tuple[type | Any, bytes], ...] = (
    (inspect.NoneType | inspect.AnyType | inspect.RawType, b"null"),
    (inspect.IntType | inspect.FloatType, b"0"),
    (inspect.StrType | inspect.BytesType, b'""'),
    (inspect.BoolType, b"false"),
    (_List, b"[]"),
    (inspect.StructType | inspect.DictType, b"{}"),
)
"""What null stands for as an item or value, by type; of a union the first that matches."""


def record_decoder(kind: type[T]) -> Callable[[bytes | msgspec.Raw], T]:
    """A function from the JSON of one object to its record; raises msgspec.DecodeError."""
    decode = msgspec.json.Decoder(kind).decode

    def decode_nulls(data: bytes | msgspec.Raw) -> T:
        try:
            return decode(data)
        except msgspec.ValidationError:
            return decode(_without_nulls(data, _shape(kind)))

    return decode_nulls


def convert_record(document: Any, kind: type[T], *, coerce_text: bool = False) -> T:
    """The record of a parsed document, or a tuple of them; raises msgspec.ValidationError.

    ``coerce_text``: take numbers and flags that are written as text, as YAML files have them.
    """
    try:
        return msgspec.convert(document, kind, strict=not coerce_text)
    except msgspec.ValidationError:
        plain = _without_nulls(_encode(document), _shape(kind))
        return msgspec.json.decode(plain, type=kind, strict=not coerce_text)


def _without_nulls(data: bytes | msgspec.Raw, shape: inspect.Type) -> msgspec.Raw:
    """``data`` with the fields of records that are null left out; what is not read is lost."""
    for each in shape.types if isinstance(shape, inspect.UnionType) else (shape,):
        try:
            if isinstance(each, inspect.StructType):
                return _raw(_fields(_members(data), each))
            if isinstance(each, inspect.DictType):
                return _raw({k: _item(v, each.value_type) for k, v in _members(data).items()})
            if isinstance(each, _List):
                return _raw([_item(item, each.item_type) for item in _items(data)])
        except msgspec.ValidationError:
            continue  # of another type: the decoder of the whole says so
    return msgspec.Raw(data)


def _fields(members: dict[str, msgspec.Raw], shape: inspect.StructType) -> dict[str, msgspec.Raw]:
    return {
        field.encode_name: _without_nulls(members[field.encode_name], field.type)
        for field in shape.fields
        if members.get(field.encode_name, _NULL) != _NULL
    }


def _item(item: msgspec.Raw, shape: inspect.Type) -> msgspec.Raw:
    return _without_nulls(_zero(shape) if item == _NULL else item, shape)


def _zero(shape: inspect.Type) -> msgspec.Raw:
    types = shape.types if isinstance(shape, inspect.UnionType) else (shape,)
    for kinds, zero in _ZEROS:
        if any(isinstance(each, kinds) for each in types):
            return msgspec.Raw(zero)
    return _NULL


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(_encode(value))


MAX_INTERNED = 20_000
"""Cached parts of one field, or strings, at most."""

MAX_INTERNED_BYTES = 16 * 1024 * 1024
"""The encodings of all cached parts, at most: one annotation may have 256 KiB."""

NO_ITEMS: dict[str, Any] = {}
"""Every empty dict: the dicts of a record are never changed."""

UNIQUE_FIELDS = frozenset({"name", "uid", "resource_version"})
"""Fields whose strings hardly any other object shares."""

_encode_equal = msgspec.msgpack.Encoder().encode


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


def interned(decode: Callable[[Any], T]) -> Callable[[Any], T]:
    """``decode``, with equal parts of everything it decodes kept once."""
    interning = Interning()
    return lambda raw: interning.intern(decode(raw))


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
