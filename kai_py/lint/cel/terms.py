"""Tolerant CEL parser that keeps positions, for corrections.

Evaluation needs no positions and refuses what is wrong; correction needs both. So this parser also
accepts common spellings that are not CEL: ``and``, ``or``, ``not``, a single ``=`` and bare
quantities such as ``40Gi``. For text it cannot parse it returns None, and the API's own parser
reports the error.

Precedence climbing over a flat list of tokens; linear in the length of the text.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*)
    |(?P<text>[rRbB]{0,2}(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'))
    |(?P<amount>\d+(?:\.\d+)?(?:[KMGTPE]i|[kMGTPE])\b)
    |(?P<number>0x[0-9a-fA-F]+[uU]?|\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+[uU]?)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<sign>&&|\|\||[<>=!]=|[-+*/%<>!=?:.,()\[\]{}])
    """,
    re.VERBOSE,
)
_BINARY = {
    "||": 1, "or": 1, "&&": 2, "and": 2,
    "<": 3, "<=": 3, ">": 3, ">=": 3, "==": 3, "=": 3, "!=": 3, "in": 3,
    "+": 4, "-": 4, "*": 5, "/": 5, "%": 5,
}  # fmt: skip
_MAX_DEPTH = 100


class Term(Struct, frozen=True):
    """A part of an expression.

    ``kind`` is text, amount, number, name, select, index, call, method, binary, unary, group or
    other; ``value`` the source of a literal, a name, a field, a function or an operator.
    """

    kind: str
    start: int
    end: int
    value: str = ""
    parts: "tuple[Term, ...]" = ()


def parse_terms(source: str) -> Term | None:
    """Parse an expression; None if it is not one."""
    try:
        tokens = list(_tokens(source))
        parser = _Parser(tokens, len(source))
        term = parser.expression()
        return term if parser.at_end() else None
    except _UnreadableError:
        return None


def walk_terms(term: Term, parent: Term | None = None) -> Iterator[tuple[Term, Term | None]]:
    """Visit a term and everything in it, inner parts first, each with its parent."""
    for part in term.parts:
        yield from walk_terms(part, term)
    yield term, parent


class _UnreadableError(Exception):
    pass


def _tokens(source: str) -> Iterator[Term]:
    position = 0
    while position < len(source):
        match = _TOKEN.match(source, position)
        if match is None:
            raise _UnreadableError
        position = match.end()
        if match.lastgroup != "space":
            yield Term(match.lastgroup or "", match.start(), match.end(), match.group())


class _Parser:
    def __init__(self, tokens: list[Term], length: int) -> None:
        self._tokens = [*tokens, Term("end", length, length)]
        self._next = 0
        self._depth = 0

    def at_end(self) -> bool:
        return self._peek().kind == "end"

    def expression(self) -> Term:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _UnreadableError
        condition = self._binary(1)
        if self._take("?"):
            chosen = self.expression()
            self._expect(":")
            other = self.expression()
            condition = Term("other", condition.start, other.end, "?:", (condition, chosen, other))
        self._depth -= 1
        return condition

    def _binary(self, level: int) -> Term:
        left = self._unary()
        while (power := self._power()) >= level:
            operator = self._advance()
            # power + 1 makes operators of equal precedence associate to the left.
            right = self._binary(power + 1)
            left = Term("binary", left.start, right.end, operator.value, (left, right))
        return left

    def _power(self) -> int:
        token = self._peek()
        return _BINARY.get(token.value, 0) if token.kind in ("sign", "name") else 0

    def _unary(self) -> Term:
        token = self._peek()
        if token.kind not in ("sign", "name") or token.value not in ("!", "-", "not"):
            return self._member(self._primary())
        self._advance()
        operand = self._binary(_BINARY["=="]) if token.value == "not" else self._unary()
        return Term("unary", token.start, operand.end, token.value, (operand,))

    def _member(self, term: Term) -> Term:
        while True:
            if self._take("."):
                optional = "?" if self._take("?") else ""
                name = self._advance()
                if name.kind != "name":
                    raise _UnreadableError
                if not optional and self._take("("):
                    arguments, end = self._list(")")
                    term = Term("method", term.start, end, name.value, (term, *arguments))
                else:
                    kind = "other" if optional else "select"
                    term = Term(kind, term.start, name.end, name.value, (term,))
            elif self._take("["):
                optional = "?" if self._take("?") else ""
                key = self.expression()
                end = self._expect("]")
                term = Term("other" if optional else "index", term.start, end, "[]", (term, key))
            else:
                return term

    def _primary(self) -> Term:
        token = self._advance()
        if token.kind in ("text", "amount", "number"):
            return token
        if token.kind == "name":
            if not self._take("("):
                return token
            arguments, end = self._list(")")
            return Term("call", token.start, end, token.value, tuple(arguments))
        if token.value == "(":
            inner = self.expression()
            return Term("group", token.start, self._expect(")"), "()", (inner,))
        if token.value in ("[", "{"):
            elements, end = self._list("]" if token.value == "[" else "}")
            return Term("list" if token.value == "[" else "other", token.start, end, "", elements)
        raise _UnreadableError

    def _list(self, closing: str) -> tuple[tuple[Term, ...], int]:
        elements: list[Term] = []
        while not self._peek_is(closing):
            self._take("?")
            elements.append(self.expression())
            if self._take(":"):
                elements.append(self.expression())
            if not self._take(","):
                break
        return tuple(elements), self._expect(closing)

    def _peek(self) -> Term:
        return self._tokens[self._next]

    def _peek_is(self, sign: str) -> bool:
        return self._peek().kind == "sign" and self._peek().value == sign

    def _advance(self) -> Term:
        token = self._peek()
        if token.kind == "end":
            raise _UnreadableError
        self._next += 1
        return token

    def _take(self, sign: str) -> bool:
        if not self._peek_is(sign):
            return False
        self._next += 1
        return True

    def _expect(self, sign: str) -> int:
        if not self._peek_is(sign):
            raise _UnreadableError
        return self._advance().end
