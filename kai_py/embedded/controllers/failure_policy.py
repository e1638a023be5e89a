"""podFailurePolicy of Jobs (KEP-3329): the first matching rule decides on a failed pod.

FailIndex needs per-index backoff, which Jobs here refuse; it counts as Count.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from kai_py.embedded.documents import name_of

if TYPE_CHECKING:
    from kai_py.embedded.documents import Json


class FailureAction(Enum):
    """Effect of a failed pod on its Job."""

    COUNT = "Count"
    IGNORE = "Ignore"
    FAIL = "FailJob"


def failure_action(job: Json, pod: Json) -> tuple[FailureAction, str]:
    """Return the action for a failed pod and, for FAIL, the message for the condition."""
    rules = (job["spec"].get("podFailurePolicy") or {}).get("rules") or ()
    for number, rule in enumerate(rules):
        if _matches_conditions(rule, pod) or _matches_exit_code(rule, pod):
            action = (
                FailureAction(rule["action"])
                if rule["action"] != "FailIndex"
                else FailureAction.COUNT
            )
            return (
                action,
                f"Pod {name_of(pod)} failed, matching {rule['action']} rule at index {number}",
            )
    return FailureAction.COUNT, ""


def _matches_conditions(rule: Json, pod: Json) -> bool:
    present = {(each["type"], each["status"]) for each in pod["status"].get("conditions") or ()}
    patterns = rule.get("onPodConditions") or ()
    return any((each["type"], each.get("status", "True")) in present for each in patterns)


def _matches_exit_code(rule: Json, pod: Json) -> bool:
    exit_codes = rule.get("onExitCodes")
    if not exit_codes:
        return False
    container = exit_codes.get("containerName")
    for status in pod["status"].get("containerStatuses") or ():
        terminated = (status.get("state") or {}).get("terminated")
        if not terminated or (container and status["name"] != container):
            continue
        code = terminated["exitCode"]
        if code != 0 and (code in exit_codes["values"]) is (exit_codes["operator"] == "In"):
            return True
    return False
