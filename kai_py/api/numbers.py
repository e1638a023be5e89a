"""Whole numbers as texts of labels, annotations and selectors, with the ranges that Kubernetes has.

Such a text may have 256 KiB. Its length is looked at before it is converted, and errors quote the
beginning of it: a number of 5,000 digits is an error like any other.
"""

import re
from collections.abc import Callable

MAX_COUNT = 2**31 - 1
"""The largest number of pods: the API counts them in an int32."""
MAX_QUOTED = 60
"""Longest text, in characters, that an error quotes in full."""

Quote = Callable[[str], str]

_INT64 = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_COUNT = re.compile(r"[0-9]{1,40}", re.ASCII)


def quoted(text: str) -> str:
    """``text`` in double quotes, cut after ``MAX_QUOTED`` characters."""
    return shortened(f'"{text}"')


def shortened(text: str) -> str:
    """``text``, cut after ``MAX_QUOTED`` characters."""
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}… ({len(text)} characters)"


class NumberError(ValueError):
    """A text is not a number of the required range; the message says which and quotes it."""


def parse_count(text: str, *, least: int = 0, quote: Quote = quoted) -> int:
    """A number of pods, from ``least`` to ``MAX_COUNT``; raises NumberError.

    ``quote``: how the message shows the text.
    """
    digits = text.lstrip("0") or text[:1]
    number = int(digits) if _COUNT.fullmatch(digits) else -1
    if least <= number <= MAX_COUNT:
        return number
    if digits.isascii() and digits.isdigit() and number != 0:
        raise NumberError(f"must be at most {MAX_COUNT}, is {quote(text)}")
    raise NumberError(f"must be a whole number of at least {least}, is {quote(text)}")


def parse_int64(text: str) -> int | None:
    """An integer as Go's ``strconv.ParseInt`` reads it with 64 bits; None for any other text."""
    if not _INT64.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
