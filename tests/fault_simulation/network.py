"""The way between processes and the API server: latency, loss, repetition, cuts.

A ``Link`` is the transport of one process. Requests and answers are messages of the loop; what
becomes of each is decided by the faults that are active when it is sent.
"""

from collections import deque
from contextlib import asynccontextmanager

from kai_py.watch.errors import Malformed, Status, TimedOut, Unreachable, from_status
from tests.fault_simulation.loop import Process, SimulatedLoop
from tests.fault_simulation.schedule import Effect, Fault

TIMEOUT_SECONDS = 30.0
BOOKMARK_SECONDS = 60.0
GARBAGE = b"<html>502 Bad Gateway</html>"
REASONS = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 410: "Expired"}


class ActiveFaults:
    """The faults that act now; ``begin`` and ``end`` are called by the simulation."""

    def __init__(self):
        self.active: list[Fault] = []

    def begin(self, fault: Fault) -> None:
        self.active.append(fault)

    def end(self, fault: Fault) -> None:
        self.active.remove(fault)

    def on_call(self, process: str, verb: str, kind: str, chance) -> Fault | None:
        for fault in self.active:
            is_meant = fault.effect in CALL_EFFECTS and _matches(fault, process, verb, kind)
            if is_meant and (fault.share >= 1.0 or chance.random() < fault.share):
                return fault
        return None

    def holds(self, process: str, kind: str) -> bool:
        """Whether the watch of a kind is silent now."""
        return any(
            (fault.effect is Effect.HOLD_WATCH and _matches(fault, process, "", kind))
            or (fault.effect is Effect.PARTITION and fault.process in ("", process))
            for fault in self.active
        )

    def has(self, effect: Effect, process: str = "") -> bool:
        return any(f.effect is effect and f.process in ("", process) for f in self.active)


CALL_EFFECTS = frozenset(
    (
        Effect.LOSE_REQUEST,
        Effect.LOSE_ANSWER,
        Effect.REPEAT,
        Effect.LATE,
        Effect.SLOW,
        Effect.ERROR,
        Effect.ERROR_AFTER,
    )
)


def _matches(fault: Fault, process: str, verb: str, kind: str) -> bool:
    return (
        fault.process in ("", process)
        and (not fault.verb or fault.verb == verb)
        and (not fault.kind or fault.kind == kind)
    )


class Network:
    """Carries the messages of all processes; ``server`` answers them."""

    def __init__(self, loop: SimulatedLoop, server, chance, latency: float, trace) -> None:
        self.loop = loop
        self.server = server
        self.faults = ActiveFaults()
        self.streams: dict[_Stream, None] = {}
        self.on_call = lambda _verb, _kind: None
        self._chance = chance
        self._latency = latency
        self._trace = trace

    def link(self, process: Process) -> "Link":
        """The transport of a process."""
        return Link(self, process)

    def delay(self) -> float:
        return self._latency * self._chance.uniform(0.1, 2.0)

    def cut(self, fault: Fault) -> None:
        """Cut watches, as the fault says."""
        for stream in tuple(self.streams):
            if _matches(fault, stream.process.name, "", stream.kind):
                stream.cut(fault.effect)

    def drop(self, process: Process) -> None:
        """Forget the connections of a process that has ended."""
        for stream in tuple(self.streams):
            if stream.process is process:
                stream.close()

    def catch_up(self) -> None:
        """Let watches that were held back send what they have."""
        for stream in tuple(self.streams):
            stream.wake()

    def post(self, process: Process, call, reply, limit: float) -> None:
        """Send a request; ``reply`` is called with its answer or failure, at most once."""
        self.on_call(call.verb, call.kind)
        fault = self.faults.on_call(process.name, call.verb, call.kind, self._chance)
        effect = fault.effect if fault else None
        self._trace("call", process.name, str(call), effect or "")
        if self.faults.has(Effect.PARTITION, process.name) or effect is Effect.LOSE_REQUEST:
            if effect is Effect.LOSE_REQUEST and self._chance.random() < 0.5:
                self._later(self.delay(), reply, Unreachable(f"{call}: connection reset"))
            return
        wait = self.delay()
        if effect is Effect.LATE:
            wait += self._chance.uniform(0.5, 6.0) * limit
        if effect is Effect.SLOW:
            wait += self._chance.uniform(0.0, 15.0)
        self._later(wait, self._arrive, call, reply, fault)
        if effect is Effect.REPEAT:
            again = wait + self._chance.uniform(0.0, 20.0)
            self._later(again, self._arrive, call, lambda _answer: None, None)

    def _arrive(self, call, reply, fault: Fault | None) -> None:
        effect = fault.effect if fault else None
        if self.faults.has(Effect.OUTAGE):
            self._later(self.delay(), reply, Unreachable(f"{call}: connection refused"))
            return
        answer = None
        if effect is not Effect.ERROR:
            answer = self.server.answer(call)
        if isinstance(answer, _Stream) and answer.process.dead:
            answer.close()
            return
        if effect in (Effect.ERROR, Effect.ERROR_AFTER):
            answer = _injected(call, fault.error)
        if effect is Effect.LOSE_ANSWER:
            if self._chance.random() < 0.5:
                self._later(self.delay(), reply, Unreachable(f"{call}: connection reset"))
            return
        # An answer on its way when the server goes away is lost as well.
        self._later(self.delay(), self._deliver, call, reply, answer)

    def _deliver(self, call, reply, answer) -> None:
        if self.faults.has(Effect.OUTAGE):
            answer = Unreachable(f"{call}: connection reset")
        reply(answer)

    def _later(self, delay, callback, *arguments) -> None:
        self.loop.call_later(delay, callback, *arguments, context=self.server.process.context)


