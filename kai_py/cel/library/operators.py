"""Operators and ``size``: CEL's standard definitions.

Integers have 64 bits and overflow is an error; division truncates towards zero; ``<`` compares
numbers of different types by value.

Source: CEL specification "List of Standard Definitions"; cel-go for the wording of errors.
"""

import math
import operator
from collections.abc import Callable
from functools import partial
from itertools import product

from kai_py.cel import values
from kai_py.cel.functions import declare, function
from kai_py.cel.values import (
    INT_MAX,
    INT_MIN,
    UINT_MAX,
    UNORDERED,
    CELRuntimeError,
    CostLimitError,
    Duration,
    Timestamp,
    Uint,
    Value,
)

MAX_ELEMENTS = 1_000_000
"""cel-go joins lists lazily, we do not: a longer list counts as exceeding the cost limit."""
MIN_TIMESTAMP, MAX_TIMESTAMP = -62135596800 * 10**9, 253402300800 * 10**9 - 1


def checked_int(value: int) -> int:
    """``value`` itself if it fits in 64 bits; raises CELRuntimeError otherwise."""
    if not INT_MIN <= value <= INT_MAX:
        raise CELRuntimeError("integer overflow")
    return value


def checked_uint(value: int) -> Uint:
    """``value`` as an unsigned integer if it fits in 64 bits; raises CELRuntimeError otherwise."""
    if not 0 <= value <= UINT_MAX:
        raise CELRuntimeError("unsigned integer overflow")
    return Uint(value)


def checked_duration(nanos: int) -> Duration:
    """A duration if it fits in 64 bits; raises CELRuntimeError otherwise."""
    if not INT_MIN <= nanos <= INT_MAX:
        raise CELRuntimeError("duration overflow")
    return Duration(nanos)


def checked_timestamp(nanos: int) -> Timestamp:
    """A timestamp if its year is 1 to 9999; raises CELRuntimeError otherwise."""
    if not MIN_TIMESTAMP <= nanos <= MAX_TIMESTAMP:
        raise CELRuntimeError("timestamp overflow")
    return Timestamp(nanos)


def concatenate(left: Value, right: Value) -> Value:
    """Join two lists, strings or byte strings."""
    if len(left) + len(right) > MAX_ELEMENTS * 10:
        raise CostLimitError
    if isinstance(left, tuple) and len(left) + len(right) > MAX_ELEMENTS:
        raise CostLimitError
    if isinstance(left, values.AssociativeList):
        return left.merged(right)
    return (*left, *right) if isinstance(left, tuple) else left + right


def divide(left: int, right: int) -> int:
    """Divide integers, truncating towards zero."""
    if right == 0:
        raise CELRuntimeError("division by zero")
    quotient = abs(left) // abs(right)
    return checked_int(quotient if (left < 0) == (right < 0) else -quotient)


def modulo(left: int, right: int) -> int:
    """The remainder, with the sign of the dividend."""
    if right == 0:
        raise CELRuntimeError("modulus by zero")
    if left == INT_MIN and right == -1:
        raise CELRuntimeError("integer overflow")
    remainder = abs(left) % abs(right)
    return -remainder if left < 0 else remainder


def divide_double(left: float, right: float) -> float:
    """Divide as IEEE 754 does."""
    if right:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def contains(element: Value, container: Value) -> bool:
    """Whether a list has an equal element, or a map the key."""
    if isinstance(container, dict):
        return type(element) in values.KEYS and values.to_key(element) in container
    return any(values.equal(element, other) for other in container)


def equals(left: Value, right: Value) -> bool:
    """Compare; a Kubernetes type only compares with itself, unless it is on the right."""
    if values.is_incomparable(left, right):
        raise CELRuntimeError("no such overload")
    return values.equal(left, right)


def not_strictly_false(value: Value) -> bool:
    """Whether a loop continues."""
    return value is not False


@function("'cel.@mapInsert'(map(K,V), map(K,V)) -> map(K,V)")
def insert_all(into: dict[Value, Value], entries: dict[Value, Value]) -> dict[Value, Value]:
    """Add entries to the map that a loop makes; no key may exist already."""
    for key, value in entries.items():
        _insert(into, key, value)
    return into


@function("'cel.@mapInsert'(map(K,V), K, V) -> map(K,V)")
def insert(into: dict[Value, Value], key: Value, value: Value) -> dict[Value, Value]:
    """Add one entry to the map that a loop makes; the key must not exist already."""
    if type(key) not in values.KEYS:
        raise CELRuntimeError(f"unsupported key type: {values.kind_of(key)}")
    _insert(into, values.to_key(key), value)
    return into


def _insert(into: dict[Value, Value], key: Value, value: Value) -> None:
    if key in into:
        shown = values.format_key(values.from_key(key))
        raise CELRuntimeError(f"insert failed: key {shown} already exists")
    into[key] = value


