"""Watches over HTTP.

One JSON line per event, until the client's timeout, a compaction (an ERROR event with code 410) or
the end of the server. A quiet watch gets a bookmark now and then if it allows them.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from aiohttp import web

from kai_py.embedded.errors import RequestError
from kai_py.embedded.faults import CutWatch
from kai_py.embedded.listing import Lister, Watch, WatchEvent
from kai_py.embedded.representation import Presenter, ResponseForm
from kai_py.embedded.routing import Target, integer, is_set

BOOKMARK_SECONDS = 10.0
DEFAULT_TIMEOUT_SECONDS = 1800
_EVENTS_PER_WRITE = 256


async def stream_watch(
    lister: Lister,
    request: web.Request,
    target: Target,
    presenter: Presenter,
    cut: CutWatch | None = None,
) -> web.StreamResponse:
    """Answer a watch request; `cut` ends it early as an injected fault."""
    watch = lister.watch(target, request.query)
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    stream = _Stream(response, presenter, cut)
    wakeup = asyncio.Event()
    stop_listening = watch.listen(wakeup.set)
    try:
        await _send_events(watch, stream, wakeup, request)
    except RequestError as error:
        await stream.send([WatchEvent("ERROR", error.status())])
    except _WatchCutError:
        if request.transport is not None:
            request.transport.abort()
    except ConnectionError:
        pass
    finally:
        stop_listening()
    return response


async def _send_events(
    watch: Watch, stream: "_Stream", wakeup: asyncio.Event, request: web.Request
) -> None:
    query = request.query
    bookmarks = is_set(query, "allowWatchBookmarks")
    loop = asyncio.get_running_loop()
    end = loop.time() + (integer(query, "timeoutSeconds") or DEFAULT_TIMEOUT_SECONDS)
    await stream.send(watch.poll())
    if is_set(query, "sendInitialEvents") and bookmarks:
        await stream.send([watch.bookmark(initial_events_end=True)])
    while (remaining := end - loop.time()) > 0:
        wakeup.clear()
        if events := watch.poll():
            await stream.send(events)
            continue
        try:
            await asyncio.wait_for(wakeup.wait(), min(remaining, BOOKMARK_SECONDS))
        except TimeoutError:
            if bookmarks:
                await stream.send([watch.bookmark()])


class _WatchCutError(Exception):
    pass


@dataclass
class _Stream:
    response: web.StreamResponse
    presenter: Presenter
    cut: CutWatch | None
    sent: int = 0

    async def send(self, events: Sequence[WatchEvent]) -> None:
        """Write events in few large writes, and no further than the cut."""
        for start in range(0, len(events), _EVENTS_PER_WRITE):
            batch = events[start : start + _EVENTS_PER_WRITE]
            lines = [self._line(event, self.sent + index) for index, event in enumerate(batch)]
            if self.cut and self.sent + len(lines) > self.cut.events:
                await self._write_cut(lines, self.cut)
            self.sent += len(lines)
            await self.response.write(b"".join(lines))
        if self.cut and self.sent >= self.cut.events and not self.cut.torn:
            raise _WatchCutError

    async def _write_cut(self, lines: list[bytes], cut: CutWatch) -> None:
        whole = cut.events - self.sent
        rest = lines[whole][: len(lines[whole]) // 2] if cut.torn else b""
        await self.response.write(b"".join(lines[:whole]) + rest)
        await asyncio.sleep(0)
        raise _WatchCutError

    def _line(self, event: WatchEvent, position: int) -> bytes:
        if event.type == "ERROR" or self.presenter.form is ResponseForm.FULL:
            encoded = event.encoded_object()
        elif event.type == "BOOKMARK":
            encoded = msgspec.json.encode(self.presenter.bookmark(event.object))
        else:
            shown = self.presenter.event(event.object, first=position == 0)
            encoded = msgspec.json.encode(shown)
        return b'{"type":"%s","object":%s}\n' % (event.type.encode(), encoded)
