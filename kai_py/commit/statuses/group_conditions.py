"""Conditions on group objects of other APIs: only our own condition types are written.

Other conditions stay as they are. The transition time of a condition changes with its status.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kai_py.api.records.unstructured import Unstructured
from kai_py.api.times import format_time
from kai_py.commit.api_access import preconditions
from kai_py.commit.eviction import DISRUPTION_TARGET, PREEMPTION_BY_SCHEDULER
from kai_py.plan.plan import Plan
from kai_py.snapshot.gangs import Gang


@dataclass(frozen=True, slots=True)
class DesiredCondition:
    """A condition without its transition time."""

    status: str
    reason: str
    message: str = ""


DesiredConditions = Mapping[str, DesiredCondition | None]
"""Desired conditions by type; None removes the condition."""


def condition_statuses(known: Unstructured) -> dict[str, str]:
    """Status by condition type, as on the object."""
    return {each["type"]: each.get("status", "") for each in _conditions_of(known)}


def conditions_patch(
    known: Unstructured, desired: DesiredConditions, now: datetime
) -> dict[str, Any] | None:
    """The merge patch of the status, or None if the object is up to date."""
    current = {each["type"]: each for each in _conditions_of(known)}
    conditions = dict(current)
    for kind, condition in desired.items():
        if condition is None:
            conditions.pop(kind, None)
        else:
            conditions[kind] = _condition(kind, condition, current.get(kind), now)
    if conditions == current:
        return None
    return {"metadata": preconditions(known), "status": {"conditions": list(conditions.values())}}


def disruption_condition(known: Unstructured, reason: str) -> DesiredConditions:
    """DisruptionTarget while a gang is evicted; afterwards it is removed if we wrote it."""
    if reason:
        return {DISRUPTION_TARGET: DesiredCondition("True", PREEMPTION_BY_SCHEDULER, reason)}
    is_ours = any(
        each["type"] == DISRUPTION_TARGET and each.get("reason") == PREEMPTION_BY_SCHEDULER
        for each in _conditions_of(known)
    )
    return {DISRUPTION_TARGET: None} if is_ours else {}


class DisruptionReasons:
    """Eviction reasons by gang, kept until the gang runs again or is deleted."""

    def __init__(self) -> None:
        """Start empty."""
        self._reasons: dict[str, str] = {}

    def update(self, plan: Plan, gangs: Iterable[Gang]) -> Mapping[str, str]:
        """Apply a plan for ``gangs``; returns all reasons by gang key."""
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
    content = {"status": desired.status, "reason": desired.reason, "message": desired.message}
    if current is None or current.get("status") != desired.status:
        timestamp = format_time(now)
        return {"type": kind, "lastTransitionTime": timestamp, **content}
    return {**current, **content}
