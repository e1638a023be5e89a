"""Semantic versions.

Parsing is strict (three numbers, no leading ``v``, no leading zeros) unless the second argument
asks to normalise. Build metadata is ignored in comparisons, also in ``==``.

Source: semver.org 2.0.0; k8s.io/apiserver/pkg/cel/library, documentation of ``SemverLib``.
"""

import json
import re
from dataclasses import dataclass, field
from functools import lru_cache, total_ordering

from kai_py.cel.functions import function
from kai_py.cel.values import KINDS, CELRuntimeError

_LARGEST = 2**64 - 1
_WORD = re.compile(r"[0-9a-zA-Z-]+", re.ASCII)
_RELEASE = (2, 0, "")
"""Orders a version without a pre-release after all that have one."""


@total_ordering
@dataclass(frozen=True, slots=True)
class Semver:
    """A semantic version; ``key`` orders it by the standard's precedence."""

    key: tuple[int, int, int, tuple[tuple[int, int, str], ...]]
    text: str = field(compare=False)

    def __lt__(self, other: "Semver") -> bool:
        return self.key < other.key

    def __str__(self) -> str:
        return self.text


KINDS[Semver] = "kubernetes.Semver"


@lru_cache(maxsize=8192)
def parse_semver(text: str) -> Semver:
    """Parse a version strictly.

    :raises ValueError: the text is no semantic version; the message is the API server's.
    """
    if not text:
        raise ValueError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise ValueError("No Major.Minor.Patch elements found")
    rest, plus, build = parts[2].partition("+")
    last, dash, pre_release = rest.partition("-")
    major_, minor_ = _number(parts[0], "major"), _number(parts[1], "minor")
    patch_ = _number(last, "patch")
    words = tuple(map(_word, pre_release.split("."))) if dash else (_RELEASE,)
    for part in build.split(".") if plus else ():
        if not part:
            raise ValueError("Build meta data is empty")
        if not _WORD.fullmatch(part):
            raise ValueError(f"Invalid character(s) found in build meta data {_quoted(part)}")
    return Semver((major_, minor_, patch_, words), text)


def _number(text: str, name: str) -> int:
    if not text.isascii() or (text and not text.isdigit()):
        raise ValueError(f"Invalid character(s) found in {name} number {_quoted(text)}")
    if len(text) > 1 and text[0] == "0":
        shown = _quoted(text)
        raise ValueError(f"{name.title()} number must not contain leading zeroes {shown}")
    if not text or len(text) > 20 or int(text) > _LARGEST:
        fault = "value out of range" if text else "invalid syntax"
        raise ValueError(f"strconv.ParseUint: parsing {_quoted(text)}: {fault}")
    return int(text)


def _word(text: str) -> tuple[int, int, str]:
    """The sort key of one part of a pre-release: numbers by value, before words."""
    if not text:
        raise ValueError("Prerelease is empty")
    if text.isascii() and text.isdigit():
        if len(text) > 1 and text[0] == "0":
            shown = _quoted(text)
            raise ValueError(f"Numeric PreRelease version must not contain leading zeroes {shown}")
        return (0, _number(text, "prerelease"), "")
    if not _WORD.fullmatch(text):
        raise ValueError(f"Invalid character(s) found in prerelease {_quoted(text)}")
    return (1, 0, text)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def normalise(text: str) -> str:
    """Strip a leading ``v`` and leading zeros, and add missing numbers.

    :raises ValueError: numbers are missing in front of a pre-release or build meta data.
    """
    parts = [_without_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3 and ("-" in parts[-1] or "+" in parts[-1]):
        raise ValueError("short version cannot contain PreRelease/Build meta data")
    return ".".join(parts + ["0"] * (3 - len(parts)))


def _without_zeros(part: str) -> str:
    if len(part) < 2:
        return part
    stripped = part.lstrip("0")
    return stripped if stripped and stripped[0] in "0123456789" else f"0{stripped}"


@function("semver(string) -> Semver", "semver(string, bool) -> Semver")
def semver(text: str, *normalising: bool) -> Semver:
    """Parse a version."""
    try:
        return parse_semver(normalise(text) if any(normalising) else text)
    except ValueError as fault:
        raise CELRuntimeError(str(fault)) from None


@function("isSemver(string) -> bool", "isSemver(string, bool) -> bool")
def is_semver(text: str, *normalising: bool) -> bool:
    """Whether a text is a version."""
    try:
        parse_semver(normalise(text) if any(normalising) else text)
    except ValueError:
        return False
    return True


@function("Semver.major() -> int")
def major(value: Semver) -> int:
    """The major version."""
    return value.key[0]


@function("Semver.minor() -> int")
def minor(value: Semver) -> int:
    """The minor version."""
    return value.key[1]


@function("Semver.patch() -> int")
def patch(value: Semver) -> int:
    """The patch version."""
    return value.key[2]


@function("Semver.isGreaterThan(Semver) -> bool")
def is_greater(left: Semver, right: Semver) -> bool:
    """Whether ``left`` has the higher precedence."""
    return left.key > right.key


@function("Semver.isLessThan(Semver) -> bool")
def is_less(left: Semver, right: Semver) -> bool:
    """Whether ``left`` has the lower precedence."""
    return left.key < right.key


@function("Semver.compareTo(Semver) -> int")
def compare_to(left: Semver, right: Semver) -> int:
    """-1, 0 or 1."""
    return (left.key > right.key) - (left.key < right.key)
