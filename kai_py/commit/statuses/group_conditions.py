"""Conditions of group objects that are not ours: only what we say of them is written.

Conditions of others stay as they are. The time of a condition moves when its status does.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kai_py.api.records.document import Document
from kai_py.api.timestamp import timestamp
from kai_py.commit.eviction import DISRUPTION_TARGET, PREEMPTED
from kai_py.commit.patches import preconditions
from kai_py.plan.plan import Plan
from kai_py.snapshot.gangs import Gang


@dataclass(frozen=True, slots=True)
class Statement:
    """A condition without its time."""

    status: str
    reason: str
    message: str = ""


Statements = Mapping[str, Statement | None]
"""What a condition of this type must say; None takes it away, if it is of ours."""


def statuses_of(known: Document) -> dict[str, str]:
    """Status by type of condition, as the object has them."""
    return {each["type"]: each.get("status", "") for each in _stated(known)}


def conditions_patch(known: Document, wanted: Statements, now: datetime) -> dict[str, Any] | None:
    """The merge patch of the status, or None if the object says it already."""
    stated = {each["type"]: each for each in _stated(known)}
    conditions = dict(stated)
    for kind, statement in wanted.items():
        if statement is None:
            conditions.pop(kind, None)
        else:
            conditions[kind] = _condition(kind, statement, stated.get(kind), now)
    if conditions == stated:
        return None
    return {"metadata": preconditions(known), "status": {"conditions": list(conditions.values())}}


def disruption(known: Document, why: str) -> Statements:
    """DisruptionTarget while a gang is evicted; one that we wrote before goes afterwards."""
    if why:
        return {DISRUPTION_TARGET: Statement("True", PREEMPTED, why)}
    ours = any(
        each["type"] == DISRUPTION_TARGET and each.get("reason") == PREEMPTED
        for each in _stated(known)
    )
    return {DISRUPTION_TARGET: None} if ours else {}


class Disrupted:
    """Why gangs are evicted, by key: from the eviction until they run again or are gone."""

    def __init__(self) -> None:
        """Start empty."""
        self._reasons: dict[str, str] = {}

    def update(self, plan: Plan, gangs: Iterable[Gang]) -> Mapping[str, str]:
        """Take in a plan for ``gangs``."""
        evicted = {each.gang: each.reason for each in plan.evictions}
        kept = {gang.key for gang in gangs if not gang.is_satisfied or gang.key in evicted}
        reasons = self._reasons | evicted
        self._reasons = {key: reasons[key] for key in reasons if key in kept}
        return self._reasons


def _stated(known: Document) -> list[dict[str, Any]]:
    return known.content.get("status", {}).get("conditions") or []


def _condition(
    kind: str, wanted: Statement, stated: Mapping[str, Any] | None, now: datetime
) -> dict[str, Any]:
    said = {"status": wanted.status, "reason": wanted.reason, "message": wanted.message}
    if stated is None or stated.get("status") != wanted.status:
        moment = timestamp(now)
        return {"type": kind, "lastTransitionTime": moment, **said}
    return {**stated, **said}
