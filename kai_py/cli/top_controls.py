"""Keys of ``kai-py top``: what is filtered, sorted and selected, described and evicted.

/ filter (Enter keeps it, Esc clears it)   s sort   arrows, j and k select
d or Enter describe (Esc closes)           x evict, after y   q quit
"""

import asyncio
import enum
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec.structs import replace
from rich.text import Text

from kai_py.api.texts import count_of
from kai_py.cli.errors import CommandError
from kai_py.cli.explanation_text import described
from kai_py.observe.explanation import Explanation
from kai_py.observe.live.cluster import LiveCluster, LiveGang
from kai_py.observe.live.feed import Feed
from kai_py.observe.live.screen import Interaction
from kai_py.watch.client import Client
from kai_py.watch.errors import ApiError, NotFound

UP, DOWN, ENTER, ESCAPE, BACKSPACE = "up", "down", "enter", "escape", "backspace"
SPECIAL: Mapping[bytes, str] = {
    b"\x1b[A": UP, b"\x1bOA": UP, b"\x1b[B": DOWN, b"\x1bOB": DOWN, b"\r": ENTER, b"\n": ENTER,
    b"\x1b": ESCAPE, b"\x7f": BACKSPACE, b"\x08": BACKSPACE,
}  # fmt: skip
PIECES = re.compile(rb"\x1b[\[O][0-9;]*[A-Za-z~]|[\x00-\x7f]|[\xc0-\xff][\x80-\xbf]*")
MAX_FILTER = 100
FILTER_SHOWN = 20
"""Characters of the filter in the status line while it is not edited."""


class Mode(enum.Enum):
    """What keys mean."""

    LIST = "list"
    FILTER = "filter"
    CONFIRM = "confirm"


class KeyRequest(enum.Enum):
    """What the program has to do after a key."""

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
"""Sort keys by name; the first keeps the given order, the oldest gang first."""


def keys_in(read: bytes) -> Iterator[str]:
    """The keys in the bytes from a terminal: names of special keys, else the character."""
    for piece in PIECES.findall(read):
        if piece in SPECIAL:
            yield SPECIAL[piece]
        elif (text := piece.decode(errors="ignore")) and text.isprintable():
            yield text


@dataclass
class Controls:
    """What is shown of the gangs; ``selected``: the key of a gang, "" if there is none."""

    filter: str = ""
    sort: str = "age"
    selected: str = ""
    mode: Mode = Mode.LIST
    message: str = ""
    described: bool = False
    shown: tuple[LiveGang, ...] = ()

    def arrange(self, gangs: Sequence[LiveGang]) -> tuple[LiveGang, ...]:
        """The sorted gangs whose key or queue contains the filter; keeps a gang selected."""
        part = self.filter.lower()
        found = [gang for gang in gangs if part in f"{gang.key} {gang.queue}".lower()]
        self.shown = tuple(sorted(found, key=SORTS[self.sort]))
        if not any(gang.key == self.selected for gang in self.shown):
            self.selected = self.shown[0].key if self.shown else ""
            self.described = False
            if self.mode is Mode.CONFIRM:
                self.mode = Mode.LIST
        return self.shown

    def press(self, key: str) -> KeyRequest | None:
        """Handle a key; returns what the program has to do, if anything."""
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
                # The keys come first, as a narrow terminal cuts off the end of the line.
                return f"y/n: evict the pods of {self.selected}? Its owner may create new ones"
            case Mode.LIST:
                shown = f" ({self.filter[:FILTER_SHOWN]})" if self.filter else ""
                return self.message or (
                    f"q quit  / filter{shown}  s sort ({self.sort})  ↑↓ select  d describe  x evict"
                )

    def _command(self, key: str) -> KeyRequest | None:
        match key:
            case "q" | "Q":
                return KeyRequest.QUIT
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
                return KeyRequest.DESCRIBE if self.described else KeyRequest.CLOSE
            case "escape" if self.described:
                self.described = False
                return KeyRequest.CLOSE
            case "escape":
                self.filter = ""
            case "x" if self.selected:
                self.mode = Mode.CONFIRM
        return None

    def _move(self, by: int) -> KeyRequest | None:
        keys = [gang.key for gang in self.shown]
        if not keys:
            return None
        place = keys.index(self.selected) if self.selected in keys else 0
        self.selected = keys[min(max(place + by, 0), len(keys) - 1)]
        return KeyRequest.DESCRIBE if self.described else None

    def _type(self, key: str) -> KeyRequest | None:
        if key in (ENTER, ESCAPE):
            self.mode = Mode.LIST
            self.filter = "" if key == ESCAPE else self.filter
        elif key == BACKSPACE:
            self.filter = self.filter[:-1]
        elif len(key) == 1:
            self.filter = (self.filter + key)[:MAX_FILTER]
        return None

    def _confirm(self, key: str) -> KeyRequest | None:
        self.mode = Mode.LIST
        return KeyRequest.EVICT if key in ("y", "Y") else None


NOT_KNOWN = "It no longer exists."


class TopSource(Protocol):
    """Where the screen's data comes from."""

    feed: Feed

    def live_cluster(self) -> LiveCluster:
        """The cluster now."""

    def headline(self) -> Sequence[Text]:
        """The line above all panels."""

    async def explain(self, gang: str) -> Explanation | None:
        """What is known of a gang; raises CommandError."""


class TopSession:
    """The view of one reader; evictions are made with the rights of ``client``, the reader's."""

    def __init__(self, source: TopSource, client: Client) -> None:
        self.controls = Controls()
        self._source, self._client = source, client
        self._details = ""

    def cluster(self) -> LiveCluster:
        """The cluster with the gangs that are shown, in order."""
        cluster = self._source.live_cluster()
        return replace(cluster, gangs=self.controls.arrange(cluster.gangs))

    def state(self) -> Interaction:
        """What is selected and asked for."""
        controls = self.controls
        details = self._details if controls.described else ""
        return Interaction(controls.selected, details, controls.status())

    async def follow(self, keys: asyncio.Queue[str]) -> None:
        """Take keys until one quits."""
        while True:
            wish = self.controls.press(await keys.get())
            gang = self.controls.selected
            if wish is KeyRequest.QUIT:
                return
            try:
                if wish is KeyRequest.DESCRIBE:
                    found = await self._source.explain(gang)
                    self._details = described(found) if found is not None else NOT_KNOWN
                elif wish is KeyRequest.EVICT:
                    self.controls.message = f"evicting the pods of {gang} …"
                    self.controls.message = await self._evict(gang)
            except CommandError as error:
                self.controls.message = str(error)

    async def _evict(self, gang: str) -> str:
        """Evict the pods of a gang through the Eviction API; what came of it."""
        found = await self._source.explain(gang)
        pods = found.running_pods if found is not None else {}
        if not pods:
            return f"{gang} has no pods on nodes"
        evicted, refusal = 0, ""
        for name, uid in sorted(pods.items()):
            try:
                await evict_pod(self._client, name, uid)
                evicted += 1
            except NotFound:
                continue
            except ApiError as error:
                refusal = str(error)
        done = f"{count_of(evicted, 'pod')} of {gang} evicted"
        return f"{done}; {refusal}" if refusal else done


async def evict_pod(client: Client, name: str, uid: str) -> None:
    """Evict the pod NAMESPACE/NAME if it still has this uid; raises ApiError."""
    namespace, _, pod = name.partition("/")
    await client.evict(namespace=namespace, pod=pod, uid=uid)
