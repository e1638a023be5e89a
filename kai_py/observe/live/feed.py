"""Feed of recent events, newest last; equal events on pods of one gang share a line.

Untrusted text in the records of a view is made safe for a terminal.
"""

import dataclasses
from collections import deque
from enum import Enum
from typing import Any, TypeVar

from msgspec import Struct, structs

from kai_py.api.texts import printable

Value = TypeVar("Value")


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


MERGE_SECONDS = 3.0
MAX_LINES = 200


class Tone(Enum):
    """Severity of a line; decides its colour."""

    STEP = "step"
    GOOD = "good"
    WAIT = "wait"
    BAD = "bad"
    PLAIN = "plain"


class FeedLine(Struct, frozen=True):
    """One event.

    ``word`` is the event's reason, ``subject`` the object it regards, ``gang`` its gang's key.
    ``pods`` counts the pods it was reported for; ``nodes`` are theirs, if the event is about nodes.
    """

    time: float
    tone: Tone
    word: str
    subject: str
    text: str = ""
    gang: str = ""
    pods: int = 0
    nodes: tuple[str, ...] = ()


class Feed:
    """The last lines."""

    def __init__(self) -> None:
        self._lines: deque[FeedLine] = deque(maxlen=MAX_LINES)

    def add(self, line: FeedLine) -> None:
        """Add a line, or merge it into a recent line with the same text."""
        line = printable_parts(line)
        for position in range(len(self._lines) - 1, -1, -1):
            earlier = self._lines[position]
            if line.time - earlier.time > MERGE_SECONDS:
                break
            if _can_merge(earlier, line):
                nodes = dict.fromkeys((*earlier.nodes, *line.nodes))
                self._lines[position] = structs.replace(
                    earlier, pods=earlier.pods + line.pods, nodes=tuple(nodes)
                )
                return
        self._lines.append(line)

    def newest(self, count: int) -> tuple[FeedLine, ...]:
        """The last ``count`` lines, oldest first."""
        return tuple(self._lines)[-count:] if count > 0 else ()


def _can_merge(one: FeedLine, other: FeedLine) -> bool:
    return (
        bool(one.gang) and one.pods > 0 and other.pods > 0
        and (one.gang, one.word, one.text) == (other.gang, other.word, other.text)
    )  # fmt: skip


def line_text(line: FeedLine) -> str:
    """The text of a line, with its subject, or with its gang when several pods are merged."""
    node_text = f" on {_node_range(line.nodes)}" if line.nodes else ""
    subject = (
        line.gang.rpartition("/")[2] + f", {line.pods} pods" if line.pods > 1 else line.subject
    )
    head = subject + node_text
    return f"{head}: {line.text}" if head and line.text else head or line.text


def _node_range(nodes: tuple[str, ...]) -> str:
    shown = sorted(nodes, key=lambda name: (len(name), name))
    return ", ".join(shown) if len(shown) <= 3 else f"{shown[0]} … {shown[-1]}"
