"""Values: the Python representation of CEL values, their equality, order and selection.

    bool, int, double, string, bytes, null    bool, int, float, str, bytes, None
    uint                                      Uint, an int of its own type
    list                                      tuple (AssociativeList for list types set and map)
    map                                       dict; a boolean key is represented by a BoolKey
    quantity, semver, ip, cidr, url           Quantity, Semver, IP, CIDR, URL
    duration, timestamp, type, optional       Duration, Timestamp, TypeName, Optional

``True == 1`` holds in Python and not in CEL, so values are compared by ``equal`` and never by
``==``.

Source: CEL specification, "Values" and "Equality"; cel-go for the wording of errors.
"""

import enum
import math
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from kai_py.api.quantity import Quantity

INT_MIN, INT_MAX, UINT_MAX = -(2**63), 2**63 - 1, 2**64 - 1

Value = Any
"""A runtime value, of one of the classes above."""


class CELRuntimeError(Exception):
    """An expression failed when it ran; the text is cel-go's."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def as_value(self) -> "CELRuntimeError":
        """The error as a variable may hold it: without the frames, which hold the variable."""
        self.__traceback__ = self.__context__ = None
        return self


class CostLimitError(CELRuntimeError):
    """An expression took too many steps; no ``||`` absorbs that."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class Uint(int):
    """An unsigned integer of 64 bits."""

    __slots__ = ()


class BoolKey(enum.Enum):
    """A boolean as the key of a map, where Python would confuse it with 0 or 1."""

    FALSE = False
    TRUE = True


class Duration(Struct, frozen=True, order=True):
    """A span of time in nanoseconds."""

    nanos: int


class Timestamp(Struct, frozen=True, order=True):
    """A point in time, in nanoseconds since 1970-01-01T00:00:00Z."""

    nanos: int


class TypeName(Struct, frozen=True):
    """A type as a value, such as the result of ``type(1)``."""

    name: str


class Optional(Struct, frozen=True, eq=False):
    """A value that may be absent."""

    present: bool
    value: Value = None


NONE = Optional(present=False)


class AssociativeList(tuple[Value, ...]):
    """A list with an equality and a concatenation of its own (Kubernetes' list types)."""

    def equals(self, other: tuple[Value, ...]) -> bool:
        """Compare with another list."""
        raise NotImplementedError

    def merged(self, other: tuple[Value, ...]) -> "AssociativeList":
        """The concatenation with another list.

        :raises CELRuntimeError: an element of the other list does not fit.
        """
        raise NotImplementedError


class DefaultMap(dict[str, Value]):
    """A map that returns an empty map for an unknown key, but does not contain it."""

    def __missing__(self, key: str) -> Value:
        return EMPTY_MAP


EMPTY_MAP: dict[str, Value] = {}

KINDS: dict[type, str] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    tuple: "list",
    dict: "map",
    DefaultMap: "map",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    TypeName: "type",
    Optional: "optional_type",
    Quantity: "kubernetes.Quantity",
}
"""CEL's name for the type of each class; other modules add their own classes."""

GO_TYPES: dict[str, str] = {
    "bool": "types.Bool",
    "int": "types.Int",
    "uint": "types.Uint",
    "double": "types.Double",
    "string": "types.String",
    "bytes": "types.Bytes",
    "null_type": "types.Null",
    "google.protobuf.Duration": "types.Duration",
    "google.protobuf.Timestamp": "types.Timestamp",
    "list": "*types.baseList",
    "map": "*types.baseMap",
    "type": "*types.Type",
    "optional_type": "*types.Optional",
    "kubernetes.Quantity": "cel.Quantity",
    "kubernetes.Semver": "cel.Semver",
}
"""The names of types in the API server's error messages."""

NUMERIC = frozenset({int, Uint, float})
KEYS = NUMERIC | {bool, str}
"""Types of map keys; a double finds the integer of its value."""


def kind_of(value: Value) -> str:
    """The name of the CEL type of a value."""
    return KINDS[type(value)]


def equal(left: Value, right: Value) -> bool:
    """Compare as ``==`` does: numbers by value, all else only within one type."""
    kind, other = type(left), type(right)
    if kind in NUMERIC and other in NUMERIC:
        return bool(float(left) == float(right) if float in (kind, other) else left == right)
    if isinstance(left, tuple) and isinstance(right, tuple):
        return _equal_lists(left, right)
    if isinstance(left, dict) and isinstance(right, dict):
        return len(left) == len(right) and all(
            key in right and not _differ(value, right[key]) for key, value in left.items()
        )
    if kind is not other:
        return False
    if kind is Optional:
        return left.present == right.present and equal(left.value, right.value)
    return bool(left == right)


def _equal_lists(left: tuple[Value, ...], right: tuple[Value, ...]) -> bool:
    if isinstance(left, AssociativeList):
        return left.equals(right)
    return len(left) == len(right) and not any(map(_differ, left, right))


def is_incomparable(left: Value, right: Value) -> bool:
    """Whether ``left == right`` fails: a Kubernetes type on the left, another on the right."""
    if right is None or type(left) is type(right):
        return False
    return kind_of(left) in _KUBERNETES_KINDS


