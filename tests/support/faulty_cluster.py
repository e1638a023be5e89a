"""An embedded cluster that injects faults into requests over HTTP.

A fault is an effect on the next n requests that match. Faults are tried in the order in which they
were added; the first that matches and is not used up takes effect.
"""

import asyncio
from dataclasses import dataclass, field
from typing import TypeAlias

from aiohttp import web

from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.cluster import EmbeddedCluster, HttpFront, WatchStream
from kai_py.embedded.errors import RequestError
from kai_py.embedded.routing import Target, parse_path, verb_of


@dataclass(frozen=True, kw_only=True)
class Refuse:
    """Answer with an error instead of doing anything."""

    code: int = 500
    reason: str = "InternalError"
    message: str = "injected fault"
    retry_after: int | None = None


@dataclass(frozen=True, kw_only=True)
class Delay:
    """Wait (real time) before serving the request as usual."""

    seconds: float


@dataclass(frozen=True)
class DropRequest:
    """Close the connection without doing anything."""


@dataclass(frozen=True)
class DropReply:
    """Execute the request, then close the connection without an answer."""


@dataclass(frozen=True, kw_only=True)
class CutWatch:
    """Close a watch after `events` events, `torn` in the middle of the next line."""

    events: int
    torn: bool = False


Effect: TypeAlias = Refuse | Delay | DropRequest | DropReply | CutWatch


@dataclass(kw_only=True)
class Fault:
    """An effect and the requests it acts on; a matcher left None matches every request.

    `verb` is get, list, watch, create, update, patch, delete or deletecollection, `resource` a name
    such as `resourceclaims.resource.k8s.io`, `subresource` may be "" for the main endpoint. `times`
    counts down; None acts forever. The first `skip` matches are let through.
    """

    effect: Effect
    times: int | None = 1
    skip: int = 0
    verb: str | None = None
    resource: str | None = None
    subresource: str | None = None
    name: str | None = None
    hits: int = field(default=0, init=False)

    def matches(self, verb: str, target: Target) -> bool:
        """Whether the fault matches this request."""
        actual = (verb, target.resource.group_resource, target.subresource, target.name)
        matchers = (self.verb, self.resource, self.subresource, self.name)
        return all(
            matcher is None or matcher == value
            for matcher, value in zip(matchers, actual, strict=True)
        )


class Faults:
    """The active faults."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def add(self, fault: Fault) -> Fault:
        """Activate a fault; its `hits` counts how often it acted."""
        self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """Remove all faults."""
        self._faults.clear()

    def effect_on(self, verb: str, target: Target) -> Effect | None:
        """The effect on this request, if any, and count it as a hit of the fault."""
        for fault in self._faults:
            if not fault.matches(verb, target) or fault.times == fault.hits:
                continue
            if fault.skip > 0:
                fault.skip -= 1
                continue
            fault.hits += 1
            return fault.effect
        return None


CUT = web.RequestKey("cut", CutWatch)


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


class FaultyStream(WatchStream):
    """A watch that may be cut."""

    async def write(self, lines: list[bytes]) -> None:
        """Write no further than the cut."""
        cut: CutWatch | None = self.request.get(CUT)
        if cut is None:
            await super().write(lines)
            return
        whole = cut.events - self.sent
        torn = [line[: len(line) // 2] for line in lines[whole : whole + 1] if cut.torn]
        await super().write([*lines[:whole], *torn])
        if len(lines) > whole or (len(lines) == whole and not cut.torn):
            await asyncio.sleep(0)
            _abort(self.request)
            raise ConnectionError


class FaultyFront(HttpFront):
    """An HTTP server that injects faults."""

    stream_type = FaultyStream

    def __init__(self, api: ApiServer) -> None:
        super().__init__(api)
        self.faults = Faults()

    async def handle_resource(self, request: web.Request) -> web.StreamResponse:
        """Answer a request, with the effect of a fault if one matches."""
        target = parse_path(request.path, self.api.registry)
        effect = self.faults.effect_on(verb_of(request.method, target, request.query), target)
        match effect:
            case Refuse():
                raise RequestError(
                    effect.code, effect.reason, effect.message, retry_after=effect.retry_after
                )
            case Delay():
                await asyncio.sleep(effect.seconds)
            case DropRequest():
                _abort(request)
                raise asyncio.CancelledError
            case CutWatch():
                request[CUT] = effect
        response = await super().handle_resource(request)
        if isinstance(effect, DropReply):
            _abort(request)
            raise asyncio.CancelledError
        return response


class FaultyCluster(EmbeddedCluster):
    """A cluster that is served with faults."""

    front_type = FaultyFront
    front: FaultyFront

    @property
    def faults(self) -> Faults:
        """The faults injected into requests."""
        return self.front.faults
