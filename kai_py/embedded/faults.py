"""How does the server misbehave on request?

A fault is an effect on the next n requests that match. Faults are tried in the order in which they
were added; the first that matches and is not used up acts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
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
    """Do what is asked, then close the connection without an answer."""


@dataclass(frozen=True, kw_only=True)
class CutWatch:
    """Close a watch after `events` events, `torn` in the middle of the next line."""

    events: int
    torn: bool = False


Effect: TypeAlias = Refuse | Delay | DropRequest | DropReply | CutWatch


@dataclass(kw_only=True)
class Fault:
    """An effect and the requests it acts on; a matcher left None matches every request.

    `verb` is get, list, watch, create, update, patch, delete or deletecollection, `resource` a
    name such as `resourceclaims.resource.k8s.io`, `subresource` may be "" for the main endpoint.
    `times` counts down; None acts for ever.
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
        """Say whether the fault is about this request."""
        asked = (verb, target.resource.group_resource, target.subresource, target.name)
        wanted = (self.verb, self.resource, self.subresource, self.name)
        return all(want is None or want == ask for want, ask in zip(wanted, asked, strict=True))


class Faults:
    """The faults in force and how often they acted."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def add(self, fault: Fault) -> Fault:
        """Put a fault in force; its `acted` tells later how often it acted."""
        self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """End all faults."""
        self._faults.clear()

    def effect_on(self, verb: str, target: Target) -> Effect | None:
        """Return what happens to this request, using up one occasion of the fault."""
        for fault in self._faults:
            if not fault.matches(verb, target) or fault.times == fault.hits:
                continue
            if fault.skip > 0:
                fault.skip -= 1
                continue
            fault.hits += 1
            return fault.effect
        return None
