"""Durations and points in time as KAI and its users write them."""

from datetime import datetime

from kai_py.api.duration import DurationError, parse_duration


def signed_duration(text: str) -> float:
    """Seconds of a Go duration that may be negative; raises DurationError."""
    if text.startswith("-"):
        return -parse_duration(text[1:])
    return parse_duration(text)


def parse_time(text: str) -> float | None:
    """Seconds since the epoch of an RFC 3339 time; None for any other text."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def first_duration(*written: tuple[str, str | None]) -> tuple[float | None, str]:
    """The first duration that is set, and what is wrong with it; each with its field."""
    for field, text in written:
        if text is not None and text != "":
            try:
                return signed_duration(text), ""
            except DurationError as error:
                return None, f"{field}: {error}"
    return None, ""
