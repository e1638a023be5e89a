"""Timestamps and durations, in UTC unless a time zone is given.

Source: CEL specification "Timestamps and durations"; Kubernetes sets the default zone to UTC.
"""

import re
import zoneinfo
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo

from kai_py.cel.functions import declare, function
from kai_py.cel.library.operators import checked_duration, checked_timestamp
from kai_py.cel.values import CELRuntimeError, Duration, Timestamp

SECOND = 10**9
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": SECOND,
          "m": 60 * SECOND, "h": 3600 * SECOND}  # fmt: skip
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_MOMENT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@function("duration(string) -> duration")
def parse_duration(text: str) -> Duration:
    """Parse a duration as Go writes it: ``1h30m``, ``-1.5s``."""
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return Duration(0)
    total, position = 0, 0
    while rest and position < len(rest):
        match = _PART.match(rest, position)
        if match is None or not (match[1] or match[2]) or len(match[0]) > 40:
            raise CELRuntimeError(
                "type conversion error from 'string' to 'google.protobuf.Duration'"
            )
        fraction = match[2] or ""
        total += int((match[1] or "") + fraction) * _UNITS[match[3]] // 10 ** len(fraction)
        position = match.end()
    if not rest:
        raise CELRuntimeError("type conversion error from 'string' to 'google.protobuf.Duration'")
    return checked_duration(sign * total)


@function("timestamp(string) -> timestamp")
def parse_timestamp(text: str) -> Timestamp:
    """Parse a timestamp in the form of RFC 3339."""
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise CELRuntimeError("type conversion error from 'string' to 'google.protobuf.Timestamp'")
    try:
        year, month, day, hour, minute, second = (int(match[number]) for number in range(1, 7))
        naive = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        raise CELRuntimeError(
            "type conversion error from 'string' to 'google.protobuf.Timestamp'"
        ) from None
    zone = 0 if match[8] in "Zz" else _offset(match[8])
    seconds = (naive - _EPOCH) // timedelta(seconds=1) - zone
    return checked_timestamp(seconds * SECOND + int((match[7] or "0")[:9].ljust(9, "0")))


@function("timestamp(int) -> timestamp")
def timestamp_of_seconds(seconds: int) -> Timestamp:
    """The timestamp so many seconds after 1970."""
    return checked_timestamp(seconds * SECOND)


@function("duration(duration) -> duration", "timestamp(timestamp) -> timestamp")
def same(value: Duration | Timestamp) -> Duration | Timestamp:
    """The value itself: conversion to the type that it already has."""
    return value


def format_duration(value: Duration) -> str:
    """The duration in seconds, as short as possible."""
    sign = "-" if value.nanos < 0 else ""
    seconds, nanos = divmod(abs(value.nanos), SECOND)
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    return f"{sign}{seconds}{fraction}s"


def format_timestamp(value: Timestamp) -> str:
    """The timestamp in the form of RFC 3339, in UTC."""
    moment, nanos = _datetime(value, UTC), value.nanos % SECOND
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}".rjust(19, "0") + f"{fraction}Z"


def _datetime(value: Timestamp, zone: tzinfo) -> datetime:
    return (_EPOCH + timedelta(seconds=value.nanos // SECOND)).astimezone(zone)


def _offset(text: str) -> int:
    sign = -1 if text[0] == "-" else 1
    hours, minutes = text.lstrip("+-").split(":")
    return sign * (int(hours) * 3600 + int(minutes) * 60)


def _zone(name: str) -> tzinfo:
    if re.fullmatch(r"[+-]?[0-9]{2}:[0-9]{2}", name, re.ASCII):
        return timezone(timedelta(seconds=_offset(name)))
    try:
        return zoneinfo.ZoneInfo(name) if name != "UTC" else UTC
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise CELRuntimeError(f"unknown time zone {name}") from None


def _register() -> None:
    for name, read in _FIELDS.items():

        def field(
            value: Timestamp, zone: str = "UTC", *, read: Callable[[datetime, int], int] = read
        ) -> int:
            return read(_datetime(value, _zone(zone)), value.nanos)

        declare(f"timestamp.{name}() -> int", field)
        declare(f"timestamp.{name}(string) -> int", field)
    for name, unit in _SPANS.items():
        declare(f"duration.{name}() -> int", lambda value, unit=unit: _towards_zero(value, unit))
    declare(
        "duration.getMilliseconds() -> int",
        lambda value: _towards_zero(value, 10**6),
    )


def _towards_zero(value: Duration, unit: int) -> int:
    whole = abs(value.nanos) // unit
    return whole if value.nanos >= 0 else -whole


_FIELDS: dict[str, Callable[[datetime, int], int]] = {
    "getFullYear": lambda moment, _: moment.year,
    "getMonth": lambda moment, _: moment.month - 1,
    "getDate": lambda moment, _: moment.day,
    "getDayOfMonth": lambda moment, _: moment.day - 1,
    "getDayOfWeek": lambda moment, _: moment.isoweekday() % 7,
    "getDayOfYear": lambda moment, _: moment.timetuple().tm_yday - 1,
    "getHours": lambda moment, _: moment.hour,
    "getMinutes": lambda moment, _: moment.minute,
    "getSeconds": lambda moment, _: moment.second,
    "getMilliseconds": lambda _, nanos: nanos % SECOND // 10**6,
}
_SPANS = {"getHours": 3600 * SECOND, "getMinutes": 60 * SECOND, "getSeconds": SECOND}
_register()
