"""Texts for people: counts and lists in messages, and untrusted text made safe to print.

Names of queues, reasons, messages and attributes of devices are chosen by tenants and drivers. What
a terminal would act on, or an eye would not see, is written out: control characters (C0, DEL, C1),
line and paragraph separators, bidirectional and other invisible formatting. Source: Unicode
Standard Annex #9 and "Trojan Source" (CVE-2021-42574).

Every output of the package passes here once: tables, sentences, screens, pages and log lines. This
module imports little, as every command imports it.
"""

import re
from collections.abc import Sequence

MAX_NAMED = 5
"""How many names of a list that may be long a message shows."""


MAX_MESSAGE = 4096
"""Characters of a message in a status, which each of thousands of pods may have."""


def bounded_message(text: str) -> str:
    """A message that is short enough for a status, though texts of tenants are part of it."""
    left_out = len(text) - MAX_MESSAGE
    return text if left_out <= 0 else f"{text[:MAX_MESSAGE]}… and {left_out} more characters"


def count_of(number: float, noun: str) -> str:
    """``1 gang``, ``2,000 gangs``, ``0.5 GPUs``; a noun with an ``s`` in the plural."""
    return f"{number:,.10g} {noun}" if number == 1 else f"{number:,.10g} {noun}s"


def is_or_are(number: float) -> str:
    """The verb after so many things."""
    return "is" if number == 1 else "are"


def first_of(names: Sequence[str], most: int = MAX_NAMED) -> str:
    """The first ``most`` names and how many others there are: ``a, b and 3 more``."""
    others = len(names) - most
    return ", ".join(names[:most]) + (f" and {others} more" if others > 0 else "")


UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e007f]"
)
SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str) -> str:
    r"""``text`` in one line, with ``\x1b`` and the like written out."""
    return UNPRINTABLE.sub(_escape, text)


def printable_json(document: str) -> str:
    """A JSON document that says the same; line breaks between its parts stay."""
    return "\n".join(UNPRINTABLE.sub(_escape_json, line) for line in document.split("\n"))


def _escape(match: re.Match[str]) -> str:
    sign = match[0]
    code = ord(sign)
    wide = f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return SHORT.get(sign) or (f"\\x{code:02x}" if code < 0x100 else wide)


def _escape_json(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
