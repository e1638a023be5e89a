"""Conversions between types: ``int(x)``, ``string(x)``, ``type(x)``, ``dyn(x)``.

Source: CEL specification "Type Conversions"; cel-go for formats and the wording of errors.
"""

import math
import re

from kai_py.cel.functions import function
from kai_py.cel.library.operators import checked_int
from kai_py.cel.library.times import format_duration, format_timestamp
from kai_py.cel.values import (
    INT_MAX,
    INT_MIN,
    UINT_MAX,
    CELRuntimeError,
    Duration,
    Timestamp,
    TypeName,
    Uint,
    Value,
    kind_of,
)

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_DIGITS, _HEX = "[0-9](?:_?[0-9])*", "[0-9a-f](?:_?[0-9a-f])*"
_DOUBLE = re.compile(
    rf"nan|[+-]?(?:inf(?:inity)?|(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:e[+-]?{_DIGITS})?"
    rf"|0x_?(?:{_HEX}(?:\.(?:{_HEX})?)?|\.{_HEX})p[+-]?{_DIGITS})",
    re.IGNORECASE,
)


@function("dyn(A) -> dyn")
def dyn(value: Value) -> Value:
    """Disable static checks for a value."""
    return value


@function("type(A) -> type(A)")
def type_of(value: Value) -> TypeName:
    """The type of a value."""
    return TypeName(kind_of(value))


@function("int(int) -> int", "int(uint) -> int", "int(double) -> int", "int(string) -> int",
          "int(timestamp) -> int", "int(duration) -> int")  # fmt: skip
def to_int(value: Value) -> int:
    """Convert to int: doubles are truncated, times give seconds."""
    if isinstance(value, str):
        return _parse_int(value, INT_MIN, INT_MAX, "int")
    if isinstance(value, float):
        if not -9223372036854775808.0 < value < 9223372036854775808.0:
            raise CELRuntimeError("integer overflow")
        return math.trunc(value)
    if isinstance(value, Timestamp):
        return value.nanos // 10**9
    if isinstance(value, Duration):
        return value.nanos
    return checked_int(int(value))


@function("uint(uint) -> uint", "uint(int) -> uint", "uint(double) -> uint",
          "uint(string) -> uint")  # fmt: skip
def to_uint(value: Value) -> Uint:
    """Convert to uint."""
    if isinstance(value, str):
        return Uint(_parse_int(value, 0, UINT_MAX, "uint"))
    if isinstance(value, float) and not 0 <= value < 18446744073709551616.0:
        raise CELRuntimeError("unsigned integer overflow")
    whole = math.trunc(value)
    if whole < 0:
        raise CELRuntimeError("unsigned integer overflow")
    return Uint(whole)


@function("double(double) -> double", "double(int) -> double", "double(uint) -> double",
          "double(string) -> double")  # fmt: skip
def to_double(value: Value) -> float:
    """Convert to double."""
    if not isinstance(value, str):
        return float(value)
    if not _DOUBLE.fullmatch(value):
        raise _fault("string", "double")
    try:
        digits = value.replace("_", "")
        number = float.fromhex(digits) if "x" in digits.lower() else float(digits)
    except OverflowError:
        number = math.inf
    if math.isinf(number) and "inf" not in value.lower():
        raise _fault("string", "double")  # too large
    return number


@function("string(string) -> string", "string(bool) -> string", "string(int) -> string",
          "string(uint) -> string", "string(double) -> string", "string(bytes) -> string",
          "string(timestamp) -> string", "string(duration) -> string")  # fmt: skip
def to_string(value: Value) -> str:
    """Convert to string."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return format_double(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise CELRuntimeError("invalid UTF-8 in bytes, cannot convert to string") from None
    if isinstance(value, Timestamp):
        return format_timestamp(value)
    if isinstance(value, Duration):
        return format_duration(value)
    return str(value)


@function("bytes(bytes) -> bytes", "bytes(string) -> bytes")
def to_bytes(value: Value) -> bytes:
    """Convert to bytes: a text in UTF-8."""
    return value.encode() if isinstance(value, str) else bytes(value)


@function("bool(bool) -> bool", "bool(string) -> bool")
def to_bool(value: Value) -> bool:
    """Convert to bool."""
    if isinstance(value, bool):
        return value
    if value not in _TRUE | _FALSE:
        raise _fault("string", "bool")
    return value in _TRUE


def format_double(value: float) -> str:
    """The shortest text that parses to the same double, like Go's 'g' format."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    mantissa, _, power = f"{value:e}".partition("e")
    shortest = repr(value)
    digits = re.sub(r"e.*|[-.]", "", shortest).strip("0") or "0"
    exponent = int(power)
    if -4 <= exponent < max(6, 0) or value == 0:
        return f"{value:.{max(0, len(digits) - 1 - exponent)}f}"
    sign = "-" if mantissa.startswith("-") else ""
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{tail}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def _parse_int(text: str, low: int, high: int, kind: str) -> int:
    if re.fullmatch(r"[+-]?[0-9]{1,40}", text, re.ASCII) and (kind == "int" or text[0] not in "+-"):
        value = int(text)
        if low <= value <= high:
            return value
    raise _fault("string", kind)


def _fault(source: str, target: str) -> CELRuntimeError:
    return CELRuntimeError(f"type conversion error from '{source}' to '{target}'")
