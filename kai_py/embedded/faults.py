"""Fault injection into requests.

A fault is an effect on the next n requests that match. Faults are tried in the order in which they
were added; the first that matches and is not used up takes effect.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from kai_py.embedded.routing import Target


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
