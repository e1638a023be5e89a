"""Timestamps and durations, in UTC unless a time zone is given.

A time zone has a name, or is an offset from UTC in hours and minutes, of any size: fields may be
those of a moment before year 1 or after 9999, which Python's ``datetime`` cannot represent.

Source: CEL specification "Timestamps and durations"; Kubernetes sets the default zone to UTC.
"""

import re
import zoneinfo
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo

from kai_py.cel.functions import declare, function
from kai_py.cel.library.operators import MAX_TIMESTAMP, MIN_TIMESTAMP, checked_timestamp
from kai_py.cel.library.strings import quote
from kai_py.cel.values import INT_MAX, INT_MIN, CELRuntimeError, Duration, Timestamp

SECOND = 10**9
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": SECOND,
          "m": 60 * SECOND, "h": 3600 * SECOND}  # fmt: skip
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_MOMENT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CYCLE = 146097 * 86400
"""Seconds of 400 years, after which dates fall on the same days of the week again."""
_MARGIN = 2 * 86400
"""Seconds from either end of the representable time within which no time zone is applied."""
_WRONG_DURATION = "type conversion error from 'string' to 'google.protobuf.Duration'"
_WRONG_TIMESTAMP = "type conversion error from 'string' to 'google.protobuf.Timestamp'"


@function("duration(string) -> duration")
def parse_duration(text: str) -> Duration:
    """Parse a duration as Go writes it: ``1h30m``, ``-1.5s``."""
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return Duration(0)
    total, position = 0, 0
    while rest and position < len(rest):
        match = _PART.match(rest, position)
        if match is None or not (match[1] or match[2]) or len(match[1] or "") > 40:
            raise CELRuntimeError(_WRONG_DURATION)
        unit = _UNITS[match[3]]
        total += int(match[1] or "0") * unit + _fraction(match[2] or "", unit)
        position = match.end()
    if not rest or not INT_MIN <= sign * total <= INT_MAX:
        raise CELRuntimeError(_WRONG_DURATION)
    return Duration(sign * total)


def _fraction(digits: str, unit: int) -> int:
    """The nanoseconds of a fraction of a unit, computed with doubles as Go does."""
    kept = digits[:18] if int(digits[:19] or "0") > INT_MAX else digits[:19]
    return int(int(kept or "0") * (unit / 10.0 ** len(kept)))


@function("timestamp(string) -> timestamp")
def parse_timestamp(text: str) -> Timestamp:
    """Parse a timestamp in the form of RFC 3339."""
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise CELRuntimeError(_WRONG_TIMESTAMP)
    try:
        year, month, day, hour, minute, second = (int(match[number]) for number in range(1, 7))
        naive = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        raise CELRuntimeError(_WRONG_TIMESTAMP) from None
    hours, minutes = (0, 0) if match[8] == "Z" else map(int, match[8][1:].split(":"))
    if hours > 24 or minutes > 60:
        raise CELRuntimeError(_WRONG_TIMESTAMP)
    zone = (hours * 3600 + minutes * 60) * (-1 if match[8][0] == "-" else 1)
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
    seconds, nanos = divmod(value.nanos, SECOND)
    moment = _EPOCH + timedelta(seconds=seconds)
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}".rjust(19, "0") + f"{fraction}Z"


def _local(value: Timestamp, zone: str) -> tuple[datetime, int]:
    """A moment in a time zone, moved by a multiple of 400 years, and how many years that was."""
    seconds = value.nanos // SECOND
    if ":" in zone:
        seconds += _offset(zone)
        cycles = seconds // _CYCLE
        return _EPOCH + timedelta(seconds=seconds - cycles * _CYCLE), 400 * cycles
    moved = seconds * SECOND
    cycles = (moved > MAX_TIMESTAMP - _MARGIN * SECOND) - (moved < MIN_TIMESTAMP + _MARGIN * SECOND)
    moment = _EPOCH + timedelta(seconds=seconds - cycles * _CYCLE)
    return moment.astimezone(_zone(zone)), 400 * cycles


def _offset(zone: str) -> int:
    """The seconds east of UTC of an offset such as ``-08:30``."""
    first, _, second = zone.partition(":")
    hours, minutes = _parse_part(first), _parse_part(second)
    return hours * 3600 + (-minutes if zone.startswith("-") else minutes) * 60


def _parse_part(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,9}", text, re.ASCII):
        raise CELRuntimeError(f"strconv.Atoi: parsing {quote(text)}: invalid syntax")
    return int(text)


def _zone(name: str) -> tzinfo:
    # Servers run in UTC, which is then their local time.
    if name in ("", "UTC", "Local"):
        return UTC
    if ".." in name or name[0] in "/\\":
        raise CELRuntimeError("time: invalid location name")
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise CELRuntimeError(f"unknown time zone {name}") from None


def _register() -> None:
    for name, read in _FIELDS.items():

        def field(
            value: Timestamp, zone: str = "UTC", *, read: Callable[[datetime, int, int], int] = read
        ) -> int:
            return read(*_local(value, zone), value.nanos)

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


_FIELDS: dict[str, Callable[[datetime, int, int], int]] = {
    "getFullYear": lambda moment, years, _: moment.year + years,
    "getMonth": lambda moment, _, __: moment.month - 1,
    "getDate": lambda moment, _, __: moment.day,
    "getDayOfMonth": lambda moment, _, __: moment.day - 1,
    "getDayOfWeek": lambda moment, _, __: moment.isoweekday() % 7,
    "getDayOfYear": lambda moment, _, __: moment.timetuple().tm_yday - 1,
    "getHours": lambda moment, _, __: moment.hour,
    "getMinutes": lambda moment, _, __: moment.minute,
    "getSeconds": lambda moment, _, __: moment.second,
    "getMilliseconds": lambda _, __, nanos: nanos % SECOND // 10**6,
}
_SPANS = {"getHours": 3600 * SECOND, "getMinutes": 60 * SECOND, "getSeconds": SECOND}
_register()
