"""The static check of ``format``: a literal template against the types of its arguments.

Arguments of type ``dyn`` are checked when the expression runs.

Source: cel-go ``ext`` "Strings", ``stringFormatValidator``.
"""

from collections.abc import Callable, Iterator

from kai_py.cel.library.textformat import SCALARS, clauses, unknown_clause, wrong_argument
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
