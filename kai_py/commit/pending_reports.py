"""Which pending gangs are reported, in which words: not those that are just being created.

Controllers create the pods of a gang one after another, and others create their claims. What is
missing then is there a moment later, and a warning on every pod of every new gang would hide those
that matter. A gang that was reported with another reason, above all one that makes autoscalers add
nodes, is reported at once.

A message that changes while its stage stays, as counts do while pods are deleted one after another,
is reported at most once per interval.
"""

from collections.abc import Callable
from dataclasses import replace

from msgspec import structs

from kai_py.plan.plan import Plan, Stage, Unplaced

BEING_CREATED = frozenset({Stage.BELOW_MIN_MEMBER, Stage.CLAIMS_NOT_READY})
CREATED_WITHIN_SECONDS = 5.0


class PendingReports:
    """Leaves out gangs whose pods or claims have been missing for a moment only."""

    def __init__(self, wake: Callable[[float], None], message_interval: float) -> None:
        """``wake`` requests a cycle in that many seconds."""
        self._wake = wake
        self._message_interval = message_interval
        self._since: dict[str, float] = {}
        self._reported: dict[str, tuple[Unplaced, float]] = {}

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
        due = [each for each in plan.unplaced if each.gang not in waits]
        self._reported = {each.gang: self._report(each, now) for each in due}
        delays = [*waits.values()]
        for each in due:
            reported, at = self._reported[each.gang]
            if reported.message != each.message:
                delays.append(at + self._message_interval - now)
        if not delays:
            return plan
        self._wake(min(delays))
        return replace(plan, unplaced=tuple(self._reported[each.gang][0] for each in due))

    def _report(self, unplaced: Unplaced, now: float) -> tuple[Unplaced, float]:
        """What to report, and since when its message is."""
        last = self._reported.get(unplaced.gang)
        if last is None or last[0].stage is not unplaced.stage:
            return unplaced, now
        reported, at = last
        if reported.message == unplaced.message:
            return unplaced, at
        if now >= at + self._message_interval:
            return unplaced, now
        return structs.replace(unplaced, message=reported.message), at
