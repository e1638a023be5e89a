"""String formatting: ``"%s has %d".format([a, b])``.

Source: cel-go ``ext`` "Strings", ``format``.
"""

import math
import re
from collections.abc import Callable

from kai_py.cel import values
from kai_py.cel.functions import function
from kai_py.cel.library.convert import to_string
from kai_py.cel.library.strings import quote
from kai_py.cel.values import CELRuntimeError, TypeName, Uint, Value

_CLAUSE = re.compile(r"%(?:(%)|(?:\.([0-9]{1,4}))?(.)|$)", re.DOTALL)
DEFAULT_PRECISION = 6
MAX_PRECISION = 1000


@function("string.format(list(dyn)) -> string")
def format_text(template: str, args: tuple[Value, ...]) -> str:
    """Replace each clause of the template by the next argument."""
    remaining = iter(enumerate(args))

    def replace(match: re.Match[str]) -> str:
        percent, precision, verb = match.groups()
        if percent:
            return "%"
        if verb is None:
            raise CELRuntimeError("unexpected end of string")
        render = _VERBS.get(verb)
        if render is None:
            raise CELRuntimeError(
                f'could not parse formatting clause: unrecognized formatting clause "{verb}"'
            )
        number, value = next(remaining, (len(args), None))
        if number == len(args):
            raise CELRuntimeError(f"index {number} out of range")
        return render(value, min(int(precision or DEFAULT_PRECISION), MAX_PRECISION))

    return _CLAUSE.sub(replace, template)


def argument_fault(template: str, number: int, value: Value) -> str:
    """Why a literal is no argument for the clause of this number; "" if it is one."""
    verbs = [verb for percent, _, verb in (m.groups() for m in _CLAUSE.finditer(template)) if verb]
    try:
        _VERBS[verbs[number]](value, DEFAULT_PRECISION)
    except CELRuntimeError as error:
        return error.reason
    return ""


def format_fault(template: str, arguments: int) -> str:
    """What is wrong with a template for so many arguments, whatever these are; "" if nothing is.

    cel-go checks literal templates with lists of arguments when it compiles (ext.Strings).
    """
    wanted = 0
    for percent, _, verb in (match.groups() for match in _CLAUSE.finditer(template)):
        if percent:
            continue
        if verb is None:
            return "unexpected end of string"
        if verb not in _VERBS:
            return f'could not parse formatting clause: unrecognized formatting clause "{verb}"'
        if wanted == arguments:
            return f"index {wanted} out of range"
        wanted += 1
    if arguments == wanted:
        return ""
    return f"too many arguments supplied to string.format (expected {wanted}, got {arguments})"


def _text(value: Value, _precision: int = 0) -> str:
    if value is None:
        return "null"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_inner_text, value)) + "]"
    if isinstance(value, dict):
        entries = sorted(
            f"{_inner_text(values.from_key(key))}:{_inner_text(v)}" for key, v in value.items()
        )
        return "{" + ", ".join(entries) + "}"
    if isinstance(value, TypeName):
        return value.name
    if values.kind_of(value) not in _PRINTABLE:
        raise _fault(
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, "
            "types, durations, and timestamps",
            value,
        )
    return to_string(value)


def _inner_text(value: Value) -> str:
    """The text of an element of a list or map: strings in quotes, doubles with decimals."""
    if isinstance(value, str):
        return quote(value)
    return f"{value:.{DEFAULT_PRECISION}f}" if isinstance(value, float) else _text(value)


def _decimal(value: Value, _precision: int) -> str:
    if type(value) not in (int, Uint):
        raise _fault("decimal clause can only be used on integers", value)
    return str(int(value))


def _fixed(value: Value, precision: int) -> str:
    number = _double(value, "fixed-point")
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "∞" if number > 0 else "-∞"
    return f"{number:,.{precision}f}"


def _scientific(value: Value, precision: int) -> str:
    return f"{_double(value, 'scientific'):.{precision}e}"


def _binary(value: Value, _precision: int) -> str:
    if type(value) not in (int, Uint, bool):
        raise _fault("only integers and bools can be formatted as binary", value)
    return f"{int(value):b}"


def _octal(value: Value, _precision: int) -> str:
    if type(value) not in (int, Uint):
        raise _fault("octal clause can only be used on integers", value)
    return f"{int(value):o}"


def _hex(value: Value, _precision: int) -> str:
    if isinstance(value, str | bytes):
        return (value.encode() if isinstance(value, str) else value).hex()
    if type(value) not in (int, Uint):
        raise _fault("only integers, byte buffers, and strings can be formatted as hex", value)
    return f"{int(value):x}"


def _double(value: Value, clause: str) -> float:
    if not isinstance(value, float):
        raise _fault(f"{clause} clause can only be used on doubles", value)
    return value


def _fault(complaint: str, value: Value) -> CELRuntimeError:
    kind = values.kind_of(value)
    return CELRuntimeError(f"error during formatting: {complaint}, was given {kind}")


_PRINTABLE = frozenset(
    {"string", "bool", "int", "uint", "double", "bytes", "google.protobuf.Duration",
     "google.protobuf.Timestamp"}
)  # fmt: skip
_VERBS: dict[str, Callable[[Value, int], str]] = {
    "s": _text,
    "d": _decimal,
    "f": _fixed,
    "e": _scientific,
    "b": _binary,
    "o": _octal,
    "x": _hex,
    "X": lambda value, precision: _hex(value, precision).upper(),
}
