"""Suggestions: changes that would let a pending gang start, for people and programs.

A suggestion is an ordered list of steps, each one write to the API (or nodes to add, which takes
the cluster's operator). The text is for people; the steps say the same in full.
"""

import json
import shlex
from enum import StrEnum
from typing import Any

from msgspec import Struct


class Verb(StrEnum):
    """Kind of write of a step."""

    CREATE = "create"
    PATCH = "patch"
    REPLACE = "replace"
    """Delete the object with all it owns, and create another one of its name."""
    DELETE = "delete"
    ADD_NODES = "addNodes"


class SuggestionStep(Struct, frozen=True, kw_only=True):
    """One write to one object.

    ``patch`` is a JSON merge patch, ``document`` the object to create. Of nodes to add, ``name`` is
    the node that is the template and ``count`` their number.
    """

    verb: Verb
    api_version: str
    kind: str
    name: str
    namespace: str = ""
    patch: dict[str, Any] | None = None
    document: dict[str, Any] | None = None
    count: int = 0

    @property
    def command(self) -> str:
        """The equivalent kubectl command; empty for a step with a document or nodes."""
        # Empty for the core group, whose apiVersion has no slash.
        group = self.api_version.rpartition("/")[0]
        target = f"{self.kind.lower()}.{group}" if group else self.kind.lower()
        flags = f" -n {shlex.quote(self.namespace)}" if self.namespace else ""
        if self.verb is Verb.PATCH:
            patch = shlex.quote(json.dumps(self.patch, separators=(",", ":")))
            return f"kubectl patch {target} {shlex.quote(self.name)}{flags} --type merge -p {patch}"
        if self.verb is Verb.DELETE:
            return f"kubectl delete {target} {shlex.quote(self.name)}{flags}"
        return ""


class NoAnswerError(RuntimeError):
    """No answer to the question for a suggestion or a simulation."""


class InvalidQuestionError(NoAnswerError):
    """The question names something that does not exist, or is malformed."""


class QueueChange(Struct, frozen=True):
    """GPUs of a queue without and with a change."""

    queue: str
    fair_share: tuple[float, float]
    allocated: tuple[float, float]


class Suggestion(Struct, frozen=True):
    """Steps with which the gang starts in a simulation, and their other effects."""

    text: str
    steps: tuple[SuggestionStep, ...]
    evicts: tuple[str, ...] = ()
    """Gangs that lose pods."""
    starts: tuple[str, ...] = ()
    """Gangs that start, this one among them."""
    stops: tuple[str, ...] = ()
    """Gangs that no longer run."""
    effects: tuple[tuple[str, str], ...] = ()
    """Gangs that lose pods, each with what that does to its workload, as a clause."""
    queues: tuple[QueueChange, ...] = ()
    """Queues whose allocation or fair share changes."""


class SuggestionSearch(Struct, frozen=True):
    """The result of a search for suggestions; ``is_finished``: before its time was up."""

    found: tuple[Suggestion, ...]
    is_finished: bool = True
