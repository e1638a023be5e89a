"""Which change would let a waiting gang start, so that a program can make it?

A suggestion is a list of steps, each one write to the API (or nodes to add, which only whoever runs
the cluster can do), in their order. The text is for people; the steps say the same in full.
"""

import json
import shlex
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Verb(StrEnum):
    """What a step does."""

    CREATE = "create"
    PATCH = "patch"
    REPLACE = "replace"
    """Delete the object with all it owns, and create another one of its name."""
    DELETE = "delete"
    ADD_NODES = "addNodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestionStep:
    """One write to one object.

    ``patch`` is a JSON merge patch, ``document`` what is created. Of nodes to add, ``name`` is the
    node that they shall be like and ``count`` how many.
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
        """The kubectl command that does it; empty where it takes a document, or nodes."""
        group = self.api_version.rpartition("/")[0]
        target = f"{self.kind.lower()}.{group}" if group else self.kind.lower()
        where = f" -n {shlex.quote(self.namespace)}" if self.namespace else ""
        if self.verb is Verb.PATCH:
            patch = shlex.quote(json.dumps(self.patch, separators=(",", ":")))
            return f"kubectl patch {target} {shlex.quote(self.name)}{where} --type merge -p {patch}"
        if self.verb is Verb.DELETE:
            return f"kubectl delete {target} {shlex.quote(self.name)}{where}"
        return ""


class NoAnswerError(RuntimeError):
    """Nobody could find out what would help, or what would happen."""


class InvalidQuestionError(NoAnswerError):
    """What is asked about is not there, or not written as it should be."""


@dataclass(frozen=True, slots=True)
class QueueChange:
    """GPUs of a queue without and with a change."""

    queue: str
    fair_share: tuple[float, float]
    allocated: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Steps with which the gang starts, as was tried out, and what else comes of them."""

    text: str
    steps: tuple[SuggestionStep, ...]
    evicts: tuple[str, ...] = ()
    """Gangs that lose pods."""
    starts: tuple[str, ...] = ()
    """Gangs that start, this one among them."""
    ends: tuple[str, ...] = ()
    """Gangs that do not run any more."""
    queues: tuple[QueueChange, ...] = ()
    """Queues that hold or are entitled to another amount."""
