"""Times and durations: how Go and Kubernetes write them, and how clocks are compared.

A duration is a sum of decimal numbers with a unit (``ns us ms s m h``), or ``0``, and never
negative here. A timestamp is a ``metav1.Time``: RFC 3339, UTC, whole seconds. What was recorded
before the wall clock was set back lies in its future; the comparisons allow for that.

Source: Go's ``time.ParseDuration``, which ``metav1.Duration`` uses.
"""

import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from kai_py.api.numbers import shortened

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
"""Seconds."""
MAX_DURATION = (2**63 - 1) / 1e9
"""Seconds, 292 years: Go counts nanoseconds in an int64."""
MAX_TEXT = 8192
"""Characters of a duration; an annotation can have 262,144, which take most of a second."""
DURATION_PATTERN = r"^(0|([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+)$"
LAST_SECOND = 253_402_300_799.0
"""The end of the year 9999, seconds since the epoch."""
CLOCK_STEP = 60.0
"""Seconds: smaller corrections of a clock, and differences between machines, are normal."""
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": MINUTE, "h": HOUR}


class DurationError(ValueError):
    """A text is not a duration; the message names the text."""


def parse_duration(text: str) -> float:
    """The seconds of a duration text; raises DurationError for any other text.

    A text of more than ``MAX_DURATION`` is an error, as it is in Go.
    """
    if len(text) > MAX_TEXT or not re.fullmatch(DURATION_PATTERN, text):
        written = shortened(repr(text))
        raise DurationError(f"{written} is not a duration: write it like 30s, 5m or 1h30m")
    return _checked(sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text)))


def _seconds(value: object) -> object:
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        written = shortened(repr(value))
        raise DurationError(f"{written} is not a duration: write it like 30s, 5m or 1h30m")
    return float(_checked(value))


def _seconds_of_text(value: object) -> object:
    if isinstance(value, str):
        return parse_duration(value)
    raise DurationError(f"{shortened(repr(value))} is not text: write it like 30s, 5m or 1h30m")


def _checked(seconds: float) -> float:
    if seconds > MAX_DURATION:
        raise DurationError("is longer than 2562047h47m16s, the longest duration")
    return seconds


def format_duration(seconds: float) -> str:
    """The duration text of seconds without zero parts: 5400 is ``1h30m``."""
    hours, rest = divmod(round(seconds * 1000), 3_600_000)
    minutes, millis = divmod(rest, 60_000)
    parts = [f"{hours}h" if hours else "", f"{minutes}m" if minutes else ""]
    if millis or not (hours or minutes):
        parts.append(f"{millis}ms" if millis % 1000 else f"{millis // 1000}s")
    return "".join(parts)


def _written(seconds: float) -> str:
    """The duration text of a setting; parts of a millisecond are kept, which texts leave out."""
    text = format_duration(seconds)
    if abs(parse_duration(text) - seconds) < 0.5e-9:
        return text
    return f"{seconds:.9f}".rstrip("0") + "s"


_AS_TEXT = PlainSerializer(_written, return_type=str)
_SCHEMA = WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN, "maxLength": 32})
Duration = Annotated[float, BeforeValidator(_seconds), _AS_TEXT, _SCHEMA]
"""A pydantic field in seconds, read from a duration text (or a number of seconds)."""
DurationText = Annotated[float, BeforeValidator(_seconds_of_text), _AS_TEXT, _SCHEMA]
"""The same of an object of the API, whose server takes only text."""
PositiveDuration = Annotated[Duration, Field(gt=0)]


def parse_time(text: str) -> datetime | None:
    """The aware time of an RFC 3339 text, in UTC where it names no zone; None for any other."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def format_time(moment: datetime | float) -> str:
    """The time, an aware UTC datetime or seconds since the epoch, truncated to seconds.

    What lies beyond the calendar, as the year 9999 and a delay of centuries, is its last second.
    """
    if not isinstance(moment, datetime):
        moment = datetime.fromtimestamp(int(min(moment, LAST_SECOND)), UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def backoff_seconds(failures: int, first: float, longest: float) -> float:
    """The wait after ``failures`` in a row: ``first``, doubled with each further one."""
    # 2.0**1024 would overflow.
    return min(first * 2.0 ** min(failures - 1, 30), longest)


def lies_ahead(moment: float, now: float, longest: float) -> bool:
    """Whether a wait of at most ``longest`` seconds that ends at ``moment`` is not over yet.

    A wait that would take much longer began before the clock was set back: it is over.
    """
    return now < moment <= now + longest + CLOCK_STEP


def happened_within(seconds: float, moment: float, now: float) -> bool:
    """Whether ``moment`` was less than ``seconds`` ago.

    A moment in the future was recorded before the clock was set back: it does not count.
    """
    return now - seconds < moment <= now + CLOCK_STEP


def begun_at(moment: float, now: float) -> float:
    """When something began according to a record; ``now`` if the clock was set back since.

    How much of its time has passed is then not known, so that it starts again.
    """
    return moment if moment <= now + CLOCK_STEP else now
