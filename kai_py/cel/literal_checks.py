"""Checks of literals once all types are known, as cel-go's validators make them.

A list or a map has elements of one type, except among the arguments of ``format``; a literal
pattern, timestamp or duration can be read; templates of ``format`` fit their arguments.

Source: cel-go ``cel.ASTValidators``, with those that Kubernetes enables.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kai_py.cel.library import strings, times
from kai_py.cel.library.textformat import format_faults
from kai_py.cel.syntax import (
    Call,
    ExpressionError,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    children,
)
from kai_py.cel.types import Type, describe
from kai_py.cel.values import CELRuntimeError

TypeOf = Callable[[Node], Type]


def literal_faults(root: Node, type_of: TypeOf) -> list[ExpressionError]:
    """The faults of all literals below ``root``; O(nodes)."""
    faults = format_faults(root, type_of)
    stack = [(root, False)]
    while stack:
        node, formatted = stack.pop()
        formatted = formatted or (isinstance(node, Call) and node.function == "format")
        stack.extend((child, formatted) for child in children(node))
        if isinstance(node, Call):
            faults += _unreadable(node)
        elif not formatted:
            faults += _mixed(node, type_of)
    return faults


def _mixed(node: Node, type_of: TypeOf) -> Iterator[ExpressionError]:
    """The elements whose type is not that of the first: of a list only one, as in cel-go."""
    match node:
        case ListLiteral(elements, optional):
            found = _elements(elements, optional, type_of)
            yield from list(_others(elements, found))[:1]
        case MapLiteral(entries, optional):
            keys = [key for key, _ in entries]
            values = [value for _, value in entries]
            yield from _others(keys, list(map(type_of, keys)))
            yield from _others(values, _elements(values, optional, type_of))


def _elements(nodes: Sequence[Node], optional: frozenset[int], type_of: TypeOf) -> list[Type]:
    """The types of elements; those at ``optional`` positions are wrapped, or unknown."""
    found = enumerate(map(type_of, nodes))
    return [each.params[0] if n in optional and each.params else each for n, each in found]


def _others(nodes: Sequence[Node], types: Sequence[Type]) -> Iterator[ExpressionError]:
    for node, found in zip(nodes, types, strict=True):
        if found != types[0]:
            message = f"expected type '{describe(types[0])}' but found '{describe(found)}'"
            yield ExpressionError(message, node.start)


def _read_timestamp(value: Any) -> None:
    read = times.parse_timestamp if isinstance(value, str) else times.timestamp_of_seconds
    read(value)


_READERS: dict[str, Callable[[Any], object]] = {
    "matches": strings.compile_pattern,
    "timestamp": _read_timestamp,
    "duration": times.parse_duration,
}


def _unreadable(node: Call) -> Iterator[ExpressionError]:
    read = _READERS.get(node.function)
    # The first one even of matches(text, pattern), as cel-go checks.
    argument = node.args[0] if node.args else None
    if read is None or not isinstance(argument, Literal) or argument.value is None:
        return
    try:
        read(argument.value)
    except CELRuntimeError:
        yield ExpressionError(f"invalid {node.function} argument", argument.start)
