"""Findings that last, told from what one look at a cluster in motion shows.

Watches of several kinds bring changes at different times, so a single look may find a pod whose
claim has not arrived yet. What is found by every look for some time is no such thing.
"""

from collections.abc import Iterable

from kai_py.audit.finding import AuditFinding

CONFIRM_SECONDS = 30.0


class Confirmation:
    """Since when each finding has been found by every look."""

    def __init__(self) -> None:
        """Start with none."""
        self._since: dict[tuple[str, ...], float] = {}

    def confirm(self, findings: Iterable[AuditFinding], now: float) -> list[AuditFinding]:
        """Of the findings of a look that began at ``now`` (seconds) those that have lasted.

        At least two looks, ``CONFIRM_SECONDS`` apart, have found each of them.
        """
        found = list(findings)
        self._since = {each.identity: self._since.get(each.identity, now) for each in found}
        return [each for each in found if now - self._since[each.identity] >= CONFIRM_SECONDS]
