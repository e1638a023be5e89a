"""Read-only JSON API under /v1.

    /v1/state                       queues, domains of nodes, pending gangs
    /v1/nodes?domain=&offset=&limit=  the nodes of a domain with their pods and devices
    /v1/gangs?queue=&search=&limit=  running gangs, the largest first
    /v1/explain/SUBJECT/NAME?suggestions=&seconds=  gang, pod, job, claim or queue: why it is
                                    pending or where it runs, suggestions, and its decisions (of
                                    the last seconds)
    /v1/what-if?set=&add-nodes=&drain=&remove=&until-placed=  simulated effect of changes
    /v1/node-kinds                  kinds of nodes, as templates for nodes to add
    /v1/decisions?since=&seconds=   the last decisions: after a number, or of the last seconds
    /v1/history                     GPUs of the queues over time
    /v1/events?since=               server-sent events ``decision`` and ``cycle``; after a number
                                    or an event's id
    /v1/plan                        the last plan

Records are built on request, in a thread, and once per cycle, at no cost without readers. Before
the first cycle, and on a standby replica, the answer is 503.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

import msgspec
from aiohttp import web

from kai_py.api.printable import printable
from kai_py.observe.cluster_state import cluster_state
from kai_py.observe.cluster_view import ClusterView
from kai_py.observe.decision_log import Decision, DecisionLog, decisions_about
from kai_py.observe.explanation import Explanation, explain_subject
from kai_py.observe.gang_page import gang_page
from kai_py.observe.node_details import MAX_NODES, node_page
from kai_py.observe.share_history import ShareHistory
from kai_py.observe.subject import Subject
from kai_py.observe.suggestion import InvalidQuestionError, NoAnswerError, SuggestionSearch
from kai_py.snapshot.node_kinds import node_kinds
from kai_py.watch.errors import ApiError

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 15.0
MIN_EVENT_INTERVAL = 0.25
MAX_LISTENERS = 64
MAX_DIGITS = 15
MAX_EXPLAINED = 64
"""Most gangs in one answer, the first ones of a queue."""
BUILD_PAUSE_FACTOR = 3.0
"""Pause after building a state, as a multiple of the time it took."""
PROCESS_ID = uuid.uuid4().hex[:8]
"""Distinguishes the cycles and decisions of this process from those of an earlier one."""
encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class ApiSource:
    """Sources of the answers."""

    view: Callable[[], ClusterView | None]
    decisions: DecisionLog
    shares: ShareHistory
    suggest: Callable[[str], Awaitable[SuggestionSearch]] | None = None
    """Suggestions for a gang to start, by key; None where nothing can be simulated."""
    what_if: Callable[[tuple[tuple[str, str], ...]], Awaitable[object]] | None = None
    """The effect of changes, given as (kind, text); None where nothing can be simulated."""


class Api:
    """The request handlers; ``close`` ends the open streams."""

    def __init__(self, source: ApiSource) -> None:
        self._source = source
        self._state: tuple[int, bytes] = (0, b"")
        self._build_lock = asyncio.Lock()
        self._paused_until = 0.0
        self._listeners = 0
        self._closing = asyncio.Event()

    def routes(self) -> list[web.RouteDef]:
        """Routes of the API."""
        return [
            web.get("/v1/state", self._get_state),
            web.get("/v1/nodes", self._nodes),
            web.get("/v1/gangs", self._gangs),
            web.get("/v1/explain/{subject}/{name:.+}", self._explain),
            web.get("/v1/what-if", self._what_if),
            web.get("/v1/node-kinds", self._node_kinds),
            web.get("/v1/decisions", self._decisions),
            web.get("/v1/history", self._history),
            web.get("/v1/events", self._events),
            web.get("/v1/plan", self._plan),
        ]

    async def close(self, _app: web.Application) -> None:
        """End the streams."""
        self._closing.set()

    async def _get_state(self, request: web.Request) -> web.Response:
        view = self._view()
        tag = _tag(view.number)
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"ETag": tag})
        async with self._build_lock:
            number, body = await self._newest_state()
        return _json(request, body, {"ETag": _tag(number)})

    async def _newest_state(self) -> tuple[int, bytes]:
        """The last cycle's state; at most one is built at a time, with pauses to bound the load."""
        loop = asyncio.get_running_loop()
        if self._state[0] == self._view().number:
            return self._state
        # The lock is held meanwhile: requests that come now share the next state.
        await asyncio.sleep(max(self._paused_until - loop.time(), 0.0))
        view, started = self._view(), loop.time()
        body = await asyncio.to_thread(lambda: encode(cluster_state(view)))
        self._paused_until = loop.time() + BUILD_PAUSE_FACTOR * (loop.time() - started)
        self._state = view.number, body
        return self._state

    async def _nodes(self, request: web.Request) -> web.Response:
        view, query = self._view(), request.query
        offset, limit = (
            _parse_integer(query.get("offset", "0")),
            _parse_integer(query.get("limit", "64")),
        )
        domain = query.get("domain", "")
        page = await asyncio.to_thread(
            lambda: node_page(view, domain, offset=offset, limit=min(limit, MAX_NODES))
        )
        if page is None:
            raise web.HTTPNotFound(text=f'no such domain: "{domain}"\n')
        return _json(request, encode(page))

    async def _gangs(self, request: web.Request) -> web.Response:
        view, query = self._view(), request.query
        queue, search = query.get("queue", ""), query.get("search", "")
        limit = _parse_integer(query.get("limit", "50"))
        page = await asyncio.to_thread(
            lambda: gang_page(view, queue=queue, search=search, limit=limit)
        )
        return _json(request, encode(page))

    async def _explain(self, request: web.Request) -> web.Response:
        view, name = self._view(), request.match_info["name"]
        try:
            subject = Subject(request.match_info["subject"])
        except ValueError:
            known = ", ".join(Subject)
            raise web.HTTPNotFound(text=f"known subjects: {known}\n") from None
        query = request.query
        since = view.snapshot.now - _parse_integer(query["seconds"]) if "seconds" in query else 0.0
        decisions = self._source.decisions.made_after(since)
        explanations = await asyncio.to_thread(
            explain_subject,
            view.snapshot,
            view.plan,
            subject,
            name,
            decisions=decisions,
            history=lambda gang: decisions_about(gang, decisions),
            limit=MAX_EXPLAINED,
        )
        if not explanations:
            raise web.HTTPNotFound(
                text=f"{subject} {name}: not part of any gang of this scheduler\n"
            )
        if _parse_flag(query, "suggestions"):
            explanations = [await self._with_suggestions(explanations[0]), *explanations[1:]]
        return _json(request, encode(explanations))

    async def _with_suggestions(self, explanation: Explanation) -> Explanation:
        suggest = self._source.suggest
        if suggest is None or not explanation.message:
            return explanation
        try:
            search = await suggest(explanation.gang)
        except (ApiError, NoAnswerError) as error:
            log.warning("no suggestions for %s: %s", explanation.gang, error)
            return explanation
        if not search.is_finished:
            log.warning("the search for suggestions for %s was not finished", explanation.gang)
        return replace(
            explanation, suggestions=search.found, is_search_unfinished=not search.is_finished
        )

    async def _what_if(self, request: web.Request) -> web.Response:
        self._view()
        if self._source.what_if is None:
            raise web.HTTPNotFound(text="simulation is disabled\n")
        try:
            answer = await self._source.what_if(tuple(request.query.items()))
        except InvalidQuestionError as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from None
        except (ApiError, NoAnswerError) as error:
            log.warning("what-if failed: %s", error)
            raise web.HTTPServiceUnavailable(text=f"{error}\n") from None
        return _json(request, encode(answer))

    async def _node_kinds(self, request: web.Request) -> web.Response:
        kinds = await asyncio.to_thread(node_kinds, self._view().snapshot)
        return _json(request, encode(kinds))

    async def _decisions(self, request: web.Request) -> web.Response:
        query, log = request.query, self._source.decisions
        if "seconds" in query:
            view = self._view()
            return _json(
                request,
                encode(log.made_after(view.snapshot.now - _parse_integer(query["seconds"]))),
            )
        return _json(request, encode(log.since(_parse_integer(query.get("since", "0")))))

    async def _history(self, request: web.Request) -> web.Response:
        return _json(request, encode(self._source.shares.samples))

    async def _plan(self, request: web.Request) -> web.Response:
        return _json(request, encode(self._view().plan))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if self._listeners >= MAX_LISTENERS:
            raise web.HTTPServiceUnavailable(text="too many event streams\n")
        # A browser that reconnects sends the header, and the original query with it.
        start = request.headers.get("Last-Event-ID") or request.query.get("since")
        log = self._source.decisions
        last_sent = log.newest if start is None else _last_sent(start, log.newest)
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )
        await response.prepare(request)
        self._listeners += 1
        try:
            await self._stream(response, last_sent)
        except ConnectionResetError:
            pass  # the listener went away, which is how streams end
        finally:
            self._listeners -= 1
        return response

    async def _stream(self, response: web.StreamResponse, sent: int) -> None:
        log, cycle = self._source.decisions, -1
        while not self._closing.is_set():
            if log.cycle == cycle:
                if not await self._next_cycle(cycle):
                    await response.write(b": still here\n\n")
                continue
            cycle = log.cycle
            new_decisions = log.since(sent)
            sent = new_decisions[-1].number if new_decisions else sent
            cycle_event = f'event: cycle\ndata: {{"cycle":{cycle}}}\n\n'.encode()
            await response.write(b"".join(map(_event, new_decisions)) + cycle_event)
            # Cycles in the meantime are merged into one event.
            await asyncio.sleep(MIN_EVENT_INTERVAL)

    async def _next_cycle(self, cycle: int) -> bool:
        """Wait for a cycle or the end; False when neither came within a heartbeat."""
        awaitables = (self._source.decisions.cycle_after(cycle), self._closing.wait())
        tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
        try:
            done, _ = await asyncio.wait(
                tasks, timeout=HEARTBEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for task in tasks:
                task.cancel()
        return bool(done)

    def _view(self) -> ClusterView:
        view = self._source.view()
        if view is None:
            raise web.HTTPServiceUnavailable(text="no cycle has run here yet\n")
        return view


def _tag(cycle: int) -> str:
    return f'"{PROCESS_ID}-{cycle}"'


def _event(decision: Decision) -> bytes:
    name = f"{PROCESS_ID}-{decision.number}".encode()
    return b"id: %s\nevent: decision\ndata: %s\n\n" % (name, encode(decision))


def _last_sent(start: str, newest: int) -> int:
    """The number in an event's id; 0 if the id is of an earlier process."""
    process, _, number = start.rpartition("-")
    return min(_parse_integer(number), newest) if process in ("", PROCESS_ID) else 0


def _parse_integer(text: str) -> int:
    """A whole number of a query; raises HTTPBadRequest for any other text and for a huge one."""
    if not (text.isascii() and text.isdecimal()) or len(text) > MAX_DIGITS:
        shown = printable(text[:40]) + ("…" if len(text) > 40 else "")
        problem = f'expected a whole number of at most {MAX_DIGITS} digits, not "{shown}"'
        raise web.HTTPBadRequest(text=f"{problem}\n")
    return int(text)


def _parse_flag(query: Mapping[str, str], name: str) -> bool:
    """Whether a query says true, as it does by default; raises HTTPBadRequest for other texts."""
    text = query.get(name, "true")
    if text not in ("true", "false"):
        shown = printable(text[:40])
        raise web.HTTPBadRequest(text=f'{name} must be true or false, not "{shown}"\n')
    return text == "true"


def _json(request: web.Request, body: bytes, headers: dict[str, str] | None = None) -> web.Response:
    response = web.Response(
        body=body,
        content_type="application/json",
        headers={"Cache-Control": "no-cache", **(headers or {})},
    )
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        response.enable_compression(web.ContentCoding.gzip)
    return response
