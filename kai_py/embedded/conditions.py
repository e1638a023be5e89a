"""Conditions: set by type, with a new transition time only when the status changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kai_py.api.timestamp import format_time

if TYPE_CHECKING:
    from kai_py.embedded.documents import Json


def with_condition(status: Json, condition: Json, *, now: float) -> Json:
    """Return `status` with `condition` in the place of the one of its type."""
    conditions = list(status.get("conditions") or ())
    for index, present in enumerate(conditions):
        if present["type"] == condition["type"]:
            conditions[index] = _replaced(present, condition, now)
            return {**status, "conditions": conditions}
    conditions.append({**condition, "lastTransitionTime": format_time(now)})
    return {**status, "conditions": conditions}


def is_true(document: Json, condition_type: str) -> bool:
    """Whether the object's status has the condition with status True."""
    conditions = (document.get("status") or {}).get("conditions") or ()
    return any(each["type"] == condition_type and each["status"] == "True" for each in conditions)


def _replaced(present: Json, condition: Json, now: float) -> Json:
    same = present["status"] == condition["status"]
    since = present.get("lastTransitionTime") if same else None
    return {**condition, "lastTransitionTime": since or format_time(now)}
