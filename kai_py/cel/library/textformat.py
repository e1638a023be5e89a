"""String formatting: ``"%s has %d".format([a, b])``, and its static check.

The check is of a literal template against the types of its arguments; those of type ``dyn`` are
checked when the expression runs.

Source: cel-go ``ext`` "Strings", ``format`` and ``stringFormatValidator``.
"""

import math
import re
from collections.abc import Callable, Iterator

from kai_py.cel import values
from kai_py.cel.functions import function
from kai_py.cel.library.convert import to_string
from kai_py.cel.library.strings import quote_as_go
from kai_py.cel.syntax import (
    Call,
    ExpressionError,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    walk,
)
from kai_py.cel.types import DYN, Type
from kai_py.cel.values import CELRuntimeError, Duration, Timestamp, TypeName, Uint, Value

_CLAUSE = re.compile(r"%(?:(%)|(?:\.([0-9]{1,10}))?(.)|$)", re.DOTALL)
DEFAULT_PRECISION = 6
MAX_PRECISION = 1000
SCALARS = frozenset(
    {"string", "bool", "int", "uint", "double", "bytes", "google.protobuf.Duration",
     "google.protobuf.Timestamp"}
)  # fmt: skip
"""Kinds of values that ``%s`` takes beside lists, maps, types and null."""
_NAMED_DOUBLES = ("NaN", "Infinity", "-Infinity")
_RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "+")
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
            f"{_key_text(values.from_key(key))}:{_inner_text(v)}" for key, v in value.items()
        )
        return "{" + ", ".join(entries) + "}"
    if isinstance(value, TypeName):
        return value.name
    if values.kind_of(value) not in SCALARS:
        raise _fault("s", value)
    return to_string(value)


def _key_text(key: Value) -> str:
    if type(key) not in (str, bool, int, Uint):
        kind = values.kind_of(key)
        raise CELRuntimeError(
            f"error during formatting: no formatting function for map key of type {kind}"
        )
    return _inner_text(key)


def _inner_text(value: Value) -> str:
    """The text of an element of a list or map, as a literal of CEL if there is one."""
    match value:
        case str():
            return quote_as_go(value)
        case bytes():
            return f"b{quote_as_go(to_string(value))}"
        case float():
            fixed = f"{value:.{DEFAULT_PRECISION}f}"
            return fixed if math.isfinite(value) else f'"{to_string(value)}"'
        case Duration():
            return f'duration("{to_string(value)}")'
        case Timestamp():
            return f'timestamp("{to_string(value)}")'
    kind = values.kind_of(value)
    if kind not in _TYPES["s"]:
        raise CELRuntimeError(f"error during formatting: no formatting function for {kind}")
    return _text(value)


def _decimal(value: Value, _precision: int) -> str:
    if type(value) not in (int, Uint):
        raise _fault("d", value)
    return str(int(value))


def _fixed(value: Value, precision: int) -> str:
    number = _double(value, "f")
    return f"{number or 0.0:,.{precision}f}" if math.isfinite(number) else _not_finite(number)


def _scientific(value: Value, precision: int) -> str:
    """Always with six decimals: the API server takes the precision for the width."""
    number = _double(value, "e")
    if not math.isfinite(number):
        return _not_finite(number).rjust(precision)
    mantissa, _, exponent = f"{number or 0.0:.{DEFAULT_PRECISION}e}".partition("e")
    return f"{mantissa}×10{exponent.translate(_RAISED)}".rjust(precision)


def _not_finite(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return "∞" if number > 0 else "-∞"


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
    if value in _NAMED_DOUBLES and isinstance(value, str):
        return float(value)
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


_INTEGERS = frozenset({"int", "uint"})
# Strings, because "NaN" and "Infinity" are formatted as doubles.
_DOUBLES = frozenset({"double", "string"})
_TYPES = {
    "s": SCALARS | {"list", "map", "type", "null_type"},
    "d": _INTEGERS,
    "f": _DOUBLES,
    "e": _DOUBLES,
    "b": _INTEGERS | {"bool"},
    "o": _INTEGERS,
    **dict.fromkeys("xX", _INTEGERS | {"string", "bytes"}),
}
"""By the letter of a clause, the types of its argument."""

TypeOf = Callable[[Node], Type]


def format_faults(root: Node, type_of: TypeOf) -> list[ExpressionError]:
    """The faults of literal templates of ``format`` and of their lists of arguments."""
    calls = (node for node in walk(root) if isinstance(node, Call) and node.function == "format")
    return [fault for call in calls for fault in _faults(call, type_of)]


def _faults(call: Call, type_of: TypeOf) -> Iterator[ExpressionError]:
    """The first fault of a call, if any."""
    if len(call.args) != 1:
        return
    template, [arguments] = call.target, call.args
    if not isinstance(template, Literal) or not isinstance(arguments, ListLiteral):
        return
    elements, verbs = arguments.elements, list(clauses(str(template.value)))
    for number, verb in enumerate(verbs):
        fault = _clause_fault(verb, number, len(elements))
        if fault or verb is None:
            yield ExpressionError(fault, call.start)
            return
        wrong = _wrong_part(verb, elements[number], type_of)
        if wrong is not None:
            yield ExpressionError(wrong_argument(verb, type_of(wrong).name), wrong.start)
            return
    if len(elements) > len(verbs):
        expected = f"(expected {len(verbs)}, got {len(elements)})"
        reason = f"too many arguments supplied to string.format {expected}"
        yield ExpressionError(reason, call.start)


def _clause_fault(verb: str | None, number: int, arguments: int) -> str:
    """The fault of a clause, whatever its argument is; "" for none."""
    if verb is None:
        return "unexpected end of string"
    if number == arguments:
        return f"index {number} out of range"
    return "" if verb in _TYPES else unknown_clause(verb)


def _wrong_part(verb: str, argument: Node, type_of: TypeOf) -> Node | None:
    """The argument, or the part of a literal list or map, that has the wrong type; None: all fit.

    Only ``%s`` takes lists and maps, whose elements may be whatever else it takes.
    """
    found = type_of(argument)
    if found != DYN and found.name not in _TYPES[verb]:
        return argument
    parts: tuple[Node, ...] = ()
    if verb == "s" and isinstance(argument, ListLiteral):
        parts = argument.elements
    elif verb == "s" and isinstance(argument, MapLiteral):
        parts = tuple(part for entry in argument.entries for part in entry)
    wrong = (_wrong_part(verb, part, type_of) for part in parts)
    return next((part for part in wrong if part is not None), None)
