"""The types and values in a CRD's rules: from its schema, and from an object.

An object's fields are accessible under escaped names, reserved words under their own too; fields
of an unknown type, and unknown fields that the schema preserves, are not, but they count when
objects are compared. Null fields are absent. The root and embedded resources have ``apiVersion``,
``kind``, ``metadata.name`` and ``metadata.generateName``, and nothing else of the metadata.

In lists of Kubernetes' list types set and map the order of elements is irrelevant: equality ignores
it. Concatenation keeps the order of the left side: a set adds missing elements,
a map replaces elements of equal keys and adds the others.

Source: Kubernetes documentation "Validation rules" of CustomResourceDefinitions.
"""

import base64
import binascii
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from kai_py.cel.library.times import parse_duration, parse_timestamp
from kai_py.cel.syntax import RESERVED
from kai_py.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    Type,
    list_of,
    map_of,
)
from kai_py.cel.values import KINDS, AssociativeList, CELRuntimeError, Value, equal, kind_of
from kai_py.embedded.documents import Json


class SetList(AssociativeList):
    """A list of distinct elements."""

    def equals(self, other: tuple[Value, ...]) -> bool:
        """Whether both have the same elements."""
        return len(self) == len(other) and all(_contains(self, element) for element in other)

    def merged(self, other: tuple[Value, ...]) -> "SetList":
        """The union."""
        merged = list(self)
        for element in other:
            if not _contains(merged, element):
                merged.append(element)
        return SetList(merged)


class MapList(AssociativeList):
    """A list of objects that are identified by the values of some of their fields."""

    keys: tuple[str, ...]

    def __new__(cls, keys: tuple[str, ...], elements: Iterable[Value]) -> "MapList":
        """Make a list whose elements are identified by the fields ``keys``."""
        instance = super().__new__(cls, elements)
        instance.keys = keys
        return instance

    def equals(self, other: tuple[Value, ...]) -> bool:
        """Whether both have equal elements under equal keys."""
        own = {self._key(element): element for element in self}
        return len(self) == len(other) and all(
            (key := self._key(element)) in own and equal(own[key], element) for element in other
        )

    def merged(self, other: tuple[Value, ...]) -> "MapList":
        """The list with elements replaced or added."""
        merged = {self._key(element): element for element in self}
        merged.update({self._key(element): element for element in other})
        return MapList(self.keys, merged.values())

    def _key(self, element: Value) -> tuple[Value, ...]:
        if not isinstance(element, dict):
            raise CELRuntimeError(f"unexpected element of a map list: {kind_of(element)}")
        return tuple((type(element.get(key)), element.get(key)) for key in self.keys)


def _contains(elements: Iterable[Value], wanted: Value) -> bool:
    return any(equal(element, wanted) for element in elements)


KINDS.update({SetList: "list", MapList: "list"})


Fields = dict[str, dict[str, Type]]
"""Types of the fields of an object type, by the type's name."""

INT_OR_STRING = "x-kubernetes-int-or-string"
EMBEDDED = "x-kubernetes-embedded-resource"
_TEXT = {"type": "string"}
_ROOT_FIELDS = {
    "apiVersion": _TEXT,
    "kind": _TEXT,
    "metadata": {"type": "object", "properties": {"name": _TEXT, "generateName": _TEXT}},
}
_SCALARS = {"boolean": BOOL, "integer": INT, "number": DOUBLE, "string": STRING}
_FORMATS = {"byte": BYTES, "duration": DURATION, "date": TIMESTAMP, "date-time": TIMESTAMP}
_KEYWORDS = RESERVED | {"true", "false", "null"}
_ESCAPED = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}


class Preserved(Struct, frozen=True):
    """Fields that no expression can access, kept so that objects which differ there are unequal."""

    fields: Json


KINDS[Preserved] = "kubernetes.Preserved"
_PRESERVED = object()
"""The key of an object's preserved fields; no text is equal to it."""


def escape(name: str) -> str | None:
    """The identifier of a property in CEL, None if it has none."""
    if name in _KEYWORDS:
        return f"__{name}__"
    if not re.fullmatch(r"[a-zA-Z_./-][a-zA-Z0-9_./-]*", name):
        return None
    return re.sub(r"__|[./-]", lambda match: _ESCAPED[match[0]], name)


