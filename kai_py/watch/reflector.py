"""Reflector: keeps one collection equal to the server's, by list and watch.

List once, then watch from the list's resourceVersion:

1. Without a resourceVersion everything is read: as a stream of initial events where the server has
   that (it never holds the whole list then), else page by page. Nothing is applied before the end.
2. With one, the watch resumes after it. Events and bookmarks advance it.
3. 410 Gone, an ERROR event or a line that is no event: the resourceVersion is discarded, go to 1.
   The list is applied as a difference, so deletions meanwhile are noticed.
4. After any end of a stream: at once if it had lived for a while, else after a growing delay, and
   not before the server's Retry-After, of which at most ``MAX_WAIT`` seconds count: nothing
   is decided on a view that is much older.
5. If nothing comes for longer than bookmarks take, be it on one stream or on several, the stream is
   not trusted: something on the way may hold it back, or close it before anything comes. It is
   closed, and the collection is listed, which no watch can hold back. Where etcd reports no
   progress to the API server, every quiet kind is silent: that is no fault.

A 404 for the collection ends ``run``: the kind is not served (any more).

Source: "Efficient detection of changes" in the Kubernetes API concepts, KEP-3157 (watch-list),
KEP-956 (bookmarks).
"""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import Generic, TypeAlias

import msgspec

from kai_py.watch.collection import Collection, Entry, entry_key, entry_version
from kai_py.watch.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    Gone,
    Invalid,
    Malformed,
    NotFound,
    from_event,
)
from kai_py.watch.machine import Backoff
from kai_py.watch.resource import Key, Resource, T
from kai_py.watch.transport import JSON, ApiCall, Transport
from kai_py.watch.wire import (
    INITIAL_EVENTS_END,
    LineSplitter,
    ObjectIdentity,
    RawWatchEvent,
    decode_envelope,
    decode_event,
    decode_page,
)

PAGE_SIZE = 500
LIST_SECONDS = 120.0
WATCH_SECONDS = (300.0, 600.0)
"""Range of a watch's requested duration; the spread keeps kinds from reconnecting together."""
IDLE_GRACE = 30.0
SILENCE_SECONDS = 75.0
"""Longest silence of a healthy watch: bookmarks come every 60 to 63 s, if at all."""
RESUMED_SECONDS = 5.0
"""A stream that resumes after a long break begins within this time with what was missed."""
INITIAL_EVENTS = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
INITIAL_EVENTS_TIMEOUT = 10.0
"""A server that is silent for so long during the initial events does not support them."""
INITIAL_ATTEMPTS = 3
MAX_WAIT = 30.0
"""Longest wait that an answer can impose; less than the silence after which nothing is decided."""
STABLE_SECONDS = 5.0
"""A stream that lived this long may reconnect at once."""

logger = logging.getLogger(__name__)


Listed: TypeAlias = tuple[dict[Key, Entry[T]], str]
"""A whole list and its resourceVersion."""


class _NoInitialEventsError(Exception):
    """The server treated ``sendInitialEvents`` as an ordinary watch."""


