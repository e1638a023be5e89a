"""Log formats: text, or one JSON object per line; outages of the API server are logged once.

Both formats use the standard library's logging. Fields given as ``extra={"fields": {...}}`` are
appended to a text line as ``key=value``, and are top-level keys of a JSON object. A record is one
line in either form, its traceback included, and nothing that others wrote in it can forge another.

A call without an answer counts as an outage of the server, one that is answered with 5xx as an
outage of the kind that was requested. A single failure is retried and not logged. An outage is
logged when it begins and when it ends; meanwhile the failed calls themselves are left out below
``debug``. Of any other warning ``BURST`` records a minute are written, and the next one says how
many were not.
"""

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TextIO

from msgspec import Struct

from kai_py.api.bounded import remember
from kai_py.api.settings import LogFormat
from kai_py.api.texts import printable, printable_json
from kai_py.watch.errors import ServerError, Unreachable

log = logging.getLogger(__name__)

BURST = 20
PERIOD_SECONDS = 60.0
MAX_TEXTS = 1000


def configure_logging(
    log_format: LogFormat, *, level: int = logging.INFO, stream: TextIO | None = None
) -> None:
    """Send all logging of this process to ``stream`` (standard error by default)."""
    handler = logging.StreamHandler(stream or sys.stderr)
    formatter = JsonFormatter() if log_format is LogFormat.JSON else TextFormatter()
    handler.setFormatter(formatter)
    if level > logging.DEBUG:
        handler.addFilter(is_no_outage)
        handler.addFilter(RateLimit(time.monotonic))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    threading.excepthook = _log_thread_failure


def _log_thread_failure(failure: threading.ExceptHookArgs) -> None:
    name = failure.thread.name if failure.thread is not None else "unknown"
    log.critical("thread %s failed", name, exc_info=failure.exc_value)


def is_no_outage(record: logging.LogRecord) -> bool:
    """False for a record of a call that failed because the server does not answer."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    return not any(isinstance(each, Unreachable | ServerError) for each in arguments)


class _Written(Struct):
    since: float
    written: int = 0
    suppressed: int = 0


class RateLimit:
    """Lets ``BURST`` warnings of one text and logger pass in ``PERIOD_SECONDS``."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock``: seconds, monotonic."""
        self._clock = clock
        self._texts: dict[tuple[str, str], _Written] = {}

    def __call__(self, record: logging.LogRecord) -> bool:
        """Whether the record is written; it says how many before it were not."""
        if record.levelno < logging.WARNING:
            return True
        key, now = (record.name, str(record.msg)), self._clock()
        known = self._texts.get(key) or remember(self._texts, key, _Written(now), MAX_TEXTS)
        suppressed = 0
        if now >= known.since + PERIOD_SECONDS:
            suppressed = known.suppressed
            known.since, known.written, known.suppressed = now, 0, 0
        if known.written >= BURST:
            known.suppressed += 1
            return False
        known.written += 1
        if suppressed:
            record.fields = {**_fields(record), "suppressed": suppressed}
        return True


class TextFormatter(logging.Formatter):
    """``2026-01-01T00:00:00.000Z INFO logger: message key=value``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; a traceback becomes the field ``exception``."""
        found = _fields(record)
        if record.exc_info is not None:
            found["exception"] = _traceback(self, record)
        fields = "".join(f" {key}={_field_text(value)}" for key, value in found.items())
        name = record.name.removeprefix("kai_py.")
        line = f"{_time(record)} {record.levelname} {name}: {record.getMessage()}{fields}"
        return printable(line)


class JsonFormatter(logging.Formatter):
    """``{"time": …, "level": …, "logger": …, "message": …}`` and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; a traceback becomes the key ``exception``."""
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info is not None:
            line["exception"] = _traceback(self, record)
        return printable_json(json.dumps(line, default=str, ensure_ascii=False))


def _field_text(value: object) -> str:
    """The value, in quotes where it would be taken for several."""
    if isinstance(value, Mapping):
        value = [f"{key}={_field_text(each)}" for key, each in value.items() if each is not None]
    text = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return json.dumps(text, ensure_ascii=False) if " " in text or not text else text


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return dict(getattr(record, "fields", {}))


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info else ""


FAILURES_IN_A_ROW = 2
SERVER = "the API server"


class _Outage(Struct):
    began: float
    failed: int = 0


class Outages:
    """Follows the outcomes of calls; one entry per kind that is failing now."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock``: seconds, monotonic."""
        self._clock = clock
        self._current: dict[str, _Outage] = {}

    def observe(self, verb: str, kind: str, code: int, seconds: float, failure: str = "") -> None:
        """Take in the outcome of a call; code 0 means that there was no answer."""
        if code == 0:
            reason = f"{failure or 'no answer'} ({verb} {kind}, {seconds:.1f} s)"
            self._failed(SERVER, reason, seconds)
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
