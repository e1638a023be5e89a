"""Read-only JSON API under /v1.

    /v1/state                       queues, domains of nodes, pending gangs
    /v1/nodes?domain=&offset=&limit=  the nodes of a domain with their pods and devices; with
                                    ``node=`` the page that has this node
    /v1/gangs?queue=&search=&limit=  running gangs, the largest first
    /v1/explain/SUBJECT/NAME?suggestions=&seconds=&stream=  gang, pod, job, claim or queue: why it
                                    is pending or where it runs, suggestions, and its decisions
                                    (of the last seconds); as lines while they are found
                                    (``http_explanations``)
    /v1/what-if?set=&add=&add-nodes=&drain=&remove=&until-placed=  simulated effect of changes;
                                    ``add``: objects (``api.sent_objects``)
    /v1/node-kinds                  kinds of nodes, as templates for nodes to add
    /v1/decisions?since=&seconds=   the last decisions: after a number, or of the last seconds
    /v1/history                     GPUs of the queues over time
    /v1/events?since=               server-sent events ``decision`` and ``cycle``; after a number
                                    or an event's id
    /v1/plan                        the last plan
    /v1/replica                     the replica that was asked, and which leads
    /v1/list/gangs|queues|devices   the rows of ``kai-py gangs``, ``queues``, ``devices``
    /v1/queues/NAME                 a queue: what it has, is entitled to, borrows, and its gangs

A reader with rights in some namespaces only (``http_access``) gets what it may see, and the others
as sums; ``namespace=`` names the namespaces in question. Records are built on request, in a thread,
and once per cycle, at no cost without readers. Before the first cycle the answer is 503. A standby
replica passes requests on (``http_forward``).
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import msgspec
from aiohttp import web
from msgspec import Struct
from msgspec.structs import replace

from kai_py.api.choices import Subject
from kai_py.api.texts import printable
from kai_py.observe.cluster_state import ClusterState, cluster_state
from kai_py.observe.cluster_view import ClusterView
from kai_py.observe.decision_log import DecisionLog, decisions_about
from kai_py.observe.explanation import explain_subject
from kai_py.observe.gang_rows import gang_page
from kai_py.observe.http_answers import (
    READER,
    json_response,
    parse_flag,
    parse_integer,
    visible_to_reader,
)
from kai_py.observe.http_explanations import Suggest, stream_explanations, with_suggestions
from kai_py.observe.http_forward import REPLICA_PATH, Replica
from kai_py.observe.http_lists import LISTS, queue_page
from kai_py.observe.kept_history import ShareHistory
from kai_py.observe.node_details import MAX_NODES, node_page, place_of
from kai_py.observe.suggestion import InvalidQuestionError, NoAnswerError
from kai_py.observe.tenant_answers import (
    as_json,
    shows_node,
    tenant_comparison,
    tenant_nodes,
    tenant_samples,
    tenant_state,
)
from kai_py.observe.tenant_questions import (
    ReaderLimits,
    check_changes,
    check_subject,
    namespaces_of,
    not_found_text,
)
from kai_py.observe.visibility import Visibility
from kai_py.snapshot.node_kinds import node_kinds
from kai_py.watch.errors import ApiError

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 15.0
MIN_EVENT_INTERVAL = 0.25
MAX_LISTENERS, MAX_LISTENERS_OF_READER = 64, 16
MAX_QUESTIONS, MAX_QUESTIONS_OF_READER = 16, 2
"""Simulations that are waited for."""
MAX_EXPLAINED = 64
"""Most gangs in one answer, the first ones of a queue."""
BUILD_PAUSE_FACTOR = 3.0
"""Pause after building a state, as a multiple of the time it took."""
PROCESS_ID = uuid.uuid4().hex[:8]
"""Distinguishes the cycles and decisions of this process from those of an earlier one."""
encode = msgspec.json.Encoder().encode


class ApiSource(Struct, frozen=True):
    """Sources of the answers."""

    view: Callable[[], ClusterView | None]
    decisions: DecisionLog
    shares: ShareHistory
    suggest: Suggest | None = None
    """Suggestions for a gang to start; None where nothing can be simulated."""
    what_if: Callable[[tuple[tuple[str, str], ...]], Awaitable[object]] | None = None
    """The effect of changes, given as (kind, text); None where nothing can be simulated."""
    replica: Callable[[], Replica] = Replica
    """This replica and the one that leads."""


class Api:
    """The request handlers; ``close`` ends the open streams."""

    def __init__(self, source: ApiSource) -> None:
        self._source = source
        self._questions = ReaderLimits("questions", MAX_QUESTIONS, MAX_QUESTIONS_OF_READER)
        self._streams = ReaderLimits("event streams", MAX_LISTENERS, MAX_LISTENERS_OF_READER)
        self._state: tuple[int, ClusterState | None, bytes] = (0, None, b"")
        self._build_lock = asyncio.Lock()
        self._paused_until = 0.0
        self._closing = asyncio.Event()

    def routes(self) -> list[web.RouteDef]:
        """Routes of the API."""
        # Without HEAD: an answer that is sent in parts would be sent in spite of it.
        get = partial(web.get, allow_head=False)
        return [
            get("/v1/state", self._get_state),
            get("/v1/nodes", self._nodes),
            get("/v1/gangs", self._gangs),
            get("/v1/explain/{subject}/{name:.+}", self._explain),
            get("/v1/what-if", self._what_if),
            get("/v1/node-kinds", self._node_kinds),
            get("/v1/decisions", self._decisions),
            get("/v1/history", self._history),
            get("/v1/events", self._events),
            get("/v1/plan", self._plan),
            get(REPLICA_PATH, self._replica),
            get("/v1/list/{kind}", self._list),
            get("/v1/queues/{name}", self._queue),
        ]

    async def close(self, _app: web.Application) -> None:
        """End the streams."""
        self._closing.set()

    async def _get_state(self, request: web.Request) -> web.Response:
        view = self._view()
        seen = await visible_to_reader(request, view)
        tag = _tag(view.number)
        # What a reader with limited rights sees may change without a new cycle.
        if seen is None and request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"ETag": tag})
        async with self._build_lock:
            number, state, body = await self._newest_state()
        if seen is None:
            return json_response(request, body, {"ETag": _tag(number)})
        own = await asyncio.to_thread(lambda: encode(tenant_state(state, view, seen)))
        return json_response(request, own)

    async def _newest_state(self) -> tuple[int, ClusterState, bytes]:
        """The last cycle's state; at most one is built at a time, with pauses to bound the load."""
        loop = asyncio.get_running_loop()
        number, state, body = self._state
        if state is not None and number == self._view().number:
            return number, state, body
        # The caller holds the lock: requests that arrive meanwhile share the next state.
        await asyncio.sleep(max(self._paused_until - loop.time(), 0.0))
        view, started = self._view(), loop.time()
        state = await asyncio.to_thread(cluster_state, view)
        body = await asyncio.to_thread(encode, state)
        self._paused_until = loop.time() + BUILD_PAUSE_FACTOR * (loop.time() - started)
        self._state = view.number, state, body
        return view.number, state, body

    async def _nodes(self, request: web.Request) -> web.Response:
        view, query = self._view(), request.query
        offset = parse_integer(query.get("offset", "0"))
        limit = parse_integer(query.get("limit", "64"))
        domain = query.get("domain", "")
        seen = await visible_to_reader(request, view)
        shows = shows_node(view, seen)
        if "node" in query:
            found = await asyncio.to_thread(place_of, view, query["node"], shows)
            if found is None:
                raise web.HTTPNotFound(text="no such node\n")
            domain, place = found
            offset = place - place % max(limit, 1)
        page = await asyncio.to_thread(
            lambda: node_page(view, domain, offset=offset, limit=min(limit, MAX_NODES), shows=shows)
        )
        if page is None:
            raise web.HTTPNotFound(text=f'no such domain: "{domain}"\n')
        if seen is not None:
            page = replace(page, nodes=tuple(tenant_nodes(page.nodes, seen)))
        return json_response(request, encode(page))

    async def _gangs(self, request: web.Request) -> web.Response:
        view, query = self._view(), request.query
        queue, search = query.get("queue", ""), query.get("search", "")
        limit = parse_integer(query.get("limit", "50"))
        seen = await visible_to_reader(request, view)
        sees = seen.sees if seen is not None else lambda _gang: True
        page = await asyncio.to_thread(
            lambda: gang_page(view, queue=queue, search=search, limit=limit, sees=sees)
        )
        return json_response(request, encode(page))

    async def _explain(self, request: web.Request) -> web.StreamResponse:
        view, name = self._view(), request.match_info["name"]
        try:
            subject = Subject(request.match_info["subject"])
        except ValueError:
            known = ", ".join(Subject)
            raise web.HTTPNotFound(text=f"known subjects: {known}\n") from None
        seen = await visible_to_reader(request, view, namespaces_of(subject, name))
        if seen is not None:
            check_subject(seen, subject, name)
        query = request.query
        since = view.snapshot.now - parse_integer(query["seconds"]) if "seconds" in query else 0.0
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
            ends=view.ends,
        )
        if not explanations:
            raise web.HTTPNotFound(text=not_found_text(view, seen, subject, name))
        wants = parse_flag(query, "suggestions")
        suggest = self._questions.limited(self._source.suggest, request) if wants else None
        if parse_flag(query, "stream", default=False):
            return await stream_explanations(request, explanations, suggest, seen)
        explanations = await with_suggestions(explanations, suggest)
        return json_response(request, _encoded_for(seen, explanations))

    async def _what_if(self, request: web.Request) -> web.Response:
        view = self._view()
        changes = tuple(pair for pair in request.query.items() if pair[0] != "namespace")
        removed = [text.partition("/")[0] for kind, text in changes if kind == "remove"]
        seen = await visible_to_reader(request, view, removed)
        if seen is not None:
            try:
                check_changes(view, seen, changes)
            except ValueError as error:
                raise web.HTTPBadRequest(text=f"add: {printable(str(error))}\n") from None
        if self._source.what_if is None:
            raise web.HTTPNotFound(text="simulation is disabled\n")
        try:
            with self._questions.counted(request):
                answer = await self._source.what_if(changes)
        except InvalidQuestionError as error:
            raise web.HTTPBadRequest(text=f"{printable(str(error))}\n") from None
        except (ApiError, NoAnswerError) as error:
            log.warning("what-if failed: %s", error)
            raise web.HTTPServiceUnavailable(text=f"{printable(str(error))}\n") from None
        if seen is not None:
            answer = tenant_comparison(as_json(answer), seen)
        return json_response(request, encode(answer))

    async def _node_kinds(self, request: web.Request) -> web.Response:
        kinds = await asyncio.to_thread(node_kinds, self._view().snapshot)
        return json_response(request, encode(kinds))

    async def _decisions(self, request: web.Request) -> web.Response:
        query, log = request.query, self._source.decisions
        seen = await self._visible(request)
        if "seconds" in query:
            view = self._view()
            decisions = log.made_after(view.snapshot.now - parse_integer(query["seconds"]))
        else:
            decisions = log.since(parse_integer(query.get("since", "0")))
        return json_response(request, await asyncio.to_thread(_encoded_for, seen, decisions))

    async def _history(self, request: web.Request) -> web.Response:
        samples, seen = self._source.shares.samples, await self._visible(request)
        if seen is not None:
            samples = tuple(tenant_samples(samples, seen))
        return json_response(request, encode(samples))

    async def _plan(self, request: web.Request) -> web.Response:
        view = self._view()
        if await visible_to_reader(request, view) is not None:
            raise web.HTTPForbidden(text="the plan covers all namespaces\n")
        return json_response(request, encode(view.plan))

    async def _replica(self, request: web.Request) -> web.Response:
        return json_response(request, encode(self._source.replica()))

    async def _list(self, request: web.Request) -> web.Response:
        view, make = self._view(), LISTS.get(request.match_info["kind"])
        if make is None:
            raise web.HTTPNotFound(text=f"known lists: {', '.join(LISTS)}\n")
        seen = await visible_to_reader(request, view)
        return json_response(request, await asyncio.to_thread(lambda: encode(make(view, seen))))

    async def _queue(self, request: web.Request) -> web.Response:
        view, name = self._view(), request.match_info["name"]
        seen = await visible_to_reader(request, view)
        page = await asyncio.to_thread(queue_page, view, name, seen)
        if page is None:
            raise web.HTTPNotFound(text=not_found_text(view, seen, Subject.QUEUE, name))
        return json_response(request, encode(page))

    async def _visible(self, request: web.Request) -> Visibility | None:
        """The parts of decisions and history that the reader may see, also before a first cycle."""
        return await visible_to_reader(request, self._view()) if READER in request else None

    async def _events(self, request: web.Request) -> web.StreamResponse:
        # A browser that reconnects sends the header, and the original query with it.
        start = request.headers.get("Last-Event-ID") or request.query.get("since")
        log = self._source.decisions
        last_sent = log.newest if start is None else _last_sent(start, log.newest)
        try:
            with self._streams.counted(request):
                return await self._stream_events(request, last_sent)
        except NoAnswerError as error:
            raise web.HTTPServiceUnavailable(text=f"{error}\n") from None

    async def _stream_events(self, request: web.Request, last_sent: int) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )
        await response.prepare(request)
        # Otherwise the listener goes away, or what it may see is not known any more.
        with suppress(ConnectionResetError, web.HTTPException):
            await self._stream(request, response, last_sent)
        return response

    async def _stream(self, request: web.Request, response: web.StreamResponse, sent: int) -> None:
        log, cycle = self._source.decisions, -1
        while not self._closing.is_set():
            if log.cycle == cycle:
                if not await self._next_cycle(cycle):
                    await response.write(b": still here\n\n")
                continue
            cycle = log.cycle
            new_decisions = log.since(sent)
            sent = new_decisions[-1].number if new_decisions else sent
            # Reviewed again for each cycle: a right may be withdrawn while the stream is open.
            shown = _shown(await self._visible(request), new_decisions)
            cycle_event = f'event: cycle\ndata: {{"cycle":{cycle}}}\n\n'.encode()
            await response.write(b"".join(map(_event, as_json(shown))) + cycle_event)
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


def _shown(seen: Visibility | None, records: Sequence[object]) -> object:
    """The records without what the reader may not see."""
    return records if seen is None else seen.redacted(as_json(records))


def _encoded_for(seen: Visibility | None, records: Sequence[object]) -> bytes:
    return encode(_shown(seen, records))


def _tag(cycle: int) -> str:
    return f'"{PROCESS_ID}-{cycle}"'


def _event(decision: Mapping[str, object]) -> bytes:
    name = f"{PROCESS_ID}-{decision['number']}".encode()
    return b"id: %s\nevent: decision\ndata: %s\n\n" % (name, encode(decision))


def _last_sent(start: str, newest: int) -> int:
    """The number in an event's id; 0 if the id is of an earlier process."""
    process, _, number = start.rpartition("-")
    return min(parse_integer(number), newest) if process in ("", PROCESS_ID) else 0
