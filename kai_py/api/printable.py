"""Untrusted text, made safe for a terminal or a log.

Names of queues, reasons, messages and attributes of devices are chosen by tenants and drivers. What
a terminal would act on, or an eye would not see, is written out: control characters (C0, DEL, C1),
line and paragraph separators, bidirectional and other invisible formatting. Source: Unicode
Standard Annex #9 and "Trojan Source" (CVE-2021-42574).

Every output of the package passes here once: tables, sentences, screens, pages and log lines.
"""

import dataclasses
import re
from collections.abc import Sequence
from enum import Enum
from typing import Any, TypeVar

from msgspec import Struct, structs

Value = TypeVar("Value")

UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e007f]"
)
MAX_NAMED = 5
"""How many names of a list that may be long a message shows."""
SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str) -> str:
    r"""``text`` in one line, with ``\x1b`` and the like written out."""
    return UNPRINTABLE.sub(_escape, text)


def first_of(names: Sequence[str], most: int = MAX_NAMED) -> str:
    """The first ``most`` names and how many others there are: ``a, b and 3 more``."""
    others = len(names) - most
    return ", ".join(names[:most]) + (f" and {others} more" if others > 0 else "")


def printable_json(document: str) -> str:
    """A JSON document that says the same; line breaks between its parts stay."""
    return "\n".join(UNPRINTABLE.sub(_escape_json, line) for line in document.split("\n"))


def printable_parts(value: Value) -> Value:
    """``value`` with every text in it made printable: in records, tuples, lists, mappings."""
    made: Value = _parts(value)
    return made


def _parts(value: Any) -> Any:
    made = value
    match value:
        case Enum():
            pass
        case str():
            made = printable(value)
        case tuple() if hasattr(value, "_fields"):
            made = type(value)(*map(_parts, value))
        case tuple() | list():
            made = type(value)(map(_parts, value))
        case dict():
            made = {_parts(key): _parts(each) for key, each in value.items()}
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [each.name for each in dataclasses.fields(value) if each.init]
            parts = {name: _parts(getattr(value, name)) for name in names}
            made = dataclasses.replace(value, **parts)
        case Struct():
            parts = {name: _parts(getattr(value, name)) for name in type(value).__struct_fields__}
            made = structs.replace(value, **parts)
    return made


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
