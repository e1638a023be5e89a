"""Explanations with suggestions, as one answer or as a stream of lines.

A search for suggestions takes up to two minutes. With ``stream=true`` the answer is lines of JSON
(``application/x-ndjson``) that are sent as soon as each is known, with empty lines in between so
that no proxy takes the silence for the end:

    {"explained": [...]}            the explanations, at once
    {"gang": ..., "suggestion": …}  each suggestion, as it is found
    {"finished": [...]}             the explanations with all suggestions
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web
from msgspec.structs import replace

from kai_py.observe.explanation import Explanation, ExplanationLine
from kai_py.observe.gang_rows import NOT_PENDING
from kai_py.observe.suggestion import NoAnswerError, Suggestion, SuggestionSearch
from kai_py.observe.tenant_answers import as_json
from kai_py.observe.visibility import Visibility
from kai_py.watch.errors import ApiError

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 15.0
LINES = "application/x-ndjson"
OnFound = Callable[[Suggestion], None]
Suggest = Callable[[str, OnFound], Awaitable[SuggestionSearch]]
"""The search for suggestions for a gang, by key; each is passed on as it is found."""


async def with_suggestions(
    explanations: Sequence[Explanation], suggest: Suggest | None, on_found: OnFound = lambda _: None
) -> list[Explanation]:
    """The explanations, the first with suggestions where its gang is pending."""
    if suggest is None or not explanations[0].message or explanations[0].state in NOT_PENDING:
        return list(explanations)
    gang = explanations[0].gang
    try:
        search = await suggest(gang, on_found)
    except (ApiError, NoAnswerError) as error:
        log.warning("no suggestions for %s: %s", gang, error)
        return list(explanations)
    if not search.is_finished:
        texts = "; ".join(each.text for each in search.found) or "nothing"
        log.warning(
            "the search for suggestions for %s was not finished; found so far: %s", gang, texts
        )
    unfinished = not search.is_finished
    first = replace(explanations[0], suggestions=search.found, is_search_unfinished=unfinished)
    return [first, *explanations[1:]]


async def stream_explanations(
    request: web.Request,
    explanations: Sequence[Explanation],
    suggest: Suggest | None,
    seen: Visibility | None,
) -> web.StreamResponse:
    """Send the explanations, and what is found then, to a reader who sees ``seen``."""
    response = web.StreamResponse(headers={"Content-Type": LINES, "Cache-Control": "no-store"})
    await response.prepare(request)
    lines = _Lines(response, seen)
    await lines.send(ExplanationLine(explained=list(explanations)))
    found: asyncio.Queue[Suggestion] = asyncio.Queue()
    # The search goes on after the reader has left: its answer is kept for the next reader.
    search = asyncio.ensure_future(with_suggestions(explanations, suggest, found.put_nowait))
    while not search.done() or not found.empty():
        suggestion = await _next(found, search)
        if suggestion is not None:
            line = ExplanationLine(gang=explanations[0].gang, suggestion=suggestion)
            await lines.send(line)
        elif not search.done():
            await lines.send(None)
    await lines.send(ExplanationLine(finished=await search))
    return response


async def _next(
    found: asyncio.Queue[Suggestion], search: "asyncio.Future[list[Explanation]]"
) -> Suggestion | None:
    """The next suggestion; None at the end of the search, and after a heartbeat without one."""
    waiting = asyncio.ensure_future(found.get())
    awaited: tuple[asyncio.Future[Any], ...] = (waiting, search)
    await asyncio.wait(awaited, timeout=HEARTBEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    if waiting.done():
        return waiting.result()
    waiting.cancel()
    return None


@dataclass
class _Lines:
    """Lines to one reader, as long as it is there; an empty line where there is no news."""

    response: web.StreamResponse
    seen: Visibility | None
    _is_gone: bool = False

    async def send(self, line: ExplanationLine | None) -> None:
        if self._is_gone:
            return
        try:
            await self.response.write(b"" if line is None else self._encoded(line))
            await self.response.write(b"\n")
        except (ConnectionResetError, RuntimeError):
            self._is_gone = True

    def _encoded(self, line: ExplanationLine) -> bytes:
        known = {name: each for name, each in as_json(line).items() if each}
        return msgspec.json.encode(known if self.seen is None else self.seen.redacted(known))
