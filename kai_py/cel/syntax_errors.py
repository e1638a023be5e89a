"""The first syntax error of an expression, in the words of the API server.

Its parser is made by ANTLR, whose recovery decides the words: a token is *extraneous* where the one
after it would do, *missing* where this one could follow it, else *mismatched*. The grammar here is
the nesting of brackets and the turns of operands and operators, which is what people get wrong.
Source: cel-go's CEL.g4 and ANTLR's DefaultErrorStrategy, compared with a real API server.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

OPERANDS: tuple[str, ...] = (
    *("'['", "'{'", "'('", "'.'", "'-'", "'!'", "'true'", "'false'", "'null'"),
    *("NUM_FLOAT", "NUM_INT", "NUM_UINT", "STRING", "BYTES", "IDENTIFIER"),
)
OPERAND_SIGNS = frozenset("[{(.-!")
OPERATORS = frozenset(("&&", "||", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "in"))
CLOSING = {"group": ")", "call": ")", "index": "]", "list": "]", "value": "}", "key": "}"}
SEPARATED = frozenset({"list", "value"})
EOF = "<EOF>"
_TOKEN = re.compile(
    r"""
    (?P<space>[\s]+|//[^\n]*)
    |(?P<text>[bB]?(?:[rR](?:\"{3}[\s\S]*?\"{3}|'{3}[\s\S]*?'{3}|"[^"\n\r]*"|'[^'\n\r]*')
        |\"{3}(?:[^\\]|\\[\s\S])*?\"{3}|'{3}(?:[^\\]|\\[\s\S])*?'{3}
        |"(?:\\.|[^"\\\n\r])*"|'(?:\\.|[^'\\\n\r])*'))
    |(?P<number>0x[0-9a-fA-F]+[uU]?|\d*\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+[uU]?)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<sign>&&|\|\||[<>=!]=|[-+*/%<>!?:.,()\[\]{}])
    """,
    re.VERBOSE | re.ASCII,
)


class SyntaxFault(NamedTuple):
    """A syntax error and where it is, an offset into the text."""

    message: str
    start: int


class _Token(NamedTuple):
    kind: str
    text: str
    start: int

    @property
    def begins_operand(self) -> bool:
        return self.kind in ("text", "number", "name") or self.text in OPERAND_SIGNS


def first_fault(text: str) -> SyntaxFault | None:
    """The first error of ``text``; None where none is seen here."""
    tokens, lexical = _tokens(text)
    faults = [each for each in (lexical, _Scan(tokens).fault()) if each is not None]
    return min(faults, key=lambda each: each.start, default=None)


def _tokens(text: str) -> tuple[list[_Token], SyntaxFault | None]:
    """The tokens, ended by EOF, and the first text that is none; ANTLR goes on after such text."""
    found: list[_Token] = []
    fault, position = None, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            wrong = _unrecognised(text, position)
            message = f"Syntax error: token recognition error at: '{wrong}'"
            fault = fault or SyntaxFault(message, position)
            position += len(wrong)
            continue
        kind = match.lastgroup or ""
        if kind != "space":
            is_operator = match.group() == "in"
            found.append(_Token("sign" if is_operator else kind, match.group(), position))
        position = match.end()
    # In an empty text ANTLR's end is before the first column.
    found.append(_Token("end", EOF, len(text) if text else -1))
    return found, fault


def _unrecognised(text: str, position: int) -> str:
    """The part that the lexer skips: half an operator with what follows, or an unclosed text."""
    if text[position] in "\"'":
        return text[position:].partition("\n")[0]
    return text[position : position + (2 if text[position] in "=&|" else 1)]


class _Scan:
    """One walk over the tokens; ``nesting``: the brackets and ``?`` that are open."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens = tokens
        self._nesting: list[str] = []
        self._wants_operand = True

    def fault(self) -> SyntaxFault | None:
        """The first token that cannot be where it is."""
        for at in range(len(self._tokens)):
            fault = self._operand(at) if self._wants_operand else self._operator(at)
            if fault is not None:
                return fault
        return None

    def _top(self) -> str:
        return self._nesting[-1] if self._nesting else ""

    def _operand(self, at: int) -> SyntaxFault | None:
        token, before = self._tokens[at], self._tokens[at - 1].text if at else ""
        top = self._top()
        if token.kind in ("text", "number", "name"):
            self._wants_operand = False
        elif token.text in ("(", "[", "{"):
            self._nesting.append({"(": "group", "[": "list", "{": "key"}[token.text])
        elif token.text == ".":
            return self._field(at)
        elif token.text == CLOSING.get(top) and _may_be_empty(top, before):
            self._nesting.pop()
            self._wants_operand = False
        elif token.text not in ("-", "!") and not (token.text == "?" and before in ("[", "{", ",")):
            return self._no_operand(at, before)
        return None

    def _no_operand(self, at: int, before: str) -> SyntaxFault | None:
        token, top = self._tokens[at], self._top()
        if before in ("[", "{", ",") and top in ("list", "key"):
            # What ANTLR would list here for elements of lists and maps is not known.
            return None
        expected = OPERANDS
        if top == "call" and before == "(":
            expected = (*OPERANDS[:3], "')'", *OPERANDS[3:])
        elif top == "index" and before == "[":
            expected = (*OPERANDS[:6], "'?'", *OPERANDS[6:])
        if token.kind == "end" and before == "-" and not self._is_binary(at - 1):
            return SyntaxFault("Syntax error: no viable alternative at input '-'", token.start)
        after = self._tokens[at + 1] if at + 1 < len(self._tokens) else None
        is_extra = before == "!" if after is None else _is_in(after, expected)
        kind = "extraneous" if is_extra else "mismatched"
        return _fault(token, kind, f"{{{', '.join(expected)}}}")

    def _is_binary(self, at: int) -> bool:
        return at > 0 and self._tokens[at - 1].kind in ("text", "number", "name")

    def _operator(self, at: int) -> SyntaxFault | None:
        token, top = self._tokens[at], self._top()
        named = self._tokens[at - 1].kind == "name"
        if token.text == ".":
            return self._field(at)
        if token.text in OPERATORS:
            self._wants_operand = True
        elif (token.text == "(" and named) or token.text == "[":
            self._nesting.append("call" if token.text == "(" else "index")
            self._wants_operand = True
        elif token.text == "?":
            # `.?` selects an optional field and begins no conditional.
            self._nesting += [] if self._tokens[at - 1].text == "." else ["choice"]
            self._wants_operand = True
        elif token.text == ":" and top in ("choice", "key"):
            self._nesting[-1:] = ["value"] if top == "key" else []
            self._wants_operand = True
        elif token.text == "," and top in ("list", "call", "value"):
            self._nesting[-1:] = ["key"] if top == "value" else [top]
            self._wants_operand = True
        elif token.text == CLOSING.get(top) and top != "key":
            self._nesting.pop()
        elif token.kind != "end" or top:
            return self._no_operator(at)
        return None

    def _no_operator(self, at: int) -> SyntaxFault:
        token, top = self._tokens[at], self._top()
        after = self._tokens[at + 1].text if at + 1 < len(self._tokens) else ""
        if not top:
            return _fault(token, "extraneous" if after == EOF else "mismatched", EOF)
        if top in SEPARATED:
            closing = CLOSING[top]
            kind = "extraneous" if after in (closing, ",") else "mismatched"
            return _fault(token, kind, f"{{'{closing}', ','}}")
        wanted = ":" if top in ("choice", "key") else CLOSING[top]
        if after == wanted:
            return _fault(token, "extraneous", f"'{wanted}'")
        could_follow = token.begins_operand if wanted == ":" else token.kind == "end"
        if could_follow:
            message = f"Syntax error: missing '{wanted}' at '{token.text}'"
            return SyntaxFault(message, token.start)
        return _fault(token, "mismatched", f"'{wanted}'")

    def _field(self, at: int) -> SyntaxFault | None:
        """A dot needs a name after it."""
        after = self._tokens[at + 1]
        if after.kind == "name":
            self._wants_operand = True
            return None
        if after.text == "?":
            return None
        shown = "." if after.kind == "end" else f".{after.text}"
        message = f"Syntax error: no viable alternative at input '{shown}'"
        return SyntaxFault(message, after.start)


def _may_be_empty(top: str, before: str) -> bool:
    """Whether brackets may close here without an operand: empty, or after a trailing comma."""
    opening = {"call": "(", "list": "[", "key": "{"}.get(top)
    return before == opening or (before == "," and top in ("list", "key"))


def _is_in(token: _Token, expected: Sequence[str]) -> bool:
    return token.begins_operand or f"'{token.text}'" in expected


def _fault(token: _Token, kind: str, expected: str) -> SyntaxFault:
    message = f"Syntax error: {kind} input '{token.text}' expecting {expected}"
    return SyntaxFault(message, token.start)
