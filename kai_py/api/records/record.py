"""The base of all records, and decoding JSON into them as Go's clients do: null is the empty value.

Go writes a list or map that was never set as null, unless its field says ``omitempty``, and the API
server stores some of these (``spec.drivers`` of a CSINode). Read back, null leaves a field as it
was, and an item of a list or a value of a map is the zero value of its type (encoding/json,
Unmarshal). Records have the API's defaults, so a null field counts as absent.

A document is decoded in one pass; only one that has such nulls needs a second.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

QuantityText = str | int | float


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Base of all records: the API's camelCase outside, snake_case inside."""


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
    """``data`` without the fields of records that are null, and without those that are not read."""
    for each in shape.types if isinstance(shape, inspect.UnionType) else (shape,):
        try:
            if isinstance(each, inspect.StructType):
                return _raw(_fields(_members(data), each))
            if isinstance(each, inspect.DictType):
                return _raw({k: _item(v, each.value_type) for k, v in _members(data).items()})
            if isinstance(each, _List):
                return _raw([_item(item, each.item_type) for item in _items(data)])
        except msgspec.ValidationError:
            continue  # of another type, which the decoder of the whole document reports
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