@function("size(string) -> int", "string.size() -> int", "size(bytes) -> int",
          "bytes.size() -> int", "size(list(A)) -> int", "list(A).size() -> int",
          "size(map(A,B)) -> int", "map(A,B).size() -> int")  # fmt: skip
def size(value: Value) -> int:
    """Count characters, bytes, elements or entries."""
    return len(value)


def _register() -> None:
    # In the order of cel-go's standard library: the first overload that takes the arguments wins.
    declare("_+_(bytes, bytes) -> bytes", concatenate)
    declare("_+_(double, double) -> double", lambda a, b: a + b)
    declare("_+_(duration, duration) -> duration", lambda a, b: checked_duration(a.nanos + b.nanos))
    declare("_+_(duration, timestamp) -> timestamp",
            lambda a, b: checked_timestamp(a.nanos + b.nanos))  # fmt: skip
    declare("_+_(timestamp, duration) -> timestamp",
            lambda a, b: checked_timestamp(a.nanos + b.nanos))  # fmt: skip
    declare("_+_(int, int) -> int", lambda a, b: checked_int(a + b))
    declare("_+_(list(A), list(A)) -> list(A)", concatenate)
    declare("_+_(string, string) -> string", concatenate)
    declare("_+_(uint, uint) -> uint", lambda a, b: checked_uint(int(a) + int(b)))
    declare("_-_(double, double) -> double", lambda a, b: a - b)
    declare("_-_(duration, duration) -> duration", lambda a, b: checked_duration(a.nanos - b.nanos))
    declare("_-_(int, int) -> int", lambda a, b: checked_int(a - b))
    declare("_-_(timestamp, duration) -> timestamp",
            lambda a, b: checked_timestamp(a.nanos - b.nanos))  # fmt: skip
    declare("_-_(timestamp, timestamp) -> duration",
            lambda a, b: checked_duration(a.nanos - b.nanos))  # fmt: skip
    declare("_-_(uint, uint) -> uint", lambda a, b: checked_uint(int(a) - int(b)))
    declare("_*_(double, double) -> double", lambda a, b: a * b)
    declare("_*_(int, int) -> int", lambda a, b: checked_int(a * b))
    declare("_*_(uint, uint) -> uint", lambda a, b: checked_uint(int(a) * int(b)))
    declare("_/_(double, double) -> double", divide_double)
    declare("_/_(int, int) -> int", divide)
    declare("_/_(uint, uint) -> uint", lambda a, b: Uint(divide_uint(a, b)))
    declare("_%_(int, int) -> int", modulo)
    declare("_%_(uint, uint) -> uint", lambda a, b: Uint(modulo(int(a), int(b))))
    declare("-_(double) -> double", lambda a: -a)
    declare("-_(int) -> int", lambda a: checked_int(-a))
    declare("!_(bool) -> bool", lambda a: not a)
    declare("@not_strictly_false(bool) -> bool", not_strictly_false)
    declare("_==_(A, A) -> bool", equals)
    declare("_!=_(A, A) -> bool", lambda a, b: not values.equal(a, b))
    declare("@in(A, list(A)) -> bool", contains)
    declare("@in(A, map(A,B)) -> bool", contains)
    declare("_[_](list(A), int) -> A", values.index)
    declare("_[_](map(A,B), A) -> B", values.index)
    declare("_[_](optional(list(A)), int) -> optional(A)", values.index)
    declare("_[_](optional(map(A,B)), A) -> optional(B)", values.index)
    declare("_[?_](list(A), int) -> optional(A)", values.optional_index)
    declare("_[?_](map(A,B), A) -> optional(B)", values.optional_index)
    declare("_[?_](optional(list(A)), int) -> optional(A)", values.optional_index)
    declare("_[?_](optional(map(A,B)), A) -> optional(B)", values.optional_index)
    declare("_?_:_(bool, A, A) -> A", lambda condition, a, b: a if condition else b)
    numbers = list(product(("int", "uint", "double"), repeat=2))
    others = [(kind, kind) for kind in ("bool", "string", "bytes", "timestamp", "duration")]
    for name, holds in _ORDER.items():
        for left, right in numbers + others:
            has_double = "double" in (left, right)
            implementation = partial(_compare_as_doubles, holds) if has_double else holds
            declare(f"{name}({left}, {right}) -> bool", implementation)


def _compare_as_doubles(holds: Callable[[float, float], bool], left: Value, right: Value) -> bool:
    """CEL rounds an integer before it compares it with a double; Python does not.

    :raises CELRuntimeError: one of them is not a number.
    """
    first, second = float(left), float(right)
    if math.isnan(first) or math.isnan(second):
        raise CELRuntimeError(UNORDERED)
    return holds(first, second)


def divide_uint(left: int, right: int) -> int:
    """Divide unsigned integers."""
    if right == 0:
        raise CELRuntimeError("division by zero")
    return int(left) // int(right)


_ORDER = {"_<_": operator.lt, "_<=_": operator.le, "_>_": operator.gt, "_>=_": operator.ge}
"""Python compares as CEL does, but for doubles (``_compare_as_doubles``)."""
_register()
