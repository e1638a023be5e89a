"""Outages of the API server, logged once when they begin and once when they end.

A call without an answer counts as an outage of the server, one that is answered with 5xx as an
outage of the kind that was requested. A single failure is retried and not logged. Meanwhile the
failed calls themselves are left out of the log (``kai_py.observe.log``).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

log = logging.getLogger(__name__)

FAILURES_IN_A_ROW = 2
SERVER = "the API server"


@dataclass(slots=True)
class _Outage:
    began: float
    failed: int = 0


class Outages:
    """Follows the outcomes of calls; one entry per kind that is failing now."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock``: seconds, monotonic."""
        self._clock = clock
        self._current: dict[str, _Outage] = {}

    def observe(self, verb: str, kind: str, code: int, seconds: float) -> None:
        """Take in the outcome of a call; code 0 means that there was no answer."""
        if code == 0:
            self._failed(SERVER, f"no answer ({verb} {kind}, {seconds:.1f} s)", seconds)
            return
        self._answered(SERVER)
        if code >= 500:
            self._failed(kind, f"HTTP {code} ({verb})", seconds)
        else:
            self._answered(kind)

    def _failed(self, endpoint: str, reason: str, seconds: float) -> None:
        began = self._clock() - seconds
        outage = self._current.setdefault(endpoint, _Outage(began))
        outage.failed += 1
        if outage.failed == FAILURES_IN_A_ROW:
            fields = {"endpoint": endpoint, "outage": "begin"}
            log.warning("%s fails: %s", endpoint, reason, extra={"fields": fields})

    def _answered(self, endpoint: str) -> None:
        outage = self._current.pop(endpoint, None)
        if outage is None or outage.failed < FAILURES_IN_A_ROW:
            return
        seconds = self._clock() - outage.began
        fields = {
            "endpoint": endpoint,
            "outage": "end",
            "seconds": round(seconds, 1),
            "failed_calls": outage.failed,
        }
        log.warning("%s answers again", endpoint, extra={"fields": fields})