def _injected(call, code: int):
    if not code:
        return GARBAGE
    reason = REASONS.get(code, "InternalError")
    return from_status(str(call), Status(code=code, reason=reason, message="injected"))


class Link:
    """The transport of one process: ``kai_py.watch.transport.Transport``."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network = network
        self._process = process

    async def send(self, call, *, timeout_seconds=None) -> bytes:
        loop = self._network.loop
        answered = loop.create_future()
        limit = timeout_seconds or TIMEOUT_SECONDS

        def reply(answer) -> None:
            if not answered.done():
                answered.set_result(answer)

        late = loop.call_later(limit, reply, TimedOut(f"{call}: no answer in time"))
        self._network.post(self._process, call, reply, limit)
        try:
            answer = await answered
        finally:
            late.cancel()
        if isinstance(answer, Exception):
            raise answer
        return answer

    @asynccontextmanager
    async def stream(self, call, *, idle):
        opened = self._network.loop.create_future()

        def reply(answer) -> None:
            if not opened.done():
                opened.set_result(answer)
            elif isinstance(answer, _Stream):
                answer.close()

        late = self._network.loop.call_later(30.0, reply, TimedOut(f"{call}: no answer in time"))
        opening = _Opening(self._network, self._process, call, idle)
        self._network.post(self._process, opening, reply, 30.0)
        try:
            answer = await opened
        finally:
            late.cancel()
            if not opened.done():
                opened.set_result(None)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, bytes):
            raise Malformed(f"{call}: no stream")
        try:
            yield answer
        finally:
            answer.close()


class _Opening:
    """The request for a watch."""

    verb = "watch"

    def __init__(self, network, process, call, idle) -> None:
        self.network, self.process, self.call, self.idle = network, process, call, idle
        self.kind = call.kind

    def __str__(self) -> str:
        return f"watch {self.call.path}"

    def open(self, watch, encode, seconds) -> "_Stream":
        return _Stream(self, watch, encode, seconds)


class _Stream:
    """One watch: the server's side and the client's."""

    def __init__(self, opening: _Opening, watch, encode, seconds: float) -> None:
        self.process, self.kind = opening.process, opening.kind
        self._call = opening.call
        self._network = opening.network
        self._watch, self._encode = watch, encode
        self._idle = opening.idle
        self._chunks: deque[bytes | Exception | None] = deque()
        self._waiter = None
        self._closed = False
        self._sending = False
        self._initial_end = opening.call.parameters.get("sendInitialEvents") == "true"
        self._stop_listening = watch.listen(self.wake)
        loop = self._network.loop
        context = self._network.server.process.context
        self._end = loop.call_later(seconds, self._finish, context=context)
        self._bookmark = loop.call_later(BOOKMARK_SECONDS, self._send_bookmark, context=context)
        self._last = loop.time()
        self._silence = loop.call_later(self._idle, self._check_silence, context=context)
        self._network.streams[self] = None
        self.wake()

    def __aiter__(self):
        return self

    async def __anext__(self) -> bytes:
        while not self._chunks:
            self._waiter = self._network.loop.create_future()
            await self._waiter
        chunk = self._chunks.popleft()
        if chunk is None:
            raise StopAsyncIteration
        if isinstance(chunk, Exception):
            raise chunk
        return chunk

    def wake(self) -> None:
        """Events have happened: send them after a while."""
        if self._sending or self._closed:
            return
        self._sending = True
        network = self._network
        network.loop.call_later(network.delay(), self._send, context=network.server.process.context)

    def cut(self, effect: Effect) -> None:
        """End the stream at once."""
        if effect is Effect.TEAR_WATCH:
            self._push(b'{"type":"MODIFIED","object":{"metadata":{"na')
        if effect is Effect.EXPIRE_WATCH:
            self._push(
                b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n'
            )
            self._push(None)
        else:
            self._push(Unreachable(f"watch {self._call.path}: connection reset"))
        self._end_sending()

    def close(self) -> None:
        """The client has gone."""
        self._end_sending()
        self._silence.cancel()

    def _send(self) -> None:
        self._sending = False
        if self._closed or self._is_held():
            return
        try:
            events = self._watch.poll()
        except Exception as refusal:
            self._push(self._encode.failure(refusal))
            self._finish()
            return
        lines = [self._encode(event) for event in events]
        if self._initial_end:
            self._initial_end = False
            lines.append(self._encode(self._watch.bookmark(initial_events_end=True)))
        if lines:
            self._push(b"".join(lines))

    def _send_bookmark(self) -> None:
        if not self._is_held():
            self._send()
            self._push(self._encode(self._watch.bookmark()))
        network = self._network
        self._bookmark = network.loop.call_later(
            BOOKMARK_SECONDS, self._send_bookmark, context=network.server.process.context
        )

    def _is_held(self) -> bool:
        return self._network.faults.holds(self.process.name, self.kind)

    def _finish(self) -> None:
        if not self._is_held():
            self._push(None)
        self._end_sending()

    def _end_sending(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._stop_listening()
        self._end.cancel()
        self._bookmark.cancel()
        self._network.streams.pop(self, None)

    def _check_silence(self) -> None:
        loop = self._network.loop
        left = self._last + self._idle - loop.time()
        if left <= 0:
            self._push(TimedOut(f"watch {self._call.path}: no answer in time"))
            self._end_sending()
            return
        context = self._network.server.process.context
        self._silence = loop.call_later(left, self._check_silence, context=context)

    def _push(self, chunk: bytes | Exception | None) -> None:
        self._last = self._network.loop.time()
        self._chunks.append(chunk)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
