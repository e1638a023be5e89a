"""The values of literals: numbers, strings and byte strings, as written in an expression.

Source: CEL specification, "String and Bytes Values" and "Numeric Values".
"""

import math
import re

from kai_py.cel.syntax import ExpressionError
from kai_py.cel.values import INT_MAX, INT_MIN, UINT_MAX, Uint

_ESCAPE = re.compile(
    r"\\(?:[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL
)
_SIMPLE = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "?": "?", '"': '"', "'": "'", "`": "`",
}  # fmt: skip


def read_int(text: str, start: int) -> int:
    """Parse a decimal or hexadecimal integer of 64 bits."""
    value = _digits(text)
    if not INT_MIN <= value <= INT_MAX:
        raise ExpressionError("invalid int literal", start)
    return value


def read_uint(text: str, start: int) -> Uint:
    """Parse an unsigned integer, which ends in ``u`` and has no sign."""
    if text.startswith("-"):
        raise ExpressionError("found no matching overload for '-_' applied to '(uint)'", start)
    value = _digits(text[:-1])
    if value > UINT_MAX:
        raise ExpressionError("invalid uint literal", start)
    return Uint(value)


def read_float(text: str, start: int) -> float:
    """Parse a double, whose sign may stand apart; one too large for 64 bits is an error."""
    value = float("".join(text.split()))
    if math.isinf(value):
        raise ExpressionError("invalid double literal", start)
    return value


def read_string(text: str, start: int) -> str:
    """Parse a quoted string, single or triple quotes, raw or with escapes."""
    body, raw = _strip_quotes(text)
    return body if raw else _ESCAPE.sub(lambda match: _character(match, start), body)


def read_bytes(text: str, start: int) -> bytes:
    """Parse a byte string: like a string, but a numeric escape is one byte, not a character."""
    body, raw = _strip_quotes(text[1:])
    if raw:
        return body.encode()
    out, position = bytearray(), 0
    for match in _ESCAPE.finditer(body):
        if match[2] is not None or match[3] is not None:
            raise ExpressionError("unable to unescape string", start)
        out += body[position : match.start()].encode()
        position = match.end()
        if match[1] is not None or match[4] is not None:
            out.append(ord(_character(match, start)))
        else:
            out += _character(match, start).encode()
    return bytes(out + body[position:].encode())


def _digits(text: str) -> int:
    sign, digits = (-1, text[1:].strip()) if text.startswith("-") else (1, text)
    if len(digits) > 30:
        return sign * (UINT_MAX + 1)
    return sign * int(digits, 16 if digits.startswith("0x") else 10)


def _strip_quotes(text: str) -> tuple[str, bool]:
    raw = text[0] in "rR"
    text = text[raw:].replace("\r\n", "\n").replace("\r", "\n")
    width = 3 if len(text) >= 6 and text[:3] in ('"""', "'''") else 1
    return text[width:-width], raw


def _character(match: re.Match[str], start: int) -> str:
    two, four, eight, octal, simple = match.groups()
    if simple is not None:
        if simple not in _SIMPLE:
            raise ExpressionError(f"Syntax error: invalid escape sequence \\{simple}", start)
        return _SIMPLE[simple]
    code = int(octal, 8) if octal else int(two or four or eight, 16)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise ExpressionError("invalid unicode code point", start)
    return chr(code)
