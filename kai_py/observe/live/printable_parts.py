"""Records of a view with untrusted text in them, made safe for a terminal."""

import dataclasses
from enum import Enum
from typing import Any, TypeVar

from msgspec import Struct, structs

from kai_py.api.printable import printable

Value = TypeVar("Value")


def printable_parts(value: Value) -> Value:
    """``value`` with every text in it made printable: in records, tuples, lists, mappings."""
    made: Value = _parts(value)
    return made


def _parts(value: Any) -> Any:
    made = value
    match value:
        case Enum():
            pass
        case str():
            made = printable(value)
        case tuple() if hasattr(value, "_fields"):
            made = type(value)(*map(_parts, value))
        case tuple() | list():
            made = type(value)(map(_parts, value))
        case dict():
            made = {_parts(key): _parts(each) for key, each in value.items()}
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [each.name for each in dataclasses.fields(value) if each.init]
            parts = {name: _parts(getattr(value, name)) for name in names}
            made = dataclasses.replace(value, **parts)
        case Struct():
            parts = {name: _parts(getattr(value, name)) for name in type(value).__struct_fields__}
            made = structs.replace(value, **parts)
    return made