def _names(name: str, escaped: str) -> tuple[str, ...]:
    """The names under which a field is accessible: a reserved word, as in ``self.namespace``, too.

    Both are in the map of an object, so that objects are equal if their fields are.
    """
    return (escaped, name) if name in RESERVED - {"in"} else (escaped,)


def properties_of(schema: Json, *, root: bool = False) -> Json:
    """The schemas of an object's fields."""
    properties: Json = schema.get("properties") or {}
    return {**properties, **_ROOT_FIELDS} if root or schema.get(EMBEDDED) else properties


def declare(schema: Json, name: str, fields: Fields, *, root: bool = False) -> Type | None:
    """The type of a schema, None if it is unknown; records its objects' fields in ``fields``."""
    if schema.get(INT_OR_STRING):
        return DYN
    kind, extra = schema.get("type"), schema.get("additionalProperties")
    if kind == "array":
        element = declare(schema.get("items") or {}, f"{name}.@idx", fields)
        return element and list_of(element)
    if kind == "object" and isinstance(extra, dict):
        value = declare(extra, f"{name}.@elem", fields)
        return value and map_of(STRING, value)
    if kind == "object":
        declared: dict[str, Type] = {}
        for key, inner in properties_of(schema, root=root).items():
            escaped, found = escape(key), declare(inner, f"{name}.{key}", fields)
            if escaped is not None and found is not None:
                declared.update(dict.fromkeys(_names(key, escaped), found))
        fields[name] = declared
        return Type(name)
    if kind == "string":
        return _FORMATS.get(schema.get("format", ""), STRING)
    return _SCALARS.get(str(kind))


def to_value(content: Any, schema: Json, *, root: bool = False) -> Value:
    """The CEL value of an object's content.

    :raises CELRuntimeError: the content does not have the form that its schema says.
    """
    if schema.get(INT_OR_STRING):
        return content
    if isinstance(content, dict):
        return _mapping(content, schema, root=root)
    if isinstance(content, list):
        return _list(content, schema)
    if schema.get("type") == "number" and content is not None:
        return _number(content)
    read = _READERS.get(schema.get("format", "")) if isinstance(content, str) else None
    return read(content) if read else content


def _number(content: float) -> float:
    try:
        return float(content)
    except OverflowError:
        return math.inf if content > 0 else -math.inf


def _mapping(content: Json, schema: Json, *, root: bool) -> Value:
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        return {key: to_value(value, extra) for key, value in content.items()}
    properties = properties_of(schema, root=root)
    result: dict[Any, Value] = {}
    preserved: Json = {}
    for key, value in content.items():
        escaped, inner = escape(key), properties.get(key)
        if inner is None or escaped is None or not _is_known(inner):
            preserved[key] = value
        elif value is not None:
            result.update(dict.fromkeys(_names(key, escaped), to_value(value, inner)))
    if preserved:
        result[_PRESERVED] = Preserved(preserved)
    return result


def _is_known(schema: Json) -> bool:
    while not schema.get(INT_OR_STRING):
        extra = schema.get("additionalProperties")
        if schema.get("type") == "array":
            schema = schema.get("items") or {}
        elif schema.get("type") == "object" and isinstance(extra, dict):
            schema = extra
        else:
            return schema.get("type") in ("object", *_SCALARS)
    return True


def _list(content: list[Any], schema: Json) -> Value:
    items = schema.get("items") or {}
    elements = [to_value(element, items) for element in content]
    match schema.get("x-kubernetes-list-type"):
        case "set":
            return SetList(elements)
        case "map":
            keys = schema.get("x-kubernetes-list-map-keys") or ()
            return MapList(tuple(escape(key) or key for key in keys), elements)
        case _:
            return tuple(elements)


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as fault:
        raise CELRuntimeError(f"Invalid byte formatted string {text}: {fault}") from None


_READERS: dict[str, Callable[[str], Value]] = {
    "byte": _bytes,
    "duration": parse_duration,
    "date": lambda text: parse_timestamp(f"{text}T00:00:00Z"),
    "date-time": parse_timestamp,
}
