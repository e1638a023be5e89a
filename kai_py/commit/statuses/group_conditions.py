"""Conditions of group objects that are not ours: only what we say of them is written.

Conditions of others stay as they are. The time of a condition moves when its status does.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kai_py.api.records.unstructured import Unstructured
from kai_py.api.timestamp import format_time
from kai_py.commit.eviction import DISRUPTION_TARGET, PREEMPTION_BY_SCHEDULER
from kai_py.commit.patches import preconditions
from kai_py.plan.plan import Plan
from kai_py.snapshot.gangs import Gang


@dataclass(frozen=True, slots=True)
class DesiredCondition:
    """A condition without its time."""

    status: str
    reason: str
    message: str = ""


DesiredConditions = Mapping[str, DesiredCondition | None]
"""What a condition of this type must say; None takes it away, if it is of ours."""


def condition_statuses(known: Unstructured) -> dict[str, str]:
    """Status by type of condition, as the object has them."""
    return {each["type"]: each.get("status", "") for each in _conditions_of(known)}


def conditions_patch(
    known: Unstructured, desired: DesiredConditions, now: datetime
) -> dict[str, Any] | None:
    """The merge patch of the status, or None if the object says it already."""
    stated = {each["type"]: each for each in _conditions_of(known)}
    conditions = dict(stated)
    for kind, statement in desired.items():
        if statement is None:
            conditions.pop(kind, None)
        else:
            conditions[kind] = _condition(kind, statement, stated.get(kind), now)
    if conditions == stated:
        return None
    return {"metadata": preconditions(known), "status": {"conditions": list(conditions.values())}}


def disruption_condition(known: Unstructured, reason: str) -> DesiredConditions:
    """DisruptionTarget while a gang is evicted; one that we wrote before goes afterwards."""
    if reason:
        return {DISRUPTION_TARGET: DesiredCondition("True", PREEMPTION_BY_SCHEDULER, reason)}
    ours = any(
        each["type"] == DISRUPTION_TARGET and each.get("reason") == PREEMPTION_BY_SCHEDULER
        for each in _conditions_of(known)
    )
    return {DISRUPTION_TARGET: None} if ours else {}


class DisruptionReasons:
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


def _conditions_of(known: Unstructured) -> list[dict[str, Any]]:
    return known.content.get("status", {}).get("conditions") or []


def _condition(
    kind: str, desired: DesiredCondition, current: Mapping[str, Any] | None, now: datetime
) -> dict[str, Any]:
    said = {"status": desired.status, "reason": desired.reason, "message": desired.message}
    if current is None or current.get("status") != desired.status:
        moment = format_time(now)
        return {"type": kind, "lastTransitionTime": moment, **said}
    return {**current, **said}
