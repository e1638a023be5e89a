"""Confirmation of findings: those that last, as opposed to effects of late watches.

Watches of several kinds bring changes at different times, so a single look may find a pod whose
claim has not arrived yet. A finding is confirmed if every look for some time has it, the last one
after each kind has caught up with all that any kind had shown at the first look.
"""

from collections.abc import Iterable

from kai_py.audit.finding import AuditFinding

CONFIRM_SECONDS = 30.0


class Confirmation:
    """Since when, and which version, each finding has been found by every look."""

    def __init__(self) -> None:
        """Start with none."""
        self._first: dict[tuple[str, ...], tuple[float, int]] = {}

    def confirm(
        self, findings: Iterable[AuditFinding], now: float, shown: int = 0, newest: int = 0
    ) -> list[AuditFinding]:
        """Of the findings of a look that began at ``now`` (seconds) those that have lasted.

        At least two looks, ``CONFIRM_SECONDS`` apart, have found each of them. ``shown``: the
        version up to which every kind was shown at the look, ``newest``: the greatest of any.
        """
        found = list(findings)
        known, this = self._first, (now, newest)
        self._first = {each.identity: known.get(each.identity, this) for each in found}
        return [each for each in found if _has_lasted(self._first[each.identity], now, shown)]


def _has_lasted(first: tuple[float, int], now: float, shown: int) -> bool:
    since, newest = first
    return now - since >= CONFIRM_SECONDS and shown >= newest
