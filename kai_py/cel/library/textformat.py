"""String formatting: ``"%s has %d".format([a, b])``.

Source: cel-go ``ext`` "Strings", ``format``.
"""

import math
import re
from collections.abc import Callable, Iterator

from kai_py.cel import values
from kai_py.cel.functions import function
from kai_py.cel.library.convert import to_string
from kai_py.cel.library.strings import quote
from kai_py.cel.values import CELRuntimeError, TypeName, Uint, Value

_CLAUSE = re.compile(r"%(?:(%)|(?:\.([0-9]{1,4}))?(.)|$)", re.DOTALL)
DEFAULT_PRECISION = 6
MAX_PRECISION = 1000
SCALARS = frozenset(
    {"string", "bool", "int", "uint", "double", "bytes", "google.protobuf.Duration",
     "google.protobuf.Timestamp"}
)  # fmt: skip
"""Kinds of values that ``%s`` takes beside lists, maps, types and null."""
_COMPLAINTS = {
    "s": "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, "
    "types, durations, and timestamps",
    "d": "decimal clause can only be used on integers",
    "f": "fixed-point clause can only be used on doubles",
    "e": "scientific clause can only be used on doubles",
    "b": "only integers and bools can be formatted as binary",
    "o": "octal clause can only be used on integers",
    **dict.fromkeys("xX", "only integers, byte buffers, and strings can be formatted as hex"),
}


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
            raise CELRuntimeError(unknown_clause(verb))
        number, value = next(remaining, (len(args), None))
        if number == len(args):
            raise CELRuntimeError(f"index {number} out of range")
        return render(value, min(int(precision or DEFAULT_PRECISION), MAX_PRECISION))

    return _CLAUSE.sub(replace, template)


def unknown_clause(verb: str) -> str:
    """The message for a clause with a letter that does not exist."""
    return f'could not parse formatting clause: unrecognized formatting clause "{verb}"'


def clauses(template: str) -> Iterator[str | None]:
    """The letters of the clauses of a template in order; None for an unfinished clause."""
    for match in _CLAUSE.finditer(template):
        percent, _, verb = match.groups()
        if not percent:
            yield verb


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
    if values.kind_of(value) not in SCALARS:
        raise _fault("s", value)
    return to_string(value)


def _inner_text(value: Value) -> str:
    """The text of an element of a list or map: strings in quotes, doubles with decimals."""
    if isinstance(value, str):
        return quote(value)
    return f"{value:.{DEFAULT_PRECISION}f}" if isinstance(value, float) else _text(value)


def _decimal(value: Value, _precision: int) -> str:
    if type(value) not in (int, Uint):
        raise _fault("d", value)
    return str(int(value))


def _fixed(value: Value, precision: int) -> str:
    number = _double(value, "f")
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "∞" if number > 0 else "-∞"
    return f"{number:,.{precision}f}"


def _scientific(value: Value, precision: int) -> str:
    return f"{_double(value, 'e'):.{precision}e}"


def _binary(value: Value, _precision: int) -> str:
    if type(value) not in (int, Uint, bool):
        raise _fault("b", value)
    return f"{int(value):b}"


def _octal(value: Value, _precision: int) -> str:
    if type(value) not in (int, Uint):
        raise _fault("o", value)
    return f"{int(value):o}"


def _hex(value: Value, _precision: int) -> str:
    if isinstance(value, str | bytes):
        return (value.encode() if isinstance(value, str) else value).hex()
    if type(value) not in (int, Uint):
        raise _fault("x", value)
    return f"{int(value):x}"


def _double(value: Value, verb: str) -> float:
    if not isinstance(value, float):
        raise _fault(verb, value)
    return value


def _fault(verb: str, value: Value) -> CELRuntimeError:
    return CELRuntimeError(wrong_argument(verb, values.kind_of(value)))


def wrong_argument(verb: str, kind: str) -> str:
    """The message for a value of a kind that the clause with a letter does not take."""
    return f"error during formatting: {_COMPLAINTS[verb]}, was given {kind}"


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
