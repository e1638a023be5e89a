"""Semantic versions.

Parsing is strict (three numbers, no leading ``v``, no leading zeros) unless the second argument
asks to normalise. Build metadata counts for nothing in comparisons, not even in ``==``.

Source: semver.org 2.0.0; k8s.io/apiserver/pkg/cel/library, documentation of ``SemverLib``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache, total_ordering

from kai_py.dra.cel.functions import function
from kai_py.dra.cel.values import KINDS, CELRuntimeError

_STRICT = re.compile(
    r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    r"(?:-((?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
    r"(?:\.(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?",
    re.ASCII,
)
_LARGEST = 2**64 - 1


@total_ordering
@dataclass(frozen=True, slots=True)
class Semver:
    """A semantic version; ``key`` orders it by the standard's precedence."""

    key: tuple[int, int, int, tuple[tuple[int, int, str], ...]]
    text: str = field(compare=False)

    def __lt__(self, other: Semver) -> bool:
        return self.key < other.key

    def __str__(self) -> str:
        return self.text


KINDS[Semver] = "kubernetes.Semver"


@lru_cache(maxsize=65536)
def parse_semver(text: str) -> Semver:
    """Read a version strictly.

    :raises ValueError: the text is no semantic version; the message says so.
    """
    match = _STRICT.fullmatch(text)
    if match is None or len(text) > 1000:
        raise ValueError(f"{text!r} is not a semantic version (major.minor.patch)")
    major_, minor_, patch_ = (int(match[number]) for number in (1, 2, 3))
    if max(major_, minor_, patch_) > _LARGEST:
        raise ValueError(f"{text!r} is not a semantic version: number too large")
    # A version without a pre-release comes after all with one; numbers come before words.
    parts = tuple(
        (0, int(part), "") if part.isdigit() else (1, 0, part)
        for part in (match[4].split(".") if match[4] else ())
    )
    return Semver((major_, minor_, patch_, parts or ((2, 0, ""),)), text)


def normalise(text: str) -> str:
    """Strip a leading ``v`` and leading zeros, and add missing numbers."""
    text = text.removeprefix("v")
    core = re.match(r"[^+-]*", text)
    assert core is not None
    parts = core[0].split(".")
    padded = [part.lstrip("0") or part[-1:] for part in parts] + ["0"] * (3 - len(parts))
    return ".".join(padded) + text[core.end() :]


@function("semver(string) -> Semver", "semver(string, bool) -> Semver")
def semver(text: str, *normalising: bool) -> Semver:
    """Read a version."""
    try:
        return parse_semver(normalise(text) if any(normalising) else text)
    except ValueError as fault:
        raise CELRuntimeError(str(fault)) from None


@function("isSemver(string) -> bool", "isSemver(string, bool) -> bool")
def is_semver(text: str, *normalising: bool) -> bool:
    """Tell whether a text is a version."""
    try:
        parse_semver(normalise(text) if any(normalising) else text)
    except ValueError:
        return False
    return True


@function("Semver.major() -> int")
def major(value: Semver) -> int:
    """Give the first number."""
    return value.key[0]


@function("Semver.minor() -> int")
def minor(value: Semver) -> int:
    """Give the second number."""
    return value.key[1]


@function("Semver.patch() -> int")
def patch(value: Semver) -> int:
    """Give the third number."""
    return value.key[2]


@function("Semver.isGreaterThan(Semver) -> bool")
def is_greater(left: Semver, right: Semver) -> bool:
    """Compare by precedence."""
    return left.key > right.key


@function("Semver.isLessThan(Semver) -> bool")
def is_less(left: Semver, right: Semver) -> bool:
    """Compare by precedence."""
    return left.key < right.key


@function("Semver.compareTo(Semver) -> int")
def compare_to(left: Semver, right: Semver) -> int:
    """Give -1, 0 or 1."""
    return (left.key > right.key) - (left.key < right.key)
