"""What others wrote reaches no screen as it is."""

import dataclasses
import enum

from kai_py.api.texts import printable
from kai_py.observe.live.feed import printable_parts

ATTACK = "\x1b]0;pwned\x07\x1b[2J\nERROR forged\x9b1m\u202egnp.exe\u2066\x7f"


class Mark(enum.Enum):
    ONE = ATTACK


@dataclasses.dataclass(frozen=True)
class Inner:
    names: tuple[str, ...]
    mark: Mark = Mark.ONE


@dataclasses.dataclass(frozen=True)
class Outer:
    inner: Inner
    by_name: dict[str, list[str]]
    count: int = 1


def test_parts_of_records_are_shown_as_text():
    made = printable_parts(Outer(Inner((ATTACK, "plain")), {ATTACK: [ATTACK]}))
    shown = printable(ATTACK)
    assert made == Outer(Inner((shown, "plain")), {shown: [shown]})
    assert shown.startswith("\\x1b]0;pwned\\x07\\x1b[2J\\nERROR forged\\x9b1m\\u202e")
