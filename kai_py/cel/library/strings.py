"""Strings: the standard functions, the extended string library, and regular expressions.

Positions count characters (Unicode code points), not bytes. Regular expressions have RE2's syntax
and take linear time.

Sources: CEL specification; cel-go ``ext`` "Strings" version 2; k8s.io/apiserver/pkg/cel/library
"Regex".
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from operator import itemgetter
from typing import Any

import re2

from kai_py.cel.functions import declare, function
from kai_py.cel.library.operators import MAX_ELEMENTS
from kai_py.cel.values import CELRuntimeError, CostLimitError

_SPACES = " \t\n\v\f\r\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009" \
    "\u200a\u2028\u2029\u202f\u205f\u3000"  # fmt: skip
_QUOTED = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t",
           "\v": "\\v", "\\": "\\\\", '"': '\\"'}  # fmt: skip
_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_ESCAPES = re.compile(r"\\Q.*?(?:\\E|$)|\\(.)", re.DOTALL)
"""The escapes of a pattern; Go has no ``\\C``, one byte, which the C++ library reads."""
_GO_MESSAGES = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad character class range": "invalid character class range",
}
"""Go's wording where it differs from that of the C++ library."""


def _register() -> None:
    declare("string.contains(string) -> bool", lambda text, part: part in text)
    declare("string.startsWith(string) -> bool", str.startswith)
    declare("string.endsWith(string) -> bool", str.endswith)
    declare("string.lowerAscii() -> string", lambda text: text.translate(_LOWER))
    declare("string.upperAscii() -> string", lambda text: text.translate(_UPPER))
    declare("string.trim() -> string", lambda text: text.strip(_SPACES))


_register()


@function("string.charAt(int) -> string")
def char_at(text: str, place: int) -> str:
    """One character; the empty string right after the last."""
    if not 0 <= place <= len(text):
        raise CELRuntimeError(f"index out of range: {place}")
    return text[place : place + 1]


@function("string.indexOf(string) -> int", "string.indexOf(string, int) -> int")
def index_of(text: str, part: str, start: int = 0) -> int:
    """The first position of a part at or after ``start``, or -1."""
    if start < 0:
        raise CELRuntimeError(f"index out of range: {start}")
    return text.find(part, start) if part else min(start, len(text))


@function("string.lastIndexOf(string) -> int", "string.lastIndexOf(string, int) -> int")
def last_index_of(text: str, part: str, start: int | None = None) -> int:
    """The last position of a part at or before ``start``, or -1."""
    if start is None:
        return text.rfind(part)
    if start < 0:
        raise CELRuntimeError(f"index out of range: {start}")
    if part == "":
        return min(start, len(text))
    return text.rfind(part, 0, start + len(part)) if start < len(text) else -1


@function("string.substring(int) -> string", "string.substring(int, int) -> string")
def substring(text: str, start: int, end: int | None = None) -> str:
    """The characters from ``start`` up to ``end``."""
    if end is not None and start > end:
        raise CELRuntimeError(f"invalid substring range. start: {start}, end: {end}")
    for place in (start, len(text) if end is None else end):
        if not 0 <= place <= len(text):
            raise CELRuntimeError(f"index out of range: {place}")
    return text[start:end]


@function("string.replace(string, string) -> string",
          "string.replace(string, string, int) -> string")  # fmt: skip
def replace(text: str, old: str, new: str, limit: int = -1) -> str:
    """Replace the first ``limit`` occurrences, all if negative."""
    count = text.count(old) if limit < 0 else min(limit, text.count(old))
    if count * len(new) > MAX_ELEMENTS * 10:
        raise CostLimitError
    return text.replace(old, new, limit)


@function("string.split(string) -> list(string)", "string.split(string, int) -> list(string)")
def split(text: str, separator: str, limit: int = -1) -> tuple[str, ...]:
    """Split at a separator into at most ``limit`` parts, any number if negative."""
    if limit == 0:
        return ()
    if separator == "":
        if limit < 0 or limit >= len(text):
            return tuple(text)
        return (*text[: limit - 1], text[limit - 1 :])
    return tuple(text.split(separator, limit - 1 if limit > 0 else -1))


@function("list(string).join() -> string", "list(string).join(string) -> string")
def join(parts: tuple[str, ...], separator: str = "") -> str:
    """Join strings."""
    if not all(isinstance(part, str) for part in parts):
        raise CELRuntimeError("no such overload")
    if len(parts) * len(separator) > MAX_ELEMENTS * 10:
        raise CostLimitError
    return separator.join(parts)


@function("'strings.quote'(string) -> string")
def quote(text: str) -> str:
    """The text as a literal in double quotes."""
    return '"' + "".join(_QUOTED.get(letter, letter) for letter in text) + '"'


def quote_as_go(text: str) -> str:
    """The text in double quotes as Go writes it: what cannot be printed is escaped."""
    return '"' + "".join(map(_quoted, text)) + '"'


def _quoted(letter: str) -> str:
    if letter in _QUOTED or letter.isprintable():
        return _QUOTED.get(letter, letter)
    code = ord(letter)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Any:
    """Compile a pattern.

    :raises CELRuntimeError: the pattern is not valid.
    """
    if any(match[1] == "C" for match in _ESCAPES.finditer(pattern)):
        raise CELRuntimeError("error parsing regexp: invalid escape sequence: `\\C`")
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error as fault:
        detail = fault.args[0].decode() if isinstance(fault.args[0], bytes) else fault.args[0]
        kind, _, part = detail.partition(": ")
        reason = f"{_GO_MESSAGES.get(kind, kind)}: `{part}`"
        raise CELRuntimeError(f"error parsing regexp: {reason}") from None


@function("string.matches(string) -> bool", "matches(string, string) -> bool")
def matches(text: str, pattern: str) -> bool:
    """Whether any part of the text matches."""
    return compile_pattern(pattern).search(text) is not None


@function("string.find(string) -> string")
def find(text: str, pattern: str) -> str:
    """The first match, or the empty string."""
    match = compile_pattern(pattern).search(text)
    return match[0] if match else ""


@function("string.findAll(string) -> list(string)", "string.findAll(string, int) -> list(string)")
def find_all(text: str, pattern: str, limit: int = -1) -> tuple[str, ...]:
    """The first ``limit`` matches, all if negative."""
    found = map(itemgetter(0), _matches(compile_pattern(pattern), text))
    return tuple(islice(found, None if limit < 0 else limit))


def _matches(pattern: Any, text: str) -> Iterator[Any]:
    """The matches that Go finds: an empty one right after another match does not count."""
    end = -1
    for match in pattern.finditer(text):
        if match.start() != match.end() or match.start() != end:
            yield match
        end = match.end()
