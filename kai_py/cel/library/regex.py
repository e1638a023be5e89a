"""Regular expressions in RE2's syntax, in linear time.

Source: CEL specification ``matches``; k8s.io/apiserver/pkg/cel/library "Regex".
"""

from functools import lru_cache
from typing import Any

import re2

from kai_py.cel.functions import function
from kai_py.cel.values import CELRuntimeError

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_GO_MESSAGES = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad character class range": "invalid character class range",
}
"""Go's wording where it differs from that of the C++ library."""


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Any:
    """Compile a pattern.

    :raises CELRuntimeError: the pattern is not valid.
    """
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
    found = (match[0] for match in compile_pattern(pattern).finditer(text))
    return (
        tuple(found)
        if limit < 0
        else tuple(match for match, _ in zip(found, range(limit), strict=False))
    )
