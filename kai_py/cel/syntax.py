"""The syntax tree of an expression, after macros are expanded.

The node kinds are those of the CEL specification (``cel.expr.Expr``): literal, identifier, select,
call, list, map and comprehension, and ``Bind`` for ``cel.bind``, which is a comprehension that
never loops. Operators are calls with the specification's names, such as ``_+_``. ``and`` and ``or``
have all their operands in one node, so that a chain of a thousand conjuncts is not a thousand
levels deep. ``start`` is the position for error messages, as an offset into the source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterator

RESERVED = frozenset(
    ("as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop",
     "package", "namespace", "return", "var", "void", "while", "in")
)  # fmt: skip
"""Words that name no variable."""
Scalar = bool | int | float | str | bytes | None


class Literal(Struct, frozen=True, eq=False):
    """A constant; ``value`` is a runtime value (see ``values``)."""

    value: Scalar
    start: int = 0


class Ident(Struct, frozen=True, eq=False):
    """A variable."""

    name: str
    start: int = 0


class Select(Struct, frozen=True, eq=False):
    """``operand.field``, or ``has(operand.field)`` if ``test``, or ``operand.?field``."""

    operand: Node
    field: str
    start: int = 0
    test: bool = False
    optional: bool = False


class Call(Struct, frozen=True, eq=False):
    """``function(args)`` or ``target.function(args)``; all operators but ``&&`` and ``||``."""

    function: str
    target: Node | None
    args: tuple[Node, ...]
    start: int = 0


class Logic(Struct, frozen=True, eq=False):
    """``a && b && c`` or ``a || b || c``: an error counts only if nothing else decides."""

    operands: tuple[Node, ...]
    start: int = 0
    conjunction: bool = True
    spans: tuple[tuple[int, int], ...] = ()
    """Start and end of each operand in the source, where it has a source."""


class ListLiteral(Struct, frozen=True, eq=False):
    """``[a, ?b]``; ``optional`` holds the indices of elements with a question mark."""

    elements: tuple[Node, ...]
    optional: frozenset[int] = frozenset()
    start: int = 0


class MapLiteral(Struct, frozen=True, eq=False):
    """``{k: v, ?k: v}``; ``optional`` holds the indices of entries with a question mark."""

    entries: tuple[tuple[Node, Node], ...]
    optional: frozenset[int] = frozenset()
    start: int = 0


class Comprehension(Struct, frozen=True, eq=False):
    """Fold ``over``: start with ``initial``; while ``condition``, the result becomes ``step``."""

    over: Node
    variables: tuple[str, ...]
    accumulator: str
    initial: Node
    condition: Node
    step: Node
    result: Node
    start: int = 0


class Bind(Struct, frozen=True, eq=False):
    """``cel.bind(name, value, body)``; the value is computed when first used."""

    name: str
    value: Node
    body: Node
    start: int = 0


Node = Literal | Ident | Select | Call | Logic | ListLiteral | MapLiteral | Comprehension | Bind


def children(node: Node) -> tuple[Node, ...]:
    """The nodes directly below a node."""
    nodes: tuple[Node, ...] = ()
    match node:
        case Literal() | Ident():
            pass
        case Select(operand):
            nodes = (operand,)
        case Call(_, target, args):
            nodes = args if target is None else (target, *args)
        case Logic(operands):
            nodes = operands
        case ListLiteral(elements):
            nodes = elements
        case MapLiteral(entries):
            nodes = tuple(part for entry in entries for part in entry)
        case Bind(_, value, body):
            nodes = (value, body)
        case Comprehension(over, _, _, initial, condition, step, result):
            nodes = (over, initial, condition, step, result)
    return nodes


def walk(root: Node) -> Iterator[Node]:
    """A node and everything below it."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(children(node))


def with_children(node: Node, parts: tuple[Node, ...]) -> Node:
    """A node like ``node`` with other nodes directly below it, in the order of ``children``."""
    copy = node
    match node:
        case Literal() | Ident():
            pass
        case Select():
            copy = replace(node, operand=parts[0])
        case Call(_, None):
            copy = replace(node, args=parts)
        case Call():
            copy = replace(node, target=parts[0], args=parts[1:])
        case Logic():
            copy = replace(node, operands=parts)
        case ListLiteral():
            copy = replace(node, elements=parts)
        case MapLiteral():
            copy = replace(node, entries=tuple(zip(parts[::2], parts[1::2], strict=True)))
        case Bind():
            copy = replace(node, value=parts[0], body=parts[1])
        case Comprehension():
            over, initial, condition, step, result = parts
            copy = replace(
                node, over=over, initial=initial, condition=condition, step=step, result=result
            )
    return copy


def variable_path(node: Node) -> tuple[str, ...] | None:
    """The variable and the literal keys that a node reads, if it does just that."""
    keys: list[str] = []
    while True:
        match node:
            case Select(operand, field, test=False, optional=False):
                keys.append(field)
                node = operand
            case Call("_[_]", None, (operand, Literal(str() as key))):
                keys.append(key)
                node = operand
            case Ident(name):
                return (name, *reversed(keys))
            case _:
                return None


WIDE_DOT, WIDE_MARK = "\uff0e", "\uff3e"
"""The dot and the mark below characters that are not ASCII."""
MAX_ERRORS = 100
"""Errors of one expression that are shown, as many as cel-go shows."""


class ExpressionError(Exception):
    """The source is not a valid expression; ``start`` is the position.

    ``further``: what else is wrong with it, in the order of the text.
    """

    def __init__(self, message: str, start: int) -> None:
        super().__init__(message)
        self.message = message
        self.start = start
        self.further: tuple[ExpressionError, ...] = ()


def render_failure(source: str, failure: ExpressionError) -> str:
    """The failure as the API server shows it: position, message, the line and a mark below it."""
    errors = (failure, *failure.further)[:MAX_ERRORS]
    return "compilation failed: " + "\n".join(_render(source, each) for each in errors)


def _render(source: str, failure: ExpressionError) -> str:
    start = min(failure.start, len(source))
    line = source.count("\n", 0, start) + 1
    column = start - (source.rfind("\n", 0, start) + 1)
    text = source.split("\n")[line - 1].replace("\t", " ")
    dots = "".join("." if letter.isascii() else WIDE_DOT for letter in text[:column])
    mark = "^" if text[column : column + 1].isascii() else WIDE_MARK
    return f"ERROR: <input>:{line}:{column + 1}: {failure.message}\n | {text}\n | {dots}{mark}"