def _differ(left: Value, right: Value) -> bool:
    """Whether elements of two lists or maps differ; where comparing them fails, they do not."""
    return not equal(left, right) and not is_incomparable(left, right)


_KUBERNETES_KINDS = frozenset(
    {"kubernetes.Quantity", "kubernetes.Semver", "kubernetes.URL", "kubernetes.NamedFormat",
     "net.IP", "net.CIDR"}
)  # fmt: skip


ORDERED = frozenset({bool, str, bytes, Duration, Timestamp})
UNORDERED = "NaN values cannot be ordered"


def is_nan(value: Value) -> bool:
    """Whether a value is the double NaN."""
    return isinstance(value, float) and math.isnan(value)


def compare(left: Value, right: Value) -> int:
    """-1, 0 or 1.

    :raises CELRuntimeError: the types have no order.
    """
    kind, other = type(left), type(right)
    if kind in NUMERIC and other in NUMERIC:
        if is_nan(left) or is_nan(right):
            raise CELRuntimeError(UNORDERED)
        if float in (kind, other):
            left, right = float(left), float(right)
    elif kind is not other or kind not in ORDERED:
        raise CELRuntimeError("no such overload")
    return int(left > right) - int(left < right)


def to_key(value: Value) -> Value:
    """The representation of a value as a map key."""
    if type(value) is bool:
        return BoolKey(value)
    return value


def from_key(key: Value) -> Value:
    """The value of a map key."""
    return key.value if isinstance(key, BoolKey) else key


def iterate(value: Value) -> Iterable[Value]:
    """The elements of a list or the keys of a map.

    :raises CELRuntimeError: the value is neither.
    """
    if isinstance(value, tuple):
        return value
    if isinstance(value, dict):
        return map(from_key, value)
    kind = kind_of(value)
    raise CELRuntimeError(f"got '{GO_TYPES.get(kind, kind)}', expected iterable type")


def size_of(value: Value) -> int:
    """The size for cost counting: 1 for values without a length."""
    return len(value) if isinstance(value, str | tuple | dict | bytes) else 1


def format_key(key: Value) -> str:
    """A key or an index as error messages show it."""
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key)


def select(value: Value, field: str) -> Value:
    """``value.field``.

    :raises CELRuntimeError: there is no such field.
    """
    if isinstance(value, Mapping):
        # The map itself is the sentinel for an absent key, as it can't be its own value.
        found = value.get(field, value)
        if found is not value:
            return found
        if type(value) is DefaultMap:
            return EMPTY_MAP
    elif type(value) is Optional:
        return optional_select(value, field)
    elif isinstance(value, tuple):
        return index(value, field)
    raise CELRuntimeError(f"no such key: {field}")


def has(value: Value, key: Value) -> bool:
    """Whether ``value[key]`` has a value."""
    if isinstance(value, dict):
        return type(key) in KEYS and (type(value) is DefaultMap or to_key(key) in value)
    if isinstance(value, tuple):
        return 0 <= _position(key) < len(value)
    if type(value) is Optional:
        return value.present and has(value.value, key)
    return False


def _position(key: Value) -> int:
    """The position in a list that a key stands for.

    :raises CELRuntimeError: it stands for none.
    """
    if type(key) not in NUMERIC:
        raise CELRuntimeError(f"unsupported index type '{kind_of(key)}' in list")
    if isinstance(key, float) and not key.is_integer():
        raise CELRuntimeError(f"unsupported index value {key} in list")
    return int(key)


def require_key(key: Value) -> None:
    """Check that a value can be the key of a map or the position in a list.

    :raises CELRuntimeError: it cannot.
    """
    if type(key) not in KEYS and key is not None:
        kind = kind_of(key)
        raise CELRuntimeError(f"invalid qualifier type: {GO_TYPES.get(kind, kind)}")


def index(value: Value, key: Value) -> Value:
    """``value[key]``.

    :raises CELRuntimeError: there is no such element.
    """
    require_key(key)
    if isinstance(value, dict):
        if not has(value, key):
            raise CELRuntimeError(f"no such key: {format_key(key)}")
        return value.get(to_key(key), EMPTY_MAP)
    if isinstance(value, tuple):
        position = _position(key)
        if not 0 <= position < len(value):
            raise CELRuntimeError(f"index out of bounds: {position}")
        return value[position]
    if type(value) is Optional:
        return optional_index(value, key)
    raise CELRuntimeError(f"no such key: {format_key(key)}")


def optional_index(value: Value, key: Value) -> Optional:
    """``value[?key]``: the element if there is one.

    :raises CELRuntimeError: the key is of no type of keys.
    """
    require_key(key)
    if type(value) is Optional:
        if not value.present:
            return NONE
        value = value.value
    return Optional(present=True, value=index(value, key)) if has(value, key) else NONE


def optional_select(value: Value, field: str) -> Optional:
    """``value.?field``: the field if there is one."""
    return optional_index(value, field)