class Reflector(Generic[T]):
    """Keeps one collection equal to the server's."""

    def __init__(
        self,
        transport: Transport,
        resource: Resource[T],
        collection: Collection[T],
        *,
        on_synced: Callable[[], None] = lambda: None,
        on_refused: Callable[[], None] = lambda: None,
        uniform: Callable[[float, float], float] = random.uniform,
        silence: float = SILENCE_SECONDS,
    ) -> None:
        """``silence``: seconds after which a silent watch is closed and the kind listed."""
        self._silence = silence
        self.resource = resource
        self.synced = False
        self.version = ""
        """The resourceVersion of the collection, empty if it must be read from the start."""
        self.problem = ""
        """Why the last attempt failed, empty while all is well."""
        self.last_contact = asyncio.get_running_loop().time()
        """Time of the last contact with the server, on the event loop's clock."""
        self.last_progress = self.last_contact
        """Time of the last event, bookmark or list that was applied."""
        self.seen_version = ""
        """The newest resourceVersion that was applied; kept when ``version`` is discarded."""
        self.listed = 0.0
        """Time at which the last complete list began."""
        self.refused_for = 0.0
        """Seconds from the first to the last of the refusals in a row; 0 without."""
        self._refused_since: float | None = None
        self._transport = transport
        self._collection = collection
        self._on_synced = on_synced
        self._on_refused = on_refused
        self._uniform = uniform
        self._backoff = Backoff(uniform)
        self._initial_attempts = INITIAL_ATTEMPTS
        self._progressed = False
        self._opened = False
        self._silent = False
        self._began = self.last_contact
        self._initial_entries: dict[Key, Entry[T]] | None = None
        """Initial events so far, None while the stream is an ordinary watch."""

    async def run(self) -> None:
        """Follow the collection until cancelled; raises NotFound if it is not served."""
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            # Also where every stream ends before it can be known as silent.
            self._silent |= self._opened and started >= self.last_progress + self._silence
            retry_after = 0.0
            self._progressed = self._opened = False
            try:
                await self._follow()
            except NotFound:
                raise
            except ApiError as error:
                self._on_error(error)
                retry_after = min(error.retry_after, MAX_WAIT)
            delay = self._delay(lived=loop.time() - started)
            if self._opened:
                delay = min(delay, max(self.last_progress + self._silence - loop.time(), 0.0))
            await asyncio.sleep(max(delay, retry_after))

    async def _follow(self) -> None:
        if self._silent:
            await self._list(after_silence=True)
            # The server answers now: after the next silence there is nothing to wait for.
            self._silent, self._progressed = False, True
        if self.version:
            await self._watch()
            return
        if self._initial_attempts > 0:
            try:
                await self._watch(initial=True)
            except (BadRequest, Invalid, _NoInitialEventsError) as error:
                logger.info("%s: no initial events: %s", self.resource.kind.name, error)
                self._initial_attempts = 0
            else:
                return
        await self._list()
        await self._watch()

    def _on_error(self, error: ApiError) -> None:
        previous, self.problem = self.problem, str(error)
        if isinstance(error, Forbidden):
            self._on_refusal(repeated=self.problem == previous)
            return
        self._forget_refusals()
        logger.warning("watching %s: %s", self.resource.kind.name, error)
        if isinstance(error, (Gone, BadRequest, Invalid, Malformed)):
            self.version = ""

    def _on_refusal(self, *, repeated: bool) -> None:
        """Record a refusal; permissions may change, and one that lasts is logged once."""
        level = logging.DEBUG if repeated else logging.WARNING
        logger.log(level, "watching %s: %s", self.resource.kind.name, self.problem)
        now = asyncio.get_running_loop().time()
        self._refused_since = now if self._refused_since is None else self._refused_since
        self.refused_for = now - self._refused_since
        self._on_refused()

    def _forget_refusals(self) -> None:
        self._refused_since, self.refused_for = None, 0.0

    def _delay(self, *, lived: float) -> float:
        if lived >= STABLE_SECONDS or self._progressed:
            self._backoff.reset()
        return 0.0 if lived >= STABLE_SECONDS else self._backoff.next()

    async def _list(self, *, after_silence: bool = False) -> None:
        self._began = asyncio.get_running_loop().time()
        try:
            entries, version = await self._read_pages(limit=PAGE_SIZE)
        except Gone:
            # All in one page, as the token for a second page would expire again.
            entries, version = await self._read_pages(limit=0)
        if after_silence:
            self._judge_silence(entries)
        await self._replace_all(entries, version)

    def _judge_silence(self, entries: Mapping[Key, Entry[T]]) -> None:
        """Log whether the watch withheld something: a quiet kind is as silent as a broken watch."""
        name, withheld = self.resource.kind.name, self._collection.count_differences(entries)
        if withheld:
            template = "watching %s: silent for %.0f s though %d objects changed; listed instead"
            logger.warning(template, name, self._silence, withheld)
        else:
            logger.debug("watching %s: silent for %.0f s, nothing changed", name, self._silence)

    async def _read_pages(self, *, limit: int) -> tuple[dict[Key, Entry[T]], str]:
        """Read the whole collection; raises Gone if it took longer than a page token lives."""
        entries: dict[Key, Entry[T]] = {}
        parameters = {"limit": str(limit)} if limit else {}
        while True:
            call = self._call("list", parameters)
            body = await self._transport.send(call, timeout_seconds=LIST_SECONDS)
            self._record_contact()
            page = decode_page(body, call)
            for number, item in enumerate(page.items or (), 1):
                self._collect(entries, item)
                if number % PAGE_SIZE == 0:
                    await asyncio.sleep(0)
            if not page.metadata.continue_token:
                return entries, page.metadata.resource_version
            parameters = parameters | {"continue": page.metadata.continue_token}

    def _collect(self, entries: dict[Key, Entry[T]], raw: msgspec.Raw) -> None:
        try:
            entry = self._collection.read(self.resource.decode, raw)
        except ValueError as error:
            logger.warning("a nameless %s is ignored: %s", self.resource.kind.name, error)
            return
        entries[entry_key(entry)] = entry

    async def _replace_all(self, entries: dict[Key, Entry[T]], version: str) -> None:
        """Become equal to a list, a step at a time, so that a long list does not block the loop."""
        for _ in self._collection.replacing(entries):
            await asyncio.sleep(0)
        self.version = self.seen_version = version
        self.problem = ""
        self._forget_refusals()
        self.last_progress, self.listed = asyncio.get_running_loop().time(), self._began
        self.synced = True
        self._on_synced()

    async def _watch(self, *, initial: bool = False) -> None:
        """Follow a stream to its end, either after the known version or from initial events."""
        lifetime = self._uniform(*WATCH_SECONDS)
        start = INITIAL_EVENTS if initial else {"resourceVersion": self.version}
        call = self._call("watch", start | _watch_parameters(lifetime))
        self._initial_entries = {} if initial else None
        self._began = asyncio.get_running_loop().time() if initial else self._began
        lines = LineSplitter()
        timeout = asyncio.timeout(None)
        try:
            async with timeout, self._transport.stream(call, idle=lifetime + IDLE_GRACE) as chunks:
                # Not before the stream is open: a failed connection does not tell what the server
                # supports.
                self._initial_attempts -= initial
                self._opened = not initial
                if self._refused_since is not None:
                    self.problem = ""
                    self._record_contact()
                    self._forget_refusals()
                self._reset_timeout(timeout)
                async for chunk in chunks:
                    self._record_contact()
                    for line in _lines_of(call, lines, chunk):
                        listed = self._handle_line(call, line)
                        if listed:
                            # From here on it is our own work that takes time, not a silent server.
                            timeout.reschedule(None)
                            await self._replace_all(*listed)
                    self._reset_timeout(timeout)
        except TimeoutError as error:
            if self._initial_entries is None:
                self._silent = True
                return
            raise _NoInitialEventsError("silence before the end of the initial events") from error

    def _reset_timeout(self, silence: asyncio.Timeout) -> None:
        now = asyncio.get_running_loop().time()
        if self._initial_entries is not None:
            silence.reschedule(now + INITIAL_EVENTS_TIMEOUT)
            return
        # Counted from the opening, streams that a proxy closes when they are idle never get there.
        resumed = now + min(RESUMED_SECONDS, self._silence)
        silence.reschedule(max(self.last_progress + self._silence, resumed))

    def _handle_line(self, call: ApiCall, line: bytes) -> "Listed[T] | None":
        """Take in an event; returns the list that ends with it, if one does."""
        try:
            event = decode_event(line)
        except ValueError as error:
            raise Malformed(f"{call}: no event: {error}: {line[:80]!r}") from error
        # Usually 410: the resourceVersion is no longer in the server's history.
        if event.type == "ERROR":
            self.version = ""
            raise from_event(str(call), event.object)
        if event.type == "BOOKMARK":
            return self._handle_bookmark(call, event.object)
        self._handle_object(call, event)
        return None

    def _handle_bookmark(self, call: ApiCall, raw: msgspec.Raw) -> "Listed[T] | None":
        metadata = _identity(call, raw)
        if self._initial_entries is None:
            self._advance(metadata.resource_version)
            return None
        if (metadata.annotations or {}).get(INITIAL_EVENTS_END) == "true":
            entries, self._initial_entries = self._initial_entries, None
            self._initial_attempts = INITIAL_ATTEMPTS
            return entries, metadata.resource_version
        raise _NoInitialEventsError("an ordinary bookmark before their end")

    def _handle_object(self, call: ApiCall, event: RawWatchEvent) -> None:
        if event.type == "DELETED":
            metadata = _identity(call, event.object)
            self._remove((metadata.namespace, metadata.name), metadata.uid)
            self._advance(metadata.resource_version)
            return
        try:
            entry = self._collection.read(self.resource.decode, event.object)
        except ValueError as error:
            raise Malformed(f"{call}: a nameless object: {error}") from error
        if self._initial_entries is None:
            self._collection.put(entry)
        else:
            self._initial_entries[entry_key(entry)] = entry
        self._advance(entry_version(entry))

    def _remove(self, key: Key, uid: str) -> None:
        if self._initial_entries is None:
            self._collection.remove(key, uid=uid)
        else:
            self._initial_entries.pop(key, None)

    def _advance(self, version: str) -> None:
        """Resume from here the next time; incomplete initial events do not count."""
        if self._initial_entries is None:
            self.version = self.seen_version = version
            self.last_progress = asyncio.get_running_loop().time()
            self._progressed = True
            self.problem = ""

    def _record_contact(self) -> None:
        self.last_contact = asyncio.get_running_loop().time()

    def _call(self, verb: str, parameters: Mapping[str, str]) -> ApiCall:
        kind = self.resource.kind
        representation = "PartialObjectMetadata" if verb == "watch" else "PartialObjectMetadataList"
        partial = f"{JSON};as={representation};g=meta.k8s.io;v=v1,{JSON}"
        accept = partial if kind.metadata_only else JSON
        return ApiCall(verb, kind.name, self.resource.collection(), parameters, accept=accept)


def _watch_parameters(seconds: float) -> dict[str, str]:
    return {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(int(seconds))}


def _lines_of(call: ApiCall, lines: LineSplitter, chunk: bytes) -> list[bytes]:
    try:
        return lines.feed(chunk)
    except ValueError as error:
        raise Malformed(f"{call}: no event: {error}") from error


def _identity(call: ApiCall, raw: msgspec.Raw) -> ObjectIdentity:
    try:
        return decode_envelope(raw).metadata
    except ValueError as error:
        raise Malformed(f"{call}: an object without metadata: {error}") from error
