"""Keys of ``kai-py top``: what is filtered, sorted and selected, and what a key asks for.

/ filter (Enter keeps it, Esc clears it)   s sort   arrows, j and k select
d or Enter describe                        x evict, after y   q quit
"""

import enum
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kai_py.observe.live.cluster import LiveGang

UP, DOWN, ENTER, ESCAPE, BACKSPACE = "up", "down", "enter", "escape", "backspace"
SPECIAL: Mapping[bytes, str] = {
    b"\x1b[A": UP, b"\x1bOA": UP, b"\x1b[B": DOWN, b"\x1bOB": DOWN, b"\r": ENTER, b"\n": ENTER,
    b"\x1b": ESCAPE, b"\x7f": BACKSPACE, b"\x08": BACKSPACE,
}  # fmt: skip
PIECES = re.compile(rb"\x1b[\[O][0-9;]*[A-Za-z~]|[\x00-\x7f]|[\xc0-\xff][\x80-\xbf]*")
MAX_FILTER = 100


class Mode(enum.Enum):
    """What keys mean."""

    LIST = "list"
    FILTER = "filter"
    CONFIRM = "confirm"


class Wish(enum.Enum):
    """What a key asks the program to do."""

    QUIT = "quit"
    DESCRIBE = "describe"
    CLOSE = "close"
    EVICT = "evict"


SORTS: Mapping[str, Callable[[LiveGang], Any]] = {
    "age": lambda _gang: 0,
    "state": lambda gang: (not gang.pending_reason, not gang.terminating, gang.running),
    "queue": lambda gang: (gang.queue, gang.key),
    "name": lambda gang: gang.key,
    "pods": lambda gang: (-gang.pods, gang.key),
}
"""Orders of gangs; the first is that in which they come."""


def keys_in(read: bytes) -> Iterator[str]:
    """The keys of what a terminal sent: names of special keys, else the character."""
    for piece in PIECES.findall(read):
        if piece in SPECIAL:
            yield SPECIAL[piece]
        elif (text := piece.decode(errors="ignore")) and text.isprintable():
            yield text


@dataclass
class Controls:
    """What is shown of the gangs; ``selected`` is a key, "" if there is none."""

    filter: str = ""
    sort: str = "age"
    selected: str = ""
    mode: Mode = Mode.LIST
    message: str = ""
    described: bool = False
    shown: tuple[LiveGang, ...] = ()

    def arrange(self, gangs: Sequence[LiveGang]) -> tuple[LiveGang, ...]:
        """The gangs with the filter in key or queue, in order; keeps a gang selected."""
        part = self.filter.lower()
        found = [gang for gang in gangs if part in f"{gang.key} {gang.queue}".lower()]
        self.shown = tuple(sorted(found, key=SORTS[self.sort]))
        if not any(gang.key == self.selected for gang in self.shown):
            self.selected = self.shown[0].key if self.shown else ""
            self.described = False
            if self.mode is Mode.CONFIRM:
                self.mode = Mode.LIST
        return self.shown

    def press(self, key: str) -> Wish | None:
        """Take a key; what it asks for, if that is more than another view."""
        match self.mode:
            case Mode.FILTER:
                return self._type(key)
            case Mode.CONFIRM:
                return self._confirm(key)
            case Mode.LIST:
                self.message = ""
                return self._command(key)

    def status(self) -> str:
        """The line below all panels: the question, the filter, a message, or the keys."""
        match self.mode:
            case Mode.FILTER:
                return f"filter: {self.filter}▏  Enter keeps it, Esc clears it"
            case Mode.CONFIRM:
                return f"Evict the pods of {self.selected}? Its owner may create new ones (y/n)"
            case Mode.LIST:
                return self.message or (
                    f"q quit  / filter  s sort ({self.sort})  ↑↓ select  d describe  x evict"
                )

    def _command(self, key: str) -> Wish | None:
        match key:
            case "q" | "Q":
                return Wish.QUIT
            case "/":
                self.mode = Mode.FILTER
            case "s":
                orders = list(SORTS)
                self.sort = orders[(orders.index(self.sort) + 1) % len(orders)]
            case "up" | "k":
                return self._move(-1)
            case "down" | "j":
                return self._move(1)
            case "d" | "enter" if self.selected:
                self.described = not self.described
                return Wish.DESCRIBE if self.described else Wish.CLOSE
            case "escape":
                self.described = False
                return Wish.CLOSE
            case "x" if self.selected:
                self.mode = Mode.CONFIRM
        return None

    def _move(self, by: int) -> Wish | None:
        keys = [gang.key for gang in self.shown]
        if not keys:
            return None
        place = keys.index(self.selected) if self.selected in keys else 0
        self.selected = keys[min(max(place + by, 0), len(keys) - 1)]
        return Wish.DESCRIBE if self.described else None

    def _type(self, key: str) -> Wish | None:
        if key in (ENTER, ESCAPE):
            self.mode = Mode.LIST
            self.filter = "" if key == ESCAPE else self.filter
        elif key == BACKSPACE:
            self.filter = self.filter[:-1]
        elif len(key) == 1:
            self.filter = (self.filter + key)[:MAX_FILTER]
        return None

    def _confirm(self, key: str) -> Wish | None:
        self.mode = Mode.LIST
        return Wish.EVICT if key in ("y", "Y") else None
