"""Which pending gangs are reported: not those that are just being created.

Controllers create the pods of a gang one after another, and others create their claims. What is
missing then is there a moment later, and a warning on every pod of every new gang would hide those
that matter. A gang that was reported with another reason, above all one that makes autoscalers add
nodes, is reported at once.
"""

from collections.abc import Callable
from dataclasses import replace

from kai_py.plan.plan import Plan, Stage

BEING_CREATED = frozenset({Stage.BELOW_MIN_MEMBER, Stage.CLAIMS_NOT_READY})
CREATED_WITHIN_SECONDS = 5.0


class PendingReports:
    """Leaves out gangs whose pods or claims have been missing for a moment only."""

    def __init__(self, wake: Callable[[float], None]) -> None:
        """``wake`` requests a cycle in that many seconds."""
        self._wake = wake
        self._since: dict[str, float] = {}
        self._reported = frozenset[str]()

    def due(self, plan: Plan, now: float) -> Plan:
        """``plan`` with the gangs to report; ``now`` in seconds of a monotonic clock."""
        self._since = {
            each.gang: self._since.get(each.gang, now)
            for each in plan.unplaced
            if each.stage in BEING_CREATED and each.gang not in self._reported
        }
        waits = {
            gang: since + CREATED_WITHIN_SECONDS - now
            for gang, since in self._since.items()
            if since + CREATED_WITHIN_SECONDS > now
        }
        due = tuple(each for each in plan.unplaced if each.gang not in waits)
        self._reported = frozenset(each.gang for each in due)
        if not waits:
            return plan
        self._wake(min(waits.values()))
        return replace(plan, unplaced=due)
